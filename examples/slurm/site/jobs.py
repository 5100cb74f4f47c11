"""Draws the jobs of the site: who submits what, when, for how long. Nothing of it depends on the scheduler."""

import random
from dataclasses import dataclass, field
from typing import NamedTuple

from examples.slurm.site.rules import DAY, HOUR, Site

HOURS = (0.5, 1, 2, 4, 8, 12, 24, 48, 72, 120, 168)
"""Time limits that people ask for."""
ARRAYS = (4, 8, 8, 16, 16, 32, 48)
MONDAY = 1_767_571_200
"""2026-01-05T00:00:00, the first day."""


class Attempt(NamedTuple):
    """One run of a job."""

    submit: int
    eligible: int
    start: int
    end: int
    state: str
    reason: str
    place: tuple[int, ...]


@dataclass(slots=True, eq=False)
class Job:
    """A job, or a task of an array, as it is submitted; the scheduler adds what becomes of it."""

    number: int
    user: str
    account: str
    qos: str
    partition: str
    nodes: int
    gpus: int
    gpu_type: str
    cpus: int
    memory_gb: int
    seconds: int
    limit: int
    state: str
    submit: int = 0
    array: int = 0
    task: int = 0
    tasks: int = 0
    """Of the array, in all."""
    throttle: int = 0
    after: int = 0
    """The job that it waits for."""
    after_ok: bool = False
    patience: int = 0
    """Cancelled after this time if it has not started; 0: never."""
    eligible: int = -1
    start: int = -1
    end: int = -1
    held: str = "None"
    """The last reason for which it waited, other than Priority and Resources."""
    priority: float = 0.0
    key: tuple[float, float, int] = (0.0, 0.0, 0)
    place: tuple[int, ...] = ()
    earlier: list[Attempt] = field(default_factory=list)
    """Attempts that were requeued."""

    def attempt(self, state: str, end: int) -> Attempt:
        """Return the run that ends now."""
        submit = self.earlier[-1].end if self.earlier else self.submit
        return Attempt(submit, self.eligible, self.start, end, state, self.held, self.place)


@dataclass(frozen=True)
class Kind:
    """A way to use the site: QOS, partition, widths, run times, and how much of all there is."""

    qos: str
    partition: str
    part: float
    widths: tuple[int, ...]
    weights: tuple[float, ...]
    usual: float
    """Logarithm of a usual run time in seconds."""
    spread: float
    arrays: float = 0.0
    gpu_type: str = ""


KINDS = (
    Kind("normal", "a100", 0.36, (1, 2, 4, 8, 16), (0.5, 0.16, 0.16, 0.14, 0.04), 9.9, 1.2, 0.03, "a100"),
    Kind("normal", "h100", 0.15, (1, 2, 4, 8, 16), (0.35, 0.15, 0.25, 0.2, 0.05), 9.6, 1.1, 0.01, "h100"),
    Kind("long", "a100", 0.06, (1, 2, 4, 8), (0.4, 0.25, 0.25, 0.1), 11.4, 0.7, 0.0, "a100"),
    Kind("long", "h100", 0.05, (1, 2, 4), (0.5, 0.3, 0.2), 11.2, 0.7, 0.0, "h100"),
    Kind("debug", "debug", 0.13, (1, 2, 4), (0.7, 0.2, 0.1), 6.2, 1.1, 0.0, "a100"),
    Kind("scavenger", "scavenge", 0.14, (1, 2, 4), (0.75, 0.15, 0.1), 9.7, 0.9, 0.06),
    Kind("normal", "cpu", 0.13, (0,), (1.0,), 9.0, 1.3, 0.05),
)


class Draw:
    """Everybody's jobs, the same for the same seed."""

    def __init__(self, site: Site, count: int, seed: int, load: float) -> None:
        self._site = site
        self._draw = random.Random(seed)
        self._users = [(user, each.name) for each in site.accounts.values() for user in each.users]
        self._activity = [1 / (rank + 3) for rank in range(len(self._users))]
        self._draw.shuffle(self._activity)
        self._taste = [[self._draw.gammavariate(1.5, 1) for _ in KINDS] for _ in self._users]
        groups: list[list[Job]] = []
        while (made := sum(map(len, groups))) < count:
            groups.append(self._group()[: count - made])
        self.jobs = self._submitted(groups, self._length(groups, load))

    def _group(self) -> list[Job]:
        """Return what one user submits at once: mostly one job, sometimes an array or a chain of jobs."""
        draw = self._draw
        (who,) = draw.choices(range(len(self._users)), self._activity)
        (kind,) = draw.choices(KINDS, [each.part * taste for each, taste in zip(KINDS, self._taste[who], strict=True)])
        (width,) = draw.choices(kind.widths, kind.weights)
        usual = draw.lognormvariate(kind.usual, kind.spread)
        most = min(self._site.qos[kind.qos].most_wall, self._site.partitions[kind.partition].most_time)
        asked = usual * draw.uniform(1.0, 5.0)
        limit = int(min(most, next((hours for hours in HOURS if hours * HOUR >= asked), HOURS[-1]) * HOUR))
        chance = draw.random()
        count, throttle, chained = 1, 0, False
        if width <= 1 and chance < kind.arrays:
            count = draw.choice(ARRAYS)
            throttle = draw.choice((0, 0, 4, 8)) if "throttles" not in self._site.without else 0
        elif kind.qos in ("normal", "long") and chance > 0.97 and "dependencies" not in self._site.without:
            count, chained = draw.choice((2, 3, 4)), True
        cpus = draw.choice((2, 4, 8, 16, 32))
        group = [self._job(who, kind, width, usual, limit, cpus) for _ in range(count)]
        for place, job in enumerate(group):
            if chained:
                job.after, job.after_ok = place, draw.random() < 0.7
            elif count > 1:
                job.task, job.throttle = place + 1, throttle
        return group

    def _job(self, who: int, kind: Kind, width: int, usual: float, limit: int, cpus: int) -> Job:
        draw = self._draw
        seconds = max(15, int(usual * draw.lognormvariate(0, 0.25)))
        (state,) = draw.choices(("COMPLETED", "FAILED", "CANCELLED"), (0.84, 0.1, 0.06))
        if state != "COMPLETED":
            seconds = max(5, int(seconds * draw.random()))
        if seconds >= limit:
            state, seconds = "TIMEOUT", limit + draw.randrange(31)
        user, account = self._users[who]
        each = 16 if kind.gpu_type == "h100" else 12
        return Job(
            *(0, user, account, kind.qos, kind.partition, max(1, width // 8), width, kind.gpu_type),
            *(each * width or cpus, 100 * width or 4 * cpus, seconds, limit, state),
            patience=int(draw.uniform(1, 20) * HOUR) if draw.random() < 0.03 else 0,
        )

    def _length(self, groups: list[list[Job]], load: float) -> float:
        """Return the seconds in which the GPUs do this work at a load."""
        busy = {"h100": 0, "a100": 0}
        gpus = {kind: sum(node.gpus for node in self._site.nodes if node.gpu_type == kind) for kind in busy}
        shared = 0
        for job in (job for group in groups for job in group):
            if job.gpu_type:
                busy[job.gpu_type] += job.seconds * job.gpus
            else:
                shared += job.seconds * job.gpus
        alone = max(busy[kind] / gpus[kind] for kind in busy)
        return max(alone, (sum(busy.values()) + shared) / sum(gpus.values())) / load

    def _submitted(self, groups: list[list[Job]], length: float) -> list[Job]:
        """Return the jobs by submission, with numbers: more by day than by night, more on working days."""
        times: list[int] = []
        while len(times) < len(groups):
            second = self._draw.random() * length
            hour, day = second / HOUR % 24, second // DAY % 7
            if self._draw.random() < (1.0 if 8 <= hour <= 19 else 0.35) * (1.0 if day < 5 else 0.4):
                times.append(MONDAY + int(second))
        times.sort()
        jobs: list[Job] = []
        for group, time in zip(groups, times, strict=True):
            first = 1001 + len(jobs)
            for place, job in enumerate(group):
                job.number, job.submit = first + place, time
                job.array, job.tasks = (first, len(group)) if job.task else (0, 0)
                job.after = first + place - 1 if job.after else 0
            jobs += group
        return jobs

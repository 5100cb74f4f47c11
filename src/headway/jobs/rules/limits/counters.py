"""Counters: what is held under a limit, and from when on a job that it holds back would fit.

What a job adds to a counter is known when it arrives: limits count what jobs ask for, whatever they are given and
wherever they run.
"""

from collections.abc import Sequence
from heapq import heappop, heappush
from math import ceil, floor, log, log2
from typing import TYPE_CHECKING

from headway.jobs.model.job import Job
from headway.jobs.model.resources import Placement
from headway.jobs.model.submission import Terms
from headway.jobs.rules.limits.limit import AGEING, LimitRule, throttle_rule

if TYPE_CHECKING:
    from headway.jobs.rules.limits.classes import LimitClass
    from headway.jobs.state.jobstate import JobState

NEVER = 1 << 62
_LOOK_AGAIN = 1_000_000_000
"""What decays is looked at again at whole multiples of this: in floating point no time is exact."""


def time_limit(job: Job) -> int:
    """Return how long a job may run, as far as is known: what its user announced, else what it takes."""
    return job.estimate or job.work


def weight(rule: LimitRule, job: Job, largest: int) -> int:
    """Return what a job holds of a rule's resource while it runs, or adds to it in each nanosecond.

    ``largest`` is the number of GPUs of the largest node: a job that names no number of nodes takes as few as it can.
    """
    if rule.gpu_type and job.gpu_types != (rule.gpu_type,):
        return 0
    nodes = job.nodes or -(-job.gpus // largest) or 1
    cpu_milli, memory_bytes = job.host
    match rule.kind:
        case "gpus_per_node":
            return job.gpus // nodes * job.gpu_milli
        case "cpus_per_node":
            return cpu_milli // nodes // 1000 * 1000
        case "memory_per_node":
            return memory_bytes // nodes
        case "licences":
            return 0 if job.terms is None else dict(job.terms.licences).get(rule.licence, 0)
        case "gpus" | "gpu_time" | "running_gpu_time":
            return job.gpus * job.gpu_milli
        case "cpus" | "cpu_time" | "running_cpu_time":
            return cpu_milli
        case "wall_time" | "running_wall_time":
            return 1000
        case "memory":
            return memory_bytes
        case "nodes":
            return nodes
        case "wall":
            return job.estimate
        case _:
            return 1


def added(rule: LimitRule, job: Job, largest: int) -> int:
    """Return what has to be free under a rule for a job to start; 0 where the rule does not concern it."""
    held = weight(rule, job, largest)
    if rule.least:
        return rule.bound(held)
    if not held or not (rule.is_used or rule.is_promised):
        return held
    return held * time_limit(job) if rule.is_promised or rule.ahead else 1


class Counter:
    """What the jobs under one rule hold, those of one user or account where it is counted for each."""

    __slots__ = ("held", "most", "of", "open", "rule", "shut")
    timed = False

    def __init__(self, rule: LimitRule, of: tuple[str, ...]) -> None:
        self.rule = rule
        self.of = of
        """Whose it is: values of what it is counted per."""
        self.most = rule.bound(rule.most)
        self.held = 0
        self.open: dict[int, dict[LimitClass, None]] = {}
        """Classes of waiting jobs that no limit holds back, by what their jobs would add."""
        self.shut: dict[int, dict[LimitClass, None]] = {}
        """Those that this limit holds back."""

    def level(self, now: int) -> int:
        """Return what counts against the limit now."""
        return self.held

    def held_now(self, now: int) -> int:
        """Return what is held, for people: of jobs in the system their number."""
        return self.level(now)

    def share_of(self, job: Job, amount: int, now: int) -> int:
        """Return what a running job has of what counts."""
        return amount

    def take(self, now: int, job: Job, amount: int, weight: int, end: int) -> None:
        """Enter a start; ``end`` is when its time limit ends it."""
        self.held += amount

    def give(self, now: int, job: Job, amount: int, weight: int) -> None:
        """Enter a stop."""
        self.held -= amount

    def plan(self, now: int, job: Job, amount: int, weight: int, end: int, sign: int) -> None:
        """Enter a start (+1) or a stop (-1) in a draft, within one instant."""
        self.held += sign * amount

    def opens(self, now: int, amount: int) -> int:
        """Return when so much fits by time alone, after now; ``NEVER``: only once a job stops, or not at all."""
        return NEVER

    def closes(self, now: int, amount: int) -> int:
        """Return when so much, which fits, fits no longer by time alone; ``NEVER`` where it always will."""
        return NEVER


class Alone(Counter):
    """The counter of a rule about single jobs: nobody else adds to it."""

    __slots__ = ()

    def take(self, now: int, job: Job, amount: int, weight: int, end: int) -> None:
        """Count nothing."""

    def give(self, now: int, job: Job, amount: int, weight: int) -> None:
        """Count nothing."""

    def plan(self, now: int, job: Job, amount: int, weight: int, end: int, sign: int) -> None:
        """Count nothing."""


class Nodes(Counter):
    """The nodes that running jobs are on, each once."""

    __slots__ = ("_jobs_on",)

    def __init__(self, rule: LimitRule, of: tuple[str, ...]) -> None:
        super().__init__(rule, of)
        self._jobs_on: dict[int, int] = {}

    def enter(self, placement: Placement, sign: int) -> None:
        """Enter that a job is on these nodes (+1), or not any more (-1)."""
        for node, _ in placement:
            jobs = self._jobs_on.get(node, 0) + sign
            if jobs:
                self._jobs_on[node] = jobs
            else:
                del self._jobs_on[node]
        self.held = len(self._jobs_on)

    def take(self, now: int, job: Job, amount: int, weight: int, end: int) -> None:
        """Count nothing: ``enter`` does."""

    def give(self, now: int, job: Job, amount: int, weight: int) -> None:
        """Count nothing: ``enter`` does."""

    def plan(self, now: int, job: Job, amount: int, weight: int, end: int, sign: int) -> None:
        """Count nothing: ``enter`` does."""


class Promised(Counter):
    """What running jobs may still use until their time limits; a job beyond its own adds nothing."""

    __slots__ = ("_ends", "_sum", "_until", "_width")
    timed = True

    def __init__(self, rule: LimitRule, of: tuple[str, ...]) -> None:
        super().__init__(rule, of)
        self._until: dict[int, tuple[int, int]] = {}
        """End and weight of each job within its time limit."""
        self._ends: list[tuple[int, int]] = []
        self._sum = self._width = 0

    def level(self, now: int) -> int:
        """Return the sum over jobs of weight × time left; jobs beyond their limits leave it here."""
        ends = self._ends
        while ends and ends[0][0] <= now:
            end, job = heappop(ends)
            if (entry := self._until.get(job)) is not None and entry[0] == end:
                self._leave(job)
        return self._sum - self._width * now

    @property
    def width(self) -> int:
        """Return by how much it falls in each nanosecond."""
        return self._width

    def _enter(self, job: int, weight: int, end: int) -> None:
        self._until[job] = end, weight
        self._sum += end * weight
        self._width += weight

    def _leave(self, job: int) -> None:
        if (entry := self._until.pop(job, None)) is not None:
            end, weight = entry
            self._sum -= end * weight
            self._width -= weight

    def take(self, now: int, job: Job, amount: int, weight: int, end: int) -> None:
        """Enter a start."""
        if end > now:
            self._enter(job.id, weight, end)
            heappush(self._ends, (end, job.id))

    def give(self, now: int, job: Job, amount: int, weight: int) -> None:
        """Enter a stop."""
        self._leave(job.id)

    def plan(self, now: int, job: Job, amount: int, weight: int, end: int, sign: int) -> None:
        """Enter a start or a stop in a draft."""
        if sign < 0:
            self._leave(job.id)
        elif end > now:
            self._enter(job.id, weight, end)

    def share_of(self, job: Job, amount: int, now: int) -> int:
        """Return what a running job may still use."""
        end, weight = self._until.get(job.id, (now, 0))
        return weight * (end - now)

    def opens(self, now: int, amount: int) -> int:
        """Return when so much fits if no job starts or stops."""
        room = self.most - amount
        if room < 0:
            return NEVER
        total, width = self._sum, self._width
        for end, weight in sorted(self._until.values()):
            time = -(-(total - room) // width)
            if time <= end:
                return max(now + 1, time)
            total -= end * weight
            width -= weight
        return now + 1


class Used(Counter):
    """What jobs have used so far; with ``ahead`` also what running ones may still use."""

    __slots__ = ("_base", "_promised", "_rate", "_since", "_value")
    timed = True

    def __init__(self, rule: LimitRule, of: tuple[str, ...]) -> None:
        super().__init__(rule, of)
        self._base = rule.used
        self._rate = 0
        """Without decay: used by time t is ``base + rate * t``."""
        self._value, self._since = float(rule.used), 0
        """With decay: used by ``since``."""
        self._promised = Promised(rule, of) if rule.ahead else None

    def used(self, now: int) -> int:
        """Return what was used by now, what decays rounded down."""
        return floor(self._decayed(now)) if self.rule.half_life else self._base + self._rate * now

    def level(self, now: int) -> int:
        """Return what was used, and with ``ahead`` what may be used yet."""
        used = self.used(now)
        return used if self._promised is None else used + self._promised.level(now)

    def _decayed(self, now: int) -> float:
        half_life = self.rule.half_life
        left: float = 2.0 ** (-(now - self._since) / half_life)
        return self._value * left + self._rate * (half_life / log(2)) * (1 - left)

    def _change(self, now: int, weight: int) -> None:
        if self.rule.half_life:
            self._value, self._since = self._decayed(now), now
        else:
            self._base -= weight * now
        self._rate += weight

    def take(self, now: int, job: Job, amount: int, weight: int, end: int) -> None:
        """Enter a start."""
        self._change(now, weight)
        if self._promised is not None:
            self._promised.take(now, job, amount, weight, end)

    def give(self, now: int, job: Job, amount: int, weight: int) -> None:
        """Enter a stop."""
        self._change(now, -weight)
        if self._promised is not None:
            self._promised.give(now, job, amount, weight)

    def plan(self, now: int, job: Job, amount: int, weight: int, end: int, sign: int) -> None:
        """Enter a start or a stop in a draft: nothing is used within one instant."""
        if self._promised is not None:
            self._promised.plan(now, job, amount, weight, end, sign)

    def carry(self, other: "Used", now: int) -> None:
        """Begin with what was used under the same rule before it was changed."""
        self._base, self._value, self._since = (
            other.used(now),
            other._decayed(now) if other.rule.half_life else 0.0,
            now,
        )

    def opens(self, now: int, amount: int) -> int:
        """Return when so much fits, at the latest, if no job starts; the time may have to be looked at again."""
        room, half_life = self.most - amount, self.rule.half_life
        if self._promised is not None:
            room -= self._promised.level(now)
        if not half_life or room <= 0:
            return NEVER
        floor_value, used = self._rate * (half_life / log(2)), self._decayed(now)
        if used <= room:
            return now + 1
        if floor_value >= room:
            return NEVER
        time = now + half_life * log2((used - floor_value) / (room - floor_value))
        return max(now // _LOOK_AGAIN + 1, ceil(time / _LOOK_AGAIN)) * _LOOK_AGAIN

    def closes(self, now: int, amount: int) -> int:
        """Return when so much no longer fits if no job starts or stops, and none runs into its time limit."""
        room, half_life, rate = self.most - amount, self.rule.half_life, self._rate
        if self._promised is not None:
            room -= self._promised.level(now)
            rate -= self._promised.width
        if rate <= 0 or not half_life:
            return NEVER if rate <= 0 else max(now + 1, now + (room - self.used(now)) // rate + 1)
        floor_value, used = rate * (half_life / log(2)), self._decayed(now)
        if floor_value <= room:
            return NEVER
        time = now + half_life * log2((floor_value - used) / (floor_value - room)) if used < room else now
        return (max(now, ceil(time)) // _LOOK_AGAIN + 1) * _LOOK_AGAIN


class Submitted(Alone):
    """Jobs that are in the system, at most so many; others wait outside, in the order in which they came."""

    __slots__ = ("outside",)

    def __init__(self, rule: LimitRule, of: tuple[str, ...]) -> None:
        super().__init__(rule, of)
        self.outside: dict[int, None] = {}

    def level(self, now: int) -> int:
        """Return nothing: whoever is in the system may start."""
        return 0

    def held_now(self, now: int) -> int:
        """Return how many are in the system."""
        return self.held


class Ageing(Alone):
    """Waiting jobs whose age counts, at most so many; others wait for their turn, by number."""

    __slots__ = ("line", "waiting")

    def __init__(self, rule: LimitRule, of: tuple[str, ...]) -> None:
        super().__init__(rule, of)
        self.waiting: dict[int, JobState] = {}
        self.line: list[int] = []
        """A heap of those that wait, and of some that do not any more."""


def counter_of(rule: LimitRule, of: tuple[str, ...]) -> Counter:
    """Make the counter of a rule for one value of what it is counted per."""
    if rule.is_alone:
        return Alone(rule, of)
    if rule.kind in ("nodes", AGEING):
        return Nodes(rule, of) if rule.kind == "nodes" else Ageing(rule, of)
    if rule.is_promised:
        return Promised(rule, of)
    if rule.is_used:
        return Used(rule, of)
    return Submitted(rule, of) if rule.kind == "submitted" else Counter(rule, of)


_THROTTLE = -1
"""Stands for the position of a rule that a job brings along."""


def throttled(terms: Terms) -> tuple[int, tuple[str, ...]]:
    """Return which counter the tasks of a throttled array add to."""
    return _THROTTLE, (terms.array, str(terms.throttle))


def counter_at(rules: Sequence[LimitRule], index: int, of: tuple[str, ...], now: int) -> Counter:
    """Make the counter of the rule at a position, or of the throttle of an array, as it is now."""
    if index == _THROTTLE:
        array, most = of
        return counter_of(throttle_rule(array, int(most)), ())
    counter = counter_of(rules[index], of)
    counter.most = rules[index].bound(rules[index].most_at(now))
    return counter

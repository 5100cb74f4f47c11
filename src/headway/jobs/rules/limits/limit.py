"""Limits: how much of something the jobs of a user, an account, a class or a partition may hold together.

A rule is declared with the cluster. Which rules hold for a job is found once, when it arrives; what is held under them
is counted in ``counters``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headway.errors import ExperimentError, unknown_name

PER_NODE = ("gpus_per_node", "cpus_per_node", "memory_per_node")
"""What one job asks for of each of its nodes, on average, rounded down."""
AGEING = "ageing"
"""Waiting jobs whose age counts: nobody is held back for it, and the age of those beyond it does not grow."""
HELD = ("gpus", "cpus", "memory", "nodes", "jobs", "submitted", "wall", "licences", AGEING, *PER_NODE)
"""What is counted while a job holds it; ``submitted`` while it lives; ``wall`` is a job's own time limit."""
TIMED = ("gpu_time", "cpu_time", "wall_time")
"""What grows as jobs run; with ``running_`` before it, what running jobs may still use up to their time limits."""
RESOURCES = (*HELD, *TIMED, *(f"running_{name}" for name in TIMED))
TYPED = ("gpus", "gpus_per_node", "gpu_time", "running_gpu_time", "licences")
"""May be followed by ``:TYPE``: of jobs that ask for this GPU type, and no other, by name. Licences must be, by their
name: ``licences:matlab``."""
ANY = "any"
SELECTORS = ("account", "tenant", "user", "qos", "partition", "array", ANY)
"""``account`` chooses jobs of an account and of all below it, ``tenant`` those of one account alone; ``any`` those of
one of several selectors, written ``qos:long``."""
COUNTED_PER = ("account", "user", "qos", "partition", "array", "job")
THROTTLE = "JobArrayTaskLimit"
"""The limit that a job brings along: so many tasks of its array may run at once."""


NO_LIMIT = 1 << 62
"""An amount that nothing exceeds."""
NOBODY = 1_000_000
"""From this level on a limit holds nobody back: jobs only count there."""
_LEAST = ("gpus", "cpus", "memory", "nodes")
"""Of which a job may have to ask for so much at least."""


@dataclass(frozen=True, slots=True)
class LimitRule:
    """The most that the jobs it chooses may hold of a resource, together or for each user, account, … of them."""

    name: str
    """As users know it: ``QOSMaxGRESPerUser``, ``ResourceQuota team-a``."""
    resource: str
    """One of ``RESOURCES``; those of ``TYPED`` also of one GPU type, ``gpus:h100``."""
    most: int
    """Thousandths of a GPU or CPU, bytes, numbers, nanoseconds; times are nanoseconds times thousandths."""
    where: tuple[tuple[str, str], ...] = ()
    """Which jobs, by ``SELECTORS``; all where it is empty. Of several values of one key any will do."""
    per: tuple[str, ...] = ()
    """A counter for each of these, of ``COUNTED_PER``; one for all jobs where it is empty."""
    slot: str = ""
    """Of rules with one slot that choose a job only those of the least level hold; all rules without a slot do.
    A job counts under the others too, and is not held back for them."""
    level: int = 0
    denies: bool = False
    """Whether a job that exceeds it alone is rejected; otherwise it waits for ever."""
    half_life: int = 0
    """Of ``TIMED`` ones: after so long half of what was used counts; 0: all of it, for ever."""
    used: int = 0
    """Of these: what was used before the run began."""
    ahead: bool = False
    """Of these: what running jobs may still use, and the job itself, must fit too before it starts."""
    changes: tuple[tuple[int, int], ...] = ()
    """(time, amount), in order of time: from then on this is the most. What is held beyond it stays held."""
    least: bool = False
    """Whether ``most`` is the least that a single job has to ask for."""
    levels: tuple[tuple[str, str, int], ...] = ()
    """(selector, value, level): of jobs that these choose the level is this one, the least of several."""

    def __post_init__(self) -> None:
        resource, colon, kind = self.resource.partition(":")
        if resource not in RESOURCES or (colon and (resource not in TYPED or not kind)):
            raise ExperimentError(f"{self}: {unknown_name('resource', self.resource, (*RESOURCES, 'gpus:TYPE'))}")
        if resource == "licences" and not kind:
            raise ExperimentError(f"{self}: licences are counted by name: write licences:matlab")
        least = 1 if self.resource in ("wall", "nodes") or self.is_promised else 0
        for most in (self.most, *(most for _, most in self.changes)):
            if most < least:
                raise ExperimentError(f"{self}: a limit of {most} on {self.resource} must be at least {least}")
        times = [time for time, _ in self.changes]
        if times != sorted(set(times)) or (times and times[0] <= 0):
            raise ExperimentError(f"{self}: its changes must come one after the other, each after the run began")
        for given, valid, what in ((dict(self.where), SELECTORS, "where"), (self.per, COUNTED_PER, "per")):
            for name in given:
                if name not in valid:
                    raise ExperimentError(f"{self}: {unknown_name(what, name, valid)}")
        self._check_choice()
        self._check_alone()
        if "job" in self.per and (self.is_used or self.resource in ("jobs", "submitted", AGEING)):
            remedy = ": running_gpu_time limits what one may use" if self.is_used else ""
            raise ExperimentError(f"{self}: {self.resource} cannot be counted for each job{remedy}")
        if self.used and self.per:
            raise ExperimentError(f"{self}: used {self.used} belongs to one counter: leave out per {list(self.per)}")
        for key in ("half_life", "used", "ahead"):
            if (value := getattr(self, key)) and not self.is_used:
                raise ExperimentError(f"{self}: {key} {value} has no meaning for {self.resource}, only for gpu_time")
            if value < 0:
                raise ExperimentError(f"{self}: {key} {value} must not be negative")

    def _check_choice(self) -> None:
        for key, _, _ in self.levels:
            if key not in SELECTORS or key in ("account", ANY):
                valid = [each for each in SELECTORS if each not in ("account", ANY)]
                raise ExperimentError(f"{self}: {unknown_name('selector of a level', key, valid)}")
        for key, value in self.where:
            if key == ANY and value.partition(":")[0] not in SELECTORS[:-1]:
                raise ExperimentError(f"{self}: any {value!r} is not like qos:long")

    def _check_alone(self) -> None:
        if self.kind in PER_NODE and "job" not in self.per:
            raise ExperimentError(f'{self}: {self.resource} is about single jobs: write per = "job"')
        if self.least and (self.kind not in _LEAST or "job" not in self.per):
            raise ExperimentError(f'{self}: least is for {", ".join(_LEAST)} of single jobs: write per = "job"')

    def __str__(self) -> str:
        """Return its name, and which jobs it chooses: what a user writes to change it."""
        return f"limit {self.address}"

    @property
    def address(self) -> str:
        """Return its name with which jobs it chooses: ``QOSMaxGRESPerUser@qos:long``."""
        return "@".join((self.name, *(f"{key}:{value}" for key, value in self.where)))

    @property
    def kind(self) -> str:
        """Return the resource without a GPU type."""
        return self.resource.partition(":")[0]

    @property
    def licence(self) -> str:
        """Return the licence that it is about; empty: none."""
        return self.resource.partition(":")[2] if self.kind == "licences" else ""

    @property
    def gpu_type(self) -> str:
        """Return the GPU type that it is about; empty: any."""
        return "" if self.kind == "licences" else self.resource.partition(":")[2]

    def most_at(self, now: int) -> int:
        """Return the most at a time."""
        return next((most for time, most in reversed(self.changes) if time <= now), self.most)

    @property
    def loosest(self) -> int:
        """Return the amount under which it ever holds the fewest back."""
        amounts = (self.most, *(most for _, most in self.changes))
        return min(amounts) if self.least else max(amounts)

    def bound(self, amount: int) -> int:
        """Return an amount as it is compared, the most or what a job asks for: of ``least`` what is missing counts."""
        return NO_LIMIT - amount if self.least else amount

    @property
    def is_alone(self) -> bool:
        """Return whether it is about single jobs: what others hold does not matter."""
        return "job" in self.per or self.kind == "wall"

    @property
    def is_used(self) -> bool:
        """Return whether it counts what was used so far."""
        return self.kind in TIMED

    @property
    def is_promised(self) -> bool:
        """Return whether it counts what running jobs may still use."""
        return self.kind.startswith("running_")


def check_tree(parents: Mapping[str, str]) -> None:
    """Refuse accounts whose parent is not described, or that are below themselves."""
    for name, parent in parents.items():
        if parent and parent not in parents:
            raise ExperimentError(f"tenant {name}: {unknown_name('parent', parent, parents)}")
        above = [name]
        while parent:
            above.append(parent)
            if parent == name:
                raise ExperimentError(f"tenant {name} is below itself: {' under '.join(above)}: leave out one parent")
            if above.count(parent) > 1:
                break  # a loop further up, said where it begins
            parent = parents[parent]


def check_rules(rules: Iterable[LimitRule]) -> None:
    """Refuse two rules that cannot be told apart, by name and by which jobs they choose."""
    seen: set[tuple[object, ...]] = set()
    for rule in rules:
        mark = (rule.address, rule.resource, rule.per, rule.slot, rule.level)
        if mark in seen:
            raise ExperimentError(f"{rule}: two limits of this name on {rule.resource} choose the same jobs")
        seen.add(mark)


def throttle_rule(array: str, most: int) -> LimitRule:
    """Return the limit on running tasks of an array that its jobs bring along."""
    return LimitRule(THROTTLE, "jobs", most, (("array", array),))

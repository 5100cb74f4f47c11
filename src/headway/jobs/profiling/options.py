"""Parse what a user asks of the profiler, and check it against the machine before anything runs."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from headway.device.limits import LEAST_CPUS, NO_PROGRAM, Limits
from headway.errors import InputError, ProfileError
from headway.units import format_size, parse_size

LEAST_STEPS = 10
_RANGE = re.compile(r"\s*([\d.]+[^-]*?)\s*-\s*([\d.]+.*?)\s*")


@dataclass(frozen=True)
class Options:
    """One profile that is to be made; sizes in bytes, memory a GPU."""

    command: tuple[str, ...]
    cpus: tuple[float, ...] | None = None
    """Two ends to search between, ascending, or exactly these points where there are more or fewer."""
    exactly: bool = False
    memory: tuple[int, ...] = ()
    memory_range: bool = False
    steps: int = 50
    gpus: int = 1
    pattern: "re.Pattern[str] | None" = None
    model: str = ""
    dataset: Path | None = None
    dataset_bytes: int = 0
    bytes_per_sample: int = 0
    timeout_s: float = 300.0
    check: tuple[float, ...] = ()
    env: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rules = (
            (not self.command, NO_PROGRAM),
            (self.steps < LEAST_STEPS, f"--steps {self.steps}: at least {LEAST_STEPS} are needed to say anything"),
            (self.gpus < 1, f"--gpus {self.gpus}: at least 1; a program without a GPU counts as having one"),
            (self.timeout_s <= 0, f"--timeout {self.timeout_s:g}: must be above 0"),
        )
        for broken, rule in rules:
            if broken:
                raise ProfileError(rule)

    @property
    def name(self) -> str:
        """Return the model's name: as given, or the script's."""
        if self.model:
            return self.model
        scripts = [word for word in self.command if word.endswith((".py", ".sh"))]
        modules = [word for flag, word in zip(self.command, self.command[1:], strict=False) if flag == "-m"]
        if not scripts and modules:
            return modules[0].rpartition(".")[2]
        return Path((scripts or self.command)[0]).stem

    def ends(self, limits: Limits) -> tuple[float, float]:
        """Return the lowest and the highest CPU count, both within what the machine has."""
        most = limits.cpus if limits.fractions else float(len(limits.cpu_numbers))
        if self.cpus is None:
            lowest = min(float(self.gpus), most / 4) if limits.fractions else 1.0
            low, high = max(LEAST_CPUS, lowest), most
        else:
            low, high = self.cpus[0], self.cpus[-1]
        given = "" if self.cpus is None else f"--cpus {low:g}-{high:g}: "
        if high > most:
            raise ProfileError(f"{given}this machine has {most:g} CPUs for a program; ask for no more than that")
        if low < LEAST_CPUS:
            raise ProfileError(f"{given}the lower end must be at least {LEAST_CPUS:g}")
        self._check_compared(most)
        if not limits.fractions:
            self._check_whole(low, high, most)
        return low, high

    def _check_compared(self, most: float) -> None:
        """Refuse points to compare with that the machine does not have."""
        for cpus in self.check:
            if not cpus >= LEAST_CPUS:
                raise ProfileError(f"--check {cpus:g}: at least {LEAST_CPUS:g} CPUs")
            if cpus > most:
                raise ProfileError(
                    f"--check {cpus:g}: this machine has {most:g} CPUs for a program; ask for no more than that"
                )

    def _check_whole(self, low: float, high: float, most: float) -> None:
        """Refuse parts of CPUs, and a machine with one CPU, where there are no quotas."""
        how = "run as root or under systemd-run --user --scope -p Delegate=yes"
        asked = (low, high, *(self.cpus or ()), *self.check)
        if (part := next((each for each in asked if each != int(each)), None)) is not None:
            raise ProfileError(
                f"{part:g} CPUs: no control group for CPU time can be written here: only whole CPUs; {how}"
            )
        if most < 2:
            raise ProfileError(
                f"this machine has one CPU, and no control group for CPU time can be written: nothing to vary; {how}"
            )


def cpus_of(text: str) -> tuple[tuple[float, ...], bool]:
    """Parse ``0.5-16`` into two ends, ``0.5,1,2`` or ``2`` into just these points; return whether it is the latter."""
    bounds = re.fullmatch(r"\s*([\d.]+)\s*-\s*([\d.]+)\s*", text)
    try:
        given = tuple(map(float, bounds.groups() if bounds else text.split(",")))
    except ValueError:
        raise ProfileError(f"--cpus {text!r} is not understood: write 0.5-16, or 0.5,1,2 for just these") from None
    if bounds and given[0] > given[1]:
        raise ProfileError(f"--cpus {text}: the lower end comes first")
    if not all(each >= LEAST_CPUS for each in given):  # nor what is no number
        raise ProfileError(f"--cpus {text}: at least {LEAST_CPUS:g} CPUs")
    return (given, False) if bounds and given[0] < given[1] else (tuple(sorted(set(given))), True)


def memory_of(text: str) -> tuple[tuple[int, ...], bool]:
    """Parse ``20GB-250GB`` into two ends, ``20GB,60GB`` into just these sizes; return whether it is the former."""
    bounds = _RANGE.fullmatch(text)
    try:
        sizes = tuple(parse_size(part, what="--memory") for part in (bounds.groups() if bounds else text.split(",")))
    except InputError as problem:
        raise ProfileError(f"{problem}; write 20GB-250GB, or 20GB,60GB for just these") from None
    if min(sizes) <= 0:
        raise ProfileError(f"--memory {text}: sizes must be above 0")
    if bounds and sizes[0] >= sizes[1]:
        raise ProfileError(f"--memory {text}: the lower end comes first")
    return tuple(sorted(set(sizes))), bounds is not None


def dataset_of(text: str) -> tuple[Path | None, int]:
    """Parse a data set: a file or folder that is there, or a size."""
    path = Path(text)
    if path.exists():
        return path, 0
    try:
        size = parse_size(text, what="--dataset")
    except InputError:
        raise ProfileError(f"--dataset {text}: there is no such file or folder, and it is no size like 140GB") from None
    if size <= 0:
        raise ProfileError(f"--dataset {text}: must be above 0")
    return None, size


def pattern_of(text: str) -> "re.Pattern[str]":
    """Compile a regular expression; one that matches nothing at all is refused."""
    try:
        pattern = re.compile(text)
    except re.error as problem:
        raise ProfileError(f"--pattern {text!r} is no regular expression: {problem}") from None
    if pattern.match(""):
        raise ProfileError(f"--pattern {text!r} matches nothing at all, so everywhere; write it like 'step (\\d+)'")
    return pattern


def check_memory(memory: tuple[int, ...], gpus: int, limits: Limits) -> None:
    """Refuse sizes of memory a GPU that the machine cannot hold the program to."""
    if memory:
        whole = memory[-1] * gpus
        if whole > limits.memory_bytes and gpus > 1:
            raise ProfileError(
                f"--memory {format_size(memory[-1])} for each of {gpus} GPUs: "
                f"this machine has {format_size(limits.memory_bytes)}"
            )
        limits.check_memory(whole)

"""What the history of a serving run is made of: attempts at tasks, batches, and what was fetched ahead of both."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class BatchRun:
    """A batch on its worker."""

    lease: int
    worker: int
    function: int
    begin: int
    cpus: int
    slices: int
    members: list[tuple[int, int]] = field(default_factory=list)
    """(request, task)."""
    start: int = -1
    """When it began to compute; -1: it never did."""
    first_token: int = -1
    """When it had its first token; -1: never, or it does not generate."""
    end: int = -1
    """When it was done; -1: never."""
    lost: int = -1
    """When its worker failed under it."""
    inputs: int = -1
    """When the last input that it pulled had arrived."""
    loads: list[tuple[int, int]] = field(default_factory=list)
    """(model, how long it took)."""
    cold: int = 0
    """How long its process took to start; 0: there was one."""
    evicted: list[int] = field(default_factory=list)
    beside: tuple[int, ...] = ()
    """Functions of the batches that its worker had running when it began."""

    @property
    def tasks(self) -> int:
        """Return how many it holds."""
        return len(self.members)

    def until(self, horizon: int) -> int:
        """Return until when it held its worker; ``horizon`` where the tape ends first."""
        return self.end if self.end >= 0 else self.lost if self.lost >= 0 else max(self.begin, horizon)


@dataclass(slots=True)
class Attempt:
    """One attempt at a task."""

    request: int
    task: int
    ready: int = -1
    """When all that it waits for was done; -1: that has not come, or its inputs were lost again."""
    queues: list[tuple[int, int, int]] = field(default_factory=list)
    """Queues that it stood in: (worker, since, until); until is -1 while it does."""
    batch_run: BatchRun | None = None
    lost: int = -1
    """When it, or its result, was lost with a worker."""
    placed: int = -1
    """When it was first placed on a worker; -1: never in this attempt, or before the attempt began."""


@dataclass(slots=True)
class Prefetch:
    """Weights or a process that was asked for before any task needed it."""

    worker: int
    begin: int
    end: int
    """When it was loaded, or its worker failed, or the tape ended."""
    model: int = -1
    function: int = -1

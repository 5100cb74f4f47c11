"""Options of a server: how it runs its workers, and how long it waits for what."""

from dataclasses import dataclass
from pathlib import Path

from headway.units import MILLISECOND, SECOND

CUDA_CONTEXT_BYTES = 700_000_000
"""What a process with torch takes on a GPU besides its tensors (docs/background/results/h200-residency.md)."""

LOCAL, RAY = "local", "ray"
"""Engines: processes of this machine; replicas of Ray Serve."""
GRACE = 500 * MILLISECOND


@dataclass(frozen=True)
class Options:
    """How a server runs its workers."""

    app: Path
    folder: Path
    """Where weights and logs of this server lie."""
    devices: tuple[str, ...] = ("cpu",)
    """The device of each worker, in turn."""
    environments: tuple[dict[str, str], ...] = ({},)
    """What is set in the environment of each worker, in turn."""
    warm: bool = False
    """Whether workers run all tasks on their examples before they take requests."""
    cpus: tuple[tuple[int, ...], ...] = ((),)
    """The CPUs of each worker, in turn; empty: all."""
    context_bytes: int = 0
    """What a worker's process takes on its device besides models and activations; not in the books of models."""
    timeout: int = 60 * SECOND
    """For requests that give no deadline."""
    grace: int = GRACE
    """A request that is so much late is ended; an answer that comes in between is still given."""
    hang_after: int = 2 * SECOND
    """A batch that takes this long, and ten times what its function usually takes, hangs: its worker is killed. The
    first batches of a function, which may have to prepare something, may take ten times as long.
    """
    most_open: int = 10_000
    """More open requests than this are refused."""
    least_workers: int = 0
    """The server is ready with so many; others come and go as whoever runs them decides. 0: all of them."""
    guesses: str = ""
    """Which times of tasks nobody measured, and what measures them: told with deadlines that they do not allow."""
    start_within_s: float = 300.0
    """For workers to import the application and to build its models."""

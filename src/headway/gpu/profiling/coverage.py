"""Coverage of the shim: its count of a program's launches against CUPTI's, and its overhead for each launch."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headway.errors import ProfileError
from headway.gpu.profiling.cupti import COPY, join
from headway.gpu.profiling.recording import Recorded
from headway.gpu.profiling.run import Say, run


@dataclass(frozen=True, slots=True)
class Coverage:
    """``seen``: launches of kernels and graphs by the shim; ``counted``: by CUPTI; a graph is one launch to both.

    ``ns_a_launch`` is the time in the shim's hooks, as sampled, without the driver's own; 0 where none was sampled.
    """

    seen: int
    counted: int
    equal: bool
    ns_a_launch: int


def coverage(
    command: Sequence[str], seconds: float | None = None, *, library: Path, say: Say | None = None
) -> Coverage:
    """Run a command with the shim and CUPTI in it, and compare."""
    return coverage_of(run(command, seconds, library=library, say=say))


def coverage_of(recorded: Recorded) -> Coverage:
    """Return the coverage of a recording."""
    if not recorded.about.get("cupti"):
        raise ProfileError(f"coverage is not known: {recorded.about.get('why') or 'CUPTI is missing'}")
    seen = int(np.count_nonzero(recorded.launches["kind"] != COPY))
    counted = join(recorded).counted
    hooked = recorded.number("hooked")
    return Coverage(seen, counted, seen == counted, recorded.number("hook_ns") // hooked if hooked else 0)

"""Read and draw workloads: one reader a trace format, synthetic generators, and changes to jobs before a run.

What reads and writes files is imported when it is first asked for: a queue of real programs reads none, and runs on
machines without polars.
"""

from typing import TYPE_CHECKING

from headway.jobs.traces.trace import Dropped, Trace
from headway.jobs.traces.workloads.adjust import estimates, load_scale, offered_load
from headway.jobs.traces.workloads.philly_like import philly_like
from headway.jobs.traces.workloads.synergy_like import synergy_like, with_models
from headway.lazy import public

if TYPE_CHECKING:
    from headway.fleet.traces.registry import REQUEST_FORMATS, REQUEST_READERS, load_requests
    from headway.fleet.traces.trace import RequestTrace
    from headway.jobs.traces.readers.native import write
    from headway.jobs.traces.registry import FORMATS, guess, load

__all__ = [
    "FORMATS",
    "REQUEST_FORMATS",
    "REQUEST_READERS",
    "Dropped",
    "RequestTrace",
    "Trace",
    "estimates",
    "guess",
    "load",
    "load_requests",
    "load_scale",
    "offered_load",
    "philly_like",
    "synergy_like",
    "with_models",
    "write",
]
_LATER = {
    "RequestTrace": "fleet.traces.trace",
    "write": "jobs.traces.readers.native",
    **dict.fromkeys(("FORMATS", "guess", "load"), "jobs.traces.registry"),
    **dict.fromkeys(("REQUEST_FORMATS", "REQUEST_READERS", "load_requests"), "fleet.traces.registry"),
}
"""Names that need polars, and the modules they are in."""


__getattr__, __dir__, _ = public(__name__, _LATER)

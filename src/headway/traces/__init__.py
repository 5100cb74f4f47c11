"""Read and draw workloads: one reader a trace format, synthetic generators, and changes to jobs before a run.

What reads and writes files is imported when it is first asked for: a queue of real programs reads none, and runs on
machines without polars.
"""

from typing import TYPE_CHECKING, Any

from headway.traces.adjust import estimates, load_scale, offered_load
from headway.traces.request_trace import RequestTrace
from headway.traces.synthetic import philly_like
from headway.traces.synthetic_synergy import synergy_like, with_models
from headway.traces.trace import Dropped, Trace

if TYPE_CHECKING:
    from headway.traces.native import write
    from headway.traces.registry import FORMATS, guess, load
    from headway.traces.requests import REQUEST_FORMATS, REQUEST_READERS, load_requests

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
    "write": "native",
    **dict.fromkeys(("FORMATS", "guess", "load"), "registry"),
    **dict.fromkeys(("REQUEST_FORMATS", "REQUEST_READERS", "load_requests"), "requests"),
}
"""Names that need polars, and the modules they are in."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(f"headway.traces.{_LATER[name]}"), name)
    globals()[name] = found
    return found

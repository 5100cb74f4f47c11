"""Read and draw workloads: one reader a trace format, synthetic generators, and changes to jobs before a run."""

from headway.traces.adjust import estimates, load_scale, offered_load
from headway.traces.native import write
from headway.traces.registry import FORMATS, guess, load
from headway.traces.request_trace import RequestTrace
from headway.traces.requests import REQUEST_FORMATS, REQUEST_READERS, load_requests
from headway.traces.synthetic import philly_like
from headway.traces.synthetic_synergy import synergy_like, with_models
from headway.traces.trace import Dropped, Trace

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

"""Read traces of requests, and draw requests."""

from typing import TYPE_CHECKING

from headway.lazy import public

if TYPE_CHECKING:
    from headway.fleet.traces.registry import load_requests as load_requests
    from headway.fleet.traces.trace import RequestTrace as RequestTrace

_NAMES = {"load_requests": "fleet.traces.registry", "RequestTrace": "fleet.traces.trace"}
"""Every public name, and the module it is in; loaded when it is asked for."""

__getattr__, __dir__, __all__ = public(__name__, _NAMES)

"""Headway schedules shared GPUs: try any policy on your own trace, then run the same policy live.

``import headway as hw`` gives the verbs of the command line; ``docs/tutorials/python.md`` shows them. A name is
imported when it is first asked for: inside a training program this costs next to nothing.
"""

from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway.api import (
        Work as Work,
        backtest as backtest,
        compare as compare,
        environment as environment,
        fleet as fleet,
        gpu as gpu,
        jobs as jobs,
        open as open,
        plan as plan,
        predict as predict,
        run as run,
        simulate as simulate,
        sweep as sweep,
        synthetic as synthetic,
        tune as tune,
        work as work,
    )
    from headway.errors import (
        HeadwayError as HeadwayError,
        NoServerError as NoServerError,
        RequestError as RequestError,
        RequestLateError as RequestLateError,
        RequestLostError as RequestLostError,
        RequestRefusedError as RequestRefusedError,
        ServeError as ServeError,
        TaskFailedError as TaskFailedError,
        UnknownGraphError as UnknownGraphError,
    )
    from headway.fleet.live.client.client import AsyncClient as AsyncClient, client as client
    from headway.program.cached import CachedDataset as CachedDataset
    from headway.program.pipeline import graph as graph, model as model, task as task
    from headway.program.requests import request as request
    from headway.program.steps import step as step, steps as steps

__version__ = "0.1.0"

_NAMES = {
    **dict.fromkeys(
        (
            *("Work", "backtest", "compare", "environment", "fleet", "gpu", "jobs", "open", "plan", "predict", "run"),
            *("simulate", "sweep", "synthetic", "tune", "work"),
        ),
        "api",
    ),
    "AsyncClient": "fleet.live.client.client",
    "client": "fleet.live.client.client",
    **dict.fromkeys(
        (
            *("HeadwayError", "NoServerError", "RequestError", "RequestLateError", "RequestLostError"),
            *("RequestRefusedError", "ServeError", "TaskFailedError", "UnknownGraphError"),
        ),
        "errors",
    ),
    "CachedDataset": "program.cached",
    **dict.fromkeys(("graph", "model", "task"), "program.pipeline"),
    "request": "program.requests",
    "step": "program.steps",
    "steps": "program.steps",
}
"""Every public name, and the module it is in; loaded when it is asked for."""
_TREES = ("jobs", "fleet", "gpu")


class _Tree(ModuleType):
    """A package that can be called: as the function of its name in ``headway.api``."""

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Call the function."""
        from headway import api

        return getattr(api, self.__name__.rpartition(".")[2])(*given, **named)


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    if name in _TREES:
        return import_module(f"headway.{name}")
    found = getattr(import_module(f"headway.{_NAMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})

"""Headway schedules shared GPUs: try any policy on your own trace, then run the same policy live.

``import headway as hw`` gives the verbs of the command line; ``docs/python.md`` shows them. A name is imported when it
is first asked for: inside a training program this costs next to nothing.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway.api import Work as Work
    from headway.api import backtest as backtest
    from headway.api import compare as compare
    from headway.api import environment as environment
    from headway.api import fleet as fleet
    from headway.api import gpu as gpu
    from headway.api import jobs as jobs
    from headway.api import open as open
    from headway.api import plan as plan
    from headway.api import predict as predict
    from headway.api import run as run
    from headway.api import simulate as simulate
    from headway.api import sweep as sweep
    from headway.api import synthetic as synthetic
    from headway.api import work as work
    from headway.errors import HeadwayError as HeadwayError
    from headway.program.cached import CachedDataset as CachedDataset
    from headway.program.steps import step as step
    from headway.program.steps import steps as steps

__version__ = "0.1.0"

_NAMES = {
    **dict.fromkeys(
        (
            *("Work", "backtest", "compare", "environment", "fleet", "gpu", "jobs", "open", "plan", "predict", "run"),
            *("simulate", "sweep", "synthetic", "work"),
        ),
        "api",
    ),
    "HeadwayError": "errors",
    "CachedDataset": "program.cached",
    "step": "program.steps",
    "steps": "program.steps",
}
"""Every public name, and the module it is in; loaded when it is asked for."""


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(f"headway.{_NAMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})

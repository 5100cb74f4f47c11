"""Headway schedules shared GPUs: try any policy on your own trace, then run the same policy live."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway.program.cached import CachedDataset as CachedDataset
    from headway.program.steps import step as step
    from headway.program.steps import steps as steps

__version__ = "0.1.0"

_FOR_PROGRAMS = {"step": "steps", "steps": "steps", "CachedDataset": "cached"}
"""What a training program uses as ``headway.step()``, and the module it is in; loaded when it is asked for."""


def __getattr__(name: str) -> Any:
    if name not in _FOR_PROGRAMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(f"headway.program.{_FOR_PROGRAMS[name]}"), name)
    globals()[name] = found
    return found

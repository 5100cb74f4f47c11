"""Measure models and applications on a GPU, and write profiles of them."""

from typing import TYPE_CHECKING

from headway.lazy import public

if TYPE_CHECKING:
    from headway.fleet.profiling.model import measure as measure, write as write
    from headway.fleet.profiling.session import Effort as Effort, Grid as Grid

_NAMES = {
    **dict.fromkeys(("measure", "write"), "fleet.profiling.model"),
    **dict.fromkeys(("Effort", "Grid"), "fleet.profiling.session"),
}
"""Every public name, and the module it is in; loaded when it is asked for."""

__getattr__, __dir__, __all__ = public(__name__, _NAMES)

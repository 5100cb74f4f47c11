"""Measure a training program: its speed by CPUs and memory."""

from typing import TYPE_CHECKING

from headway.lazy import public

if TYPE_CHECKING:
    from headway.jobs.profiling.job import profile as profile

_NAMES = {
    "profile": "jobs.profiling.job",
}
"""Every public name, and the module it is in; loaded when it is asked for."""

__getattr__, __dir__, __all__ = public(__name__, _NAMES)

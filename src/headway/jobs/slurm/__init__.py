"""Parse text and JSON that Slurm prints: jobs, nodes, partitions, its configuration."""

from typing import TYPE_CHECKING

from headway.lazy import public

if TYPE_CHECKING:
    from headway.jobs.slurm.accounting.reader import history as history

_NAMES = {
    "history": "jobs.slurm.accounting.reader",
}
"""Every public name, and the module it is in; loaded when it is asked for."""

__getattr__, __dir__, __all__ = public(__name__, _NAMES)

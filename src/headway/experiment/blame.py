"""Whose fault an unexpected exception is: one that passed through a part from outside the package is its author's."""

import sys
from pathlib import Path
from traceback import walk_tb

from headway.errors import HeadwayError
from headway.kernels.policies import registry as kernels
from headway.serving.policies import registry as serving
from headway.training.policies import registry

MORE = "HEADWAY_DEBUG=1 shows all"


def blamed(problem: BaseException) -> str | None:
    """Where in a part that is not headway's own an exception came about, in one line; None if in none."""
    if isinstance(problem, HeadwayError):
        return None
    foreign = _foreign_modules()
    places = [
        (Path(frame.f_code.co_filename).name, line)
        for frame, line in walk_tb(problem.__traceback__)
        if frame.f_globals.get("__name__") in foreign
    ]
    if not places:
        return None
    file, line = places[-1]
    return f"{type(problem).__name__} in {file}, line {line}: {problem} ({MORE})"


def _foreign_modules() -> set[str]:
    """The modules of parts that were loaded from files or installed beside the package."""
    tables = (registry.ORDERS, registry.BACKFILLS, registry.PLACEMENTS, registry.MIGRATIONS, registry.ALLOCATIONS)
    parts: list[type] = [part for table in (*tables, serving.POLICIES, kernels.POLICIES) for part in table.values()]
    modules = {kind.__module__ for part in parts for kind in part.__mro__}
    return {name for name in modules if name.partition(".")[0] not in {"headway", *sys.stdlib_module_names}}

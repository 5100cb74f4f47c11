"""Decide whether an unexpected exception comes from code outside the package, such as a user's own policy."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb
from types import FrameType

from headway.errors import ExperimentError, HeadwayError, Terminated
from headway.plugins import TABLES, is_own

MORE = "HEADWAY_DEBUG=1 shows all"


def blamed(problem: BaseException) -> str | None:
    """Return where in a part that is not headway's own an exception came about, in one line; None if in none."""
    if isinstance(problem, HeadwayError | KeyboardInterrupt | Terminated):  # a signal comes wherever it comes
        return None
    foreign = _foreign_modules()
    places = [
        (frame, line) for frame, line in walk_tb(problem.__traceback__) if frame.f_globals.get("__name__") in foreign
    ]
    if not places:
        return None
    frame, line = places[-1]
    whose = [name for name in (_policy(frame, foreign) for frame, _ in reversed(places)) if name]
    told = f"policy {whose[0]}: " if whose else ""
    return f"{told}{type(problem).__name__} in {Path(frame.f_code.co_filename).name}, line {line}: {problem} ({MORE})"


@contextmanager
def own_code() -> Iterator[None]:
    """Raise what a user's own code raises within as one line."""
    try:
        yield
    except BaseException as problem:
        if (line := blamed(problem)) is None:
            raise
        raise ExperimentError(line) from problem


def _policy(frame: FrameType, foreign: Mapping[str, Sequence[str]]) -> str:
    """Return the name of the policy that a frame belongs to: that of its ``self``, or the only one of its module."""
    own = getattr(frame.f_locals.get("self"), "name", "")
    names = foreign[frame.f_globals["__name__"]]
    return str(own) if own in names else names[0] if len(names) == 1 else ""


def _foreign_modules() -> dict[str, list[str]]:
    """Return the modules of parts that were loaded from files or other packages, with the parts' names."""
    names: dict[str, list[str]] = {}
    for table in TABLES.values():
        for part in table.values():
            for module in {kind.__module__ for kind in part.__mro__ if not is_own(kind)}:
                names.setdefault(module, []).append(part.name)
    return names

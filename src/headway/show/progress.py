"""Show progress bars on stderr: of each run, of all runs together, of other tasks. None without a terminal."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

from rich.progress import BarColumn, Progress, ProgressColumn, TaskID, TimeElapsedColumn, TimeRemainingColumn

from headway.core.tasks import Far, Progress as Told
from headway.show.terminal import PlainColumn, err
from headway.units import format_duration

Tell = Callable[[str, float], None]
"""Told what is being done, and which share of all is done."""
MOST_BARS = 16
"""Of runs at a time; there may be more of them than a terminal has lines."""


class Board:
    """The bars of some runs; a bar for all of them where there are several."""

    def __init__(self, total: int, what: str = "runs", done: int = 0) -> None:
        self.shown = _is_seen()
        self.total = total
        self.what = what
        self.done = done
        self._before = done
        self._parts: dict[int, float] = {}
        self._bars: dict[int, TaskID] = {}
        self._all: TaskID | None = None
        self._bar = _bar(TimeRemainingColumn(compact=True))

    def __enter__(self) -> "Board":
        self._bar.start()
        if self.total > 1:
            self._all = self._bar.add_task(f"all {self.total:,} {self.what}", total=self.total - self._before, at="")
            self._overall()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, at: TracebackType | None
    ) -> None:
        self._bar.stop()

    def teller(self, key: int, name: str) -> Told | None:
        """Return the function that a run reports its progress to; None where no terminal is attached."""
        if not self.shown:
            return None
        return lambda far: self.tell(key, name, far)

    def tell(self, key: int, name: str, far: Far | None) -> None:
        """Show how far a run is; None: it has begun."""
        self._parts[key] = 0.0 if far is None else far.share
        self._overall()
        if key not in self._bars:
            if len(self._bars) >= MOST_BARS:
                return
            self._bars[key] = self._bar.add_task(name, total=None if far is None else 1.0, at="at work")
        if far is not None:
            self._bar.update(self._bars[key], completed=far.share, at=_at(far))

    def ended(self, key: int) -> None:
        """Note that a run is done, or given up."""
        self.done += 1
        self._parts.pop(key, None)
        if key in self._bars:
            self._bar.remove_task(self._bars.pop(key))
        self._overall()

    def _overall(self) -> None:
        if self._all is not None:
            along = self.done - self._before + sum(self._parts.values())
            at = f"{self.done:,} of {self.total:,} {self.what} done, {len(self._parts):,} at work"
            self._bar.update(self._all, completed=along, at=at)


def _at(far: Far) -> str:
    """Return the short text beside a bar: the time of the trace, until all have arrived, and the jobs."""
    when = f"{format_duration(far.now)} of {format_duration(far.last)}" if far.now < far.last else "all arrived"
    return f"{when} · {math.floor(100 * far.share)} % ended, {far.waiting:,} wait, {far.running:,} run"


@contextmanager
def progress_bar(name: str) -> Iterator[Told | None]:
    """Yield the function that one run reports its progress to; None where no terminal is attached."""
    with Board(1) as board:
        yield board.teller(0, name)


@contextmanager
def share_bar(name: str) -> Iterator[Tell]:
    """Yield the function that other work reports to: what is being done, and which share of all is done."""
    with _bar() as bar:
        task = bar.add_task(name, total=1.0, at="")
        yield lambda what, share: bar.update(task, completed=share, at=what)


def _is_seen() -> bool:
    return err().is_terminal or err().is_jupyter


def _bar(*more: ProgressColumn) -> Progress:
    """Return bars, each with a name, a text ``at`` and the time it took; nothing is drawn where nobody looks."""
    columns = (PlainColumn("{task.description}"), BarColumn(), PlainColumn("{task.fields[at]}"), TimeElapsedColumn())
    return Progress(*columns, *more, console=err(), transient=True, disable=not _is_seen())

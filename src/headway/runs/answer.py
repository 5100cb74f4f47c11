"""Hold the answer to a question: plain values for a program, lines and tables for a person."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table


Early = Callable[[Sequence[str]], None] | None
"""Told the first lines of an answer as soon as they are known."""


class Answer:
    """What came of a question; in a notebook and a terminal it shows itself."""

    def __init__(
        self, record: Any, shown: "Sequence[str | Table]", notes: Sequence[str] = (), *, stopped: str = ""
    ) -> None:
        self._record = record
        self.shown = list(shown)
        """Lines and tables, in the order in which they are read."""
        self.notes = list(notes)
        """What else a reader should know, a line each."""
        self.stopped = stopped
        """What is missing, where Ctrl-C ended it; the rest is whole."""

    def record(self) -> Any:
        """Return it as JSON has it."""
        return self._record

    def lines(self) -> list[str]:
        """Return it as a person reads it, without the notes."""
        from headway.show import frames

        return [line for part in self.shown for line in ([part] if isinstance(part, str) else frames.lines(part))]

    def __repr__(self) -> str:
        return "\n".join([*self.lines(), *self.notes])

    def _repr_html_(self) -> str:
        from headway.show import frames

        return frames.html(repr(self))


def spaced(tables: "Sequence[Table]") -> "list[str | Table]":
    """Return tables with an empty line between them."""
    return [part for table in tables for part in ("", table)][1:]

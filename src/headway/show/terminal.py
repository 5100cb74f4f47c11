"""Draw tables and progress bars in a terminal. All data is shown as plain text: no markup, controls escaped."""

from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.progress import Task, TextColumn
from rich.table import Table
from rich.text import Text

from headway.errors import printable

_WIDEST = 100_000


class PlainConsole(Console):
    """A console to which strings are text."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return a string as it is, on one line; cells, headings and titles of tables pass through here."""
        return super().render_str(printable(text), **options)


class PlainColumn(TextColumn):
    """Words in a progress bar, as they are."""

    def __init__(self, template: str) -> None:
        super().__init__(template, markup=False)

    def render(self, task: Task) -> Text:
        """Return the words about a task."""
        return Text(printable(self.text_format.format(task=task)), style=self.style, justify=self.justify)


def framed(left: Sequence[str], right: Sequence[str], title: str = "") -> Table:
    """Return an empty table with these columns, those of words on the left and those of numbers on the right."""
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for position, name in enumerate((*left, *right)):
        table.add_column(name, justify="left" if position < len(left) else "right", no_wrap=True)
    return table


def fitted(make: Callable[[Sequence[str]], Table], expendable: Sequence[str], width: int) -> tuple[Table, int]:
    """Return a table that is no wider than this, and how many of the expendable columns it does without."""
    for count in range(len(expendable) + 1):
        table = make(expendable[:count])
        if width_of(table) <= width:
            break
    return table, count


def width_of(table: Table) -> int:
    """Return how wide a table is when no cell of it is cut."""
    return PlainConsole(width=_WIDEST, height=25).measure(table).maximum


def err() -> PlainConsole:
    """Return the console for progress bars: stderr, or the notebook."""
    return PlainConsole(stderr=True)

"""Where data meets a terminal: text is shown as it is. No brackets are markup, no ``:name:`` is an emoji, and control
characters come out as escapes. Every table and progress bar of the program is drawn by what is here."""

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
        """A string as it is, on one line; cells, headings and titles of tables pass through here."""
        return super().render_str(printable(text), **options)


class PlainColumn(TextColumn):
    """Words in a progress bar, as they are."""

    def __init__(self, template: str) -> None:
        super().__init__(template, markup=False)

    def render(self, task: Task) -> Text:
        """The words about a task."""
        return Text(printable(self.text_format.format(task=task)), style=self.style, justify=self.justify)


def width_of(table: Table) -> int:
    """How wide a table is when no cell of it is cut."""
    return PlainConsole(width=_WIDEST, height=25).measure(table).maximum


def err() -> PlainConsole:
    """Return the console for progress bars: stderr, or the notebook."""
    return PlainConsole(stderr=True)

"""Parse the tables that ``sacctmgr`` and ``sshare`` print with ``-P`` or ``-p``: headings, then cells between ``|``."""

from collections.abc import Iterator
from typing import NamedTuple

from headway.errors import ExperimentError

_ALIASES = {
    "defqos": "defaultqos",
    "share": "fairshare",
    "defacct": "defaultaccount",
    "nodes": "nodename",
    "start": "timestart",
    "end": "timeend",
    "parent": "parentname",
}


class Row(NamedTuple):
    """One line of a table."""

    place: str
    """Where it stands, for errors."""
    cells: dict[str, str]
    """By heading, in lower case and without blanks; a cell keeps the blanks in front of it."""

    def text(self, heading: str) -> str:
        """Return a cell without blanks around it; empty where the table has no such column."""
        return self.cells.get(heading, "").strip()


def headings(text: str) -> tuple[str, ...]:
    """Return the headings of a table, in lower case and without blanks; none where a text is no such table."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    if "|" not in first:
        return ()
    words = ("".join(word.lower().split()) for word in first.rstrip("|").split("|"))
    return tuple(_ALIASES.get(word, word) for word in words)


def rows(text: str, where: str) -> Iterator[Row]:
    """Yield the rows of a table below its headings."""
    names = headings(text)
    doubled = next((name for name in names if names.count(name) > 1), None)
    if doubled is not None:
        raise ExperimentError(f"{where}: the column {doubled!r} occurs twice")
    begun = False
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        if not begun:
            begun = True
            continue
        cells = line.replace(" || ", " or ").split("|")  # transactions name several associations so
        if len(cells) == len(names) + 1 and not cells[-1].strip():
            cells.pop()  # -p ends each line in a separator
        if len(cells) != len(names):
            counts = f"{len(cells)} cells, and there are {len(names)} headings"
            raise ExperimentError(f"{where}: line {number}: has {counts}: print it with -P")
        yield Row(f"{where}: line {number}", dict(zip(names, cells, strict=True)))

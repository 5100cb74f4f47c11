"""Print results on stdout and everything else on stderr.

What is printed holds names from traces and files, so it is text: tables go to ``out()``, lines to ``say`` and ``note``.
"""

import json
import sys
from typing import Any

from rich.table import Column

from headway.errors import printable
from headway.show.terminal import PlainConsole

PLAIN_WIDTH = 180
"""Columns of a table that does not go to a terminal."""


def out(least: int = 0) -> PlainConsole:
    """Return where tables go; at least so wide, whatever the terminal says: it wraps lines, and nothing is cut."""
    width = PlainConsole().width if sys.stdout.isatty() else PLAIN_WIDTH
    return PlainConsole(width=max(width, least), height=25)  # without a height a dumb terminal has 80 columns


def right(*names: str) -> list[Column]:
    """Return columns of numbers for a table."""
    return [Column(name, justify="right") for name in names]


def say(*lines: str) -> None:
    """Print lines on stdout, with control characters escaped."""
    sys.stdout.write("".join(f"{printable(line)}\n" for line in lines))


def note(line: str) -> None:
    """Print one line on stderr, with control characters escaped."""
    sys.stderr.write(f"{printable(line)}\n")


def print_json(value: Any) -> None:
    """Print one value as JSON, the only thing on stdout."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")

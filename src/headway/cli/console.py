"""The two streams: results on stdout, everything else on stderr; and how a run's outcome is printed."""

import json
import sys
from typing import Any

from rich.console import Console

PLAIN_WIDTH = 180
"""Columns of a table that does not go to a terminal."""


def out(least: int = 0) -> Console:
    """Where results go; at least so wide, whatever the terminal says: it wraps lines, and nothing is cut."""
    width = Console().width if sys.stdout.isatty() else PLAIN_WIDTH
    return Console(width=max(width, least), height=25)  # without a height a dumb terminal has 80 columns


def err() -> Console:
    """Where everything else goes."""
    return Console(stderr=True)


def note(line: str) -> None:
    """One line on stderr, as it is."""
    sys.stderr.write(f"{line}\n")


def print_json(value: Any) -> None:
    """One value, the only thing on stdout."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")

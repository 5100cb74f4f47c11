"""A bounded cache for results that are expensive to compute and often asked for. A full cache is cleared."""

from collections.abc import Callable
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


def cached(known: dict[Key, Value], key: Key, make: Callable[[], Value], most: int = 1 << 16) -> Value:
    """Return the cached value of a key; make and cache it if there is none. A full cache is cleared first."""
    if key not in known:
        if len(known) >= most:
            known.clear()
        known[key] = make()
    return known[key]

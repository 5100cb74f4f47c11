"""Results that take long to find and are asked for often: they are remembered by a key, up to so many of them."""

from collections.abc import Callable
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


def cached(known: dict[Key, Value], key: Key, make: Callable[[], Value], most: int = 1 << 16) -> Value:
    """Return what is known for a key, made now if it is not; everything is forgotten when there would be too much."""
    if key not in known:
        if len(known) >= most:
            known.clear()
        known[key] = make()
    return known[key]

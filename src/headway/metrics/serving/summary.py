"""Placeholder of the lead until the real one is written over it."""

from typing import Any


def summarise(*_: Any, **__: Any) -> dict[str, Any]:
    """Not there yet."""
    raise NotImplementedError


def messages(*_: Any) -> int:
    """Not there yet."""
    raise NotImplementedError

"""Requests that a program marks itself, so that sharing measures these and not the steps between its waits.

The shim that ``headway share run`` loads has the two functions; without it, marking does nothing.
"""

import ctypes
from collections.abc import Callable
from typing import Any, Self

_marks: tuple[Callable[[], Any], Callable[[], Any]] | bool | None = False
"""Functions of the shim; None where there is none; False before it was looked for."""


def _look() -> tuple[Callable[[], Any], Callable[[], Any]] | None:
    """Return the two functions of the shim, if it is loaded into this process."""
    try:
        process = ctypes.CDLL(None)
        return process.headway_request_begin, process.headway_request_end
    except (OSError, AttributeError):
        return None


class request:  # noqa: N801 - it reads as a verb: with headway.request():
    """Mark one request of a program that shares a GPU: ``with headway.request(): ...``.

    Its time, from the beginning of the block to its end, is what ``headway share`` holds to the slow-down that is aimed
    at. A request within another one is part of it. Outside of ``headway share run`` this does nothing.
    """

    __slots__ = ()

    def __enter__(self) -> Self:
        global _marks
        if _marks is False:
            _marks = _look()
        if isinstance(_marks, tuple):
            _marks[0]()
        return self

    def __exit__(self, *error: object) -> None:
        if isinstance(_marks, tuple):
            _marks[1]()

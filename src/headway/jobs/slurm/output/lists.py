"""Expand Slurm's short forms of lists: hosts ``n[01-16,20],m3`` and tasks of an array ``5-10,20-30:2%4``."""

import re
from collections.abc import Iterator
from itertools import product
from math import prod

from headway.errors import InputError
from headway.jobs.slurm.output.cells import absent

MOST = 1_000_000
"""More names than this in one list are taken for a slip."""
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?(?::(\d{1,18}))?")
_PIECE = re.compile(r"([^\[\],]*)\[([^\[\]]*)\]|([^\[\],]+)")


def hosts(text: str) -> tuple[str, ...]:
    """Return the names in a list of hosts, in its order; leading zeros are kept, brackets may stand several times."""
    if absent(text):
        return ()
    return tuple(name for part in _parts(text.strip()) for name in _names(part, text))


def tasks(text: str) -> tuple[int, ...]:
    """Return the tasks of an array, without the ``%4`` that says how many of them may run at a time."""
    return tuple(int(number) for number in _numbers(text.partition("%")[0], text))


def _parts(text: str) -> Iterator[str]:
    """Cut a list at the commas that are not inside brackets."""
    depth = start = 0
    for position, letter in enumerate(text):
        depth += {"[": 1, "]": -1}.get(letter, 0)
        if depth not in (0, 1):
            raise InputError(f"list {text!r} is not understood: its brackets do not match")
        if letter == "," and not depth:
            yield text[start:position]
            start = position + 1
    if depth:
        raise InputError(f"list {text!r} is not understood: its brackets do not match")
    yield text[start:]


def _names(part: str, text: str) -> list[str]:
    choices = [
        [plain] if plain else [f"{prefix}{number}" for number in _numbers(inside, text)]
        for prefix, inside, plain in _PIECE.findall(part)
    ]
    if not choices or prod(map(len, choices)) > MOST:
        raise InputError(
            f"list {text!r} is not understood: it has {'an empty name' if not choices else 'too many names'}"
        )
    return ["".join(each) for each in product(*choices)]


def _numbers(inside: str, text: str) -> list[str]:
    numbers: list[str] = []
    for part in inside.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise InputError(f"list {text!r} is not understood: {part!r} is no number and no range like 01-16")
        first, last, step = match[1], match[2] or match[1], int(match[3] or 1)
        if not step or int(last) < int(first) or (int(last) - int(first)) // step + len(numbers) >= MOST:
            raise InputError(f"list {text!r} is not understood: {part!r} is no range that can be counted")
        width = len(first) if len(first) == len(last) or first.startswith("0") else 0
        numbers.extend(f"{number:0{width}d}" for number in range(int(first), int(last) + 1, step))
    return numbers

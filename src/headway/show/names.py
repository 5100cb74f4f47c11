"""Shorten the names of runs to fit tables and figures, keeping them distinct."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from headway.errors import printable

LONGEST = 40
_OPTIONS = re.compile(r"\(([^()]*)\)")
_LEFT_OUT = "(…)"


def labels(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the label of each run: its variant, with the policy where several share it, else its policy."""
    variants = [str(row.get("variant") or "") for row in rows]
    count = Counter(variants)
    return [
        f"{row['policy']}, {variant}" if variant and count[variant] > 1 else variant or str(row["policy"])
        for row, variant in zip(rows, variants, strict=True)
    ]


def shortened(names: Sequence[str]) -> list[str]:
    """Return policy names without options where they are too long, but with the options that tell them apart.

    ``multifactor(fairshare_weight=4000, …)+easy`` becomes ``multifactor(…)+easy``; beside one that differs in
    nothing but ``fairshare_weight``, ``multifactor(fairshare_weight=4000, …)+easy``.
    """
    parts = [name if len(name) <= LONGEST else _OPTIONS.sub(_LEFT_OUT, name) for name in names]
    alike = {part: [name for name, other in zip(names, parts, strict=True) if other == part] for part in parts}
    return [
        _distinguishing(name, alike[part]) if name != part else name for name, part in zip(names, parts, strict=True)
    ]


def _distinguishing(name: str, alike: Sequence[str]) -> str:
    """Return a name without the options that all names with the same parts share."""
    options = [[_split(each[1]) for each in _OPTIONS.finditer(other)] for other in alike]
    brackets_of_name = iter(_split(each[1]) for each in _OPTIONS.finditer(name))
    brackets = iter(zip(*options, strict=True))

    def bracket(_found: re.Match[str]) -> str:
        given, others = next(brackets_of_name), next(brackets)
        kept = [option for option in given if not all(option in other for other in others)]
        return f"({', '.join([*kept, '…'] if len(kept) < len(given) else kept)})"

    return _OPTIONS.sub(bracket, name)


def _split(options: str) -> list[str]:
    return re.split(r",\s*", options) if options else []


def cut_distinct(names: Sequence[str], most: int) -> list[str]:
    """Return names of at most ``most`` letters, on one line; names that would become equal end in their number."""
    lines = [printable(" ".join(name.split())) for name in names]
    cut = [_cut(line, most) for line in lines]
    numbers = [f" #{index + 1}" for index in range(len(names))]
    return [
        short if cut.count(short) == 1 or short == line else f"{_cut(line, most - len(number))}{number}"
        for line, short, number in zip(lines, cut, numbers, strict=True)
    ]


def _cut(line: str, most: int) -> str:
    return line if len(line) <= most else f"{line[: most - 1]}…"

"""Damage to texts, tables, documents and bytes, drawn from a random stream."""

import json
import math
from random import Random
from typing import Any

NUMBERS = ("nan", "-1", "1e308", "", "0", "-0.0", "inf", "-inf", "1e-308", "99999999999999999999999", "1.5", "0x1F")
WORDS = (
    *(
        " ",
        "\u00bd",
        "\u0663",
        "\u202etxet",
        "\U0001f642",
        "a" * 300,
        "[bold]x[/]",
        "[/]",
        "{}",
        "%s",
        "../..",
        "~",
        "-",
    ),
    *(
        "None",
        "null",
        "true",
        "1,5",
        "1;2",
        "=",
        "a=b",
        '"',
        "'",
        "\t",
        "1_000",
        "1e5",
        "10%",
        "1ns",
        "1000000y",
        "NaN",
    ),
)
IN_FILES = ("\x00", "a\x00b", "\ufeff", "\r", "a\nb", "\x1b[31m")
"""What a file can hold and a command line cannot."""
VALUES: tuple[Any, ...] = (
    *(math.nan, math.inf, -math.inf, -1, 0, 1e308, 5e-324, 2**63, -(2**63) - 1, 10**30, 0.5, True, False),
    *("", "nan", "-1", "x", "1ns", "\u00bd", "a" * 300, "[bold]", [], [[]], {}, {"x": 1}, [1, "a"], [math.nan], "\x00"),
)


def number(draw: Random) -> str:
    """A number that is none, or is not meant."""
    return draw.choice(NUMBERS)


def word(draw: Random) -> str:
    """Something that a user could type by mistake."""
    return draw.choice(NUMBERS + WORDS)


def typed(draw: Random) -> str:
    """Give the same, or now and then what is no text at all."""
    return "\udcff" if draw.random() < 0.03 else word(draw)


def text(draw: Random, whole: str) -> str:
    """A text with one to three things wrong."""
    for _ in range(draw.randint(1, 3)):
        whole = draw.choice((_cut, _swap, _double, _put, _drop_line, _digit, _newlines))(draw, whole)
    return whole


def _cut(draw: Random, whole: str) -> str:
    return whole[: draw.randint(0, len(whole))]


def _swap(draw: Random, whole: str) -> str:
    lines = whole.splitlines(keepends=True)
    draw.shuffle(lines)
    return "".join(lines)


def _double(draw: Random, whole: str) -> str:
    lines = whole.splitlines(keepends=True)
    return "".join([*lines, *draw.choices(lines, k=2)]) if lines else whole


def _put(draw: Random, whole: str) -> str:
    at = draw.randint(0, len(whole))
    return whole[:at] + draw.choice((*NUMBERS, *WORDS, *IN_FILES)) + whole[at:]


def _drop_line(draw: Random, whole: str) -> str:
    lines = whole.splitlines(keepends=True)
    if lines:
        del lines[draw.randrange(len(lines))]
    return "".join(lines)


def _digit(draw: Random, whole: str) -> str:
    """Another number in the place of one."""
    places = [at for at, sign in enumerate(whole) if sign.isdigit()]
    if not places:
        return whole
    at = end = draw.choice(places)
    while end < len(whole) and whole[end].isdigit():
        end += 1
    return whole[:at] + number(draw) + whole[end:]


def _newlines(draw: Random, whole: str) -> str:
    return whole.replace("\n", draw.choice(("\r\n", "\r", "\n\n", "")))


def table(draw: Random, whole: str, separator: str) -> str:
    """A table with one to three cells, rows or columns wrong."""
    rows = [line.split(separator) for line in whole.splitlines()]
    for _ in range(draw.randint(1, 3)):
        if len(rows) < 2:
            break
        row, column = draw.randrange(1, len(rows)), draw.randrange(len(rows[0]))
        match draw.randint(0, 5):
            case 0 | 1 | 2 if column < len(rows[row]):
                rows[row][column] = draw.choice((*NUMBERS, *WORDS, *IN_FILES))
            case 3:
                rows[0][column] = word(draw)
            case 4:
                del rows[row]
            case _:
                rows[row] = rows[row][: draw.randint(0, len(rows[row]))] + ["x"] * draw.randint(0, 2)
    return "\n".join(separator.join(row) for row in rows) + "\n"


def document(draw: Random, whole: dict[str, Any]) -> dict[str, Any]:
    """A document with one to three keys or values wrong, at any depth."""
    changed: dict[str, Any] = json.loads(json.dumps(whole))
    for _ in range(draw.randint(1, 3)):
        places = list(_places(changed))
        if not places:
            return changed
        holder, key = draw.choice(places)
        match draw.randint(0, 6):
            case 0 if isinstance(holder, dict):
                holder[draw.choice((*WORDS, "nmae", "name", "nodes", "x"))] = holder.pop(key)
            case 1:
                del holder[key]
            case 2 if isinstance(holder, dict):
                holder[draw.choice(("nodes", "name", "count", "extra", ""))] = draw.choice(VALUES)
            case 3 if isinstance(holder, list):
                holder.append(holder[key])
            case _:
                holder[key] = draw.choice(VALUES)
    return changed


def _places(inner: Any) -> Any:
    """(holder, key) of everything in a document."""
    if isinstance(inner, dict | list):
        keys = list(inner) if isinstance(inner, dict) else range(len(inner))
        for key in keys:
            yield inner, key
            yield from _places(inner[key])


def flipped(draw: Random, whole: bytes) -> bytes:
    """Bytes of which one to four are others, or the end is missing."""
    if not whole or draw.random() < 0.25:
        return whole[: draw.randint(0, max(0, len(whole) - 1))]
    changed = bytearray(whole)
    for _ in range(draw.randint(1, 4)):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)

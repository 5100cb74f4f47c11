"""Write a document as TOML, with the standard library alone: a profiler may run where little else is installed."""

import re
from collections.abc import Mapping
from typing import Any

from headway.errors import InputError

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def write(document: Mapping[str, Any]) -> str:
    """Return a document as text that reads back equal.

    Values come first, then its tables; lists of lists and of tables have a line each. None is left out.
    """
    lines: list[str] = []
    _table(document, (), lines)
    return "\n".join(lines).strip() + "\n"


def _table(table: Mapping[str, Any], path: tuple[str, ...], lines: list[str]) -> None:
    inner = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    plain = {key: value for key, value in table.items() if key not in inner and value is not None}
    if path and (plain or not inner):
        lines.extend(("", f"[{'.'.join(map(_key, path))}]"))
    lines.extend(f"{_key(key)} = {_value(value)}" for key, value in plain.items())
    for key, value in inner.items():
        _table(value, (*path, key), lines)


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _value(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return (
            '"' + "".join(_ESCAPES.get(c, c if c >= " " and c != "\x7f" else f"\\u{ord(c):04X}") for c in value) + '"'
        )
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items() if v is not None) + "}"
    if isinstance(value, list | tuple):
        items = [_value(item) for item in value]
        if any(isinstance(item, Mapping | list | tuple) for item in value):
            return "[\n" + "".join(f"    {item},\n" for item in items) + "]"
        return "[" + ", ".join(items) + "]"
    raise InputError(f"{value!r} cannot be written as TOML")

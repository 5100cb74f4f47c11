"""Read and write TOML: parse a file, override keys, check it against typed tables, write it back.

A document is checked against ``msgspec`` structs. Whatever is wrong with it is one ``ExperimentError`` line that names
the key, the value and the rule; an unknown key gets the nearest valid one. The writer (``toml_text.py``) covers
what documents hold (tables, arrays, text, numbers, booleans): the standard library only reads.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from datetime import date, time
from math import isfinite
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import msgspec

from headway.errors import ExperimentError, unknown_name
from headway.formats.toml_text import write as write

Document = dict[str, Any]
StructT = TypeVar("StructT", bound=msgspec.Struct)
_DOT = re.compile(r'\.(?=(?:[^"]*"[^"]*")*[^"]*$)')
"""A dot that does not stand in quotes."""


def read(path: Path, what: str = "experiment") -> Document:
    """Return the document in a file, which is called ``what`` where it cannot be read."""
    try:
        return loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ExperimentError(f"{what} {path}: there is no such file") from None
    except UnicodeDecodeError:
        raise ExperimentError(f"{what} {path}: is not UTF-8 text") from None
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem).splitlines()[0]
        raise ExperimentError(f"{what} {path}: cannot be read ({reason})") from None


def loads(text: str) -> Document:
    """Return the document in a text, or raise a ValueError; a date or time, which no key has, is text as it stands."""
    try:
        document: Document = _without_dates(tomllib.loads(text))
    except RecursionError:
        raise ValueError("tables or lists are nested too deep") from None
    return document


def _without_dates(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_dates(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_without_dates(each) for each in value]
    return value.isoformat() if isinstance(value, date | time) else value


def value_of(text: str) -> Any:
    """Return a value as TOML, or as plain text where it is none."""
    try:
        return loads(f"value = {text}")["value"]
    except ValueError:
        return text.strip()


def override(document: Document, assignment: str) -> None:
    """Set a key of a document from ``policy.name=srtf``; the value is TOML, or plain text where it is none."""
    key, equals, text = assignment.partition("=")
    if not equals or not key.strip():
        raise ExperimentError(f"--set {assignment!r} is not understood: write it like policy.name=srtf")
    put(document, key.strip(), value_of(text))


def put(document: Document, key: str, value: Any) -> None:
    """Set a dotted key; tables on the way are made. A name with dots in it stands in quotes: ``shares."a.b"``."""
    *tables, last = (name.strip('"') for name in _DOT.split(key))
    at = document
    for name in tables:
        at = at.setdefault(name, {})
        if not isinstance(at, dict):
            raise ExperimentError(f"key {key!r}: {name!r} is a value, not a table")
    at[last] = value


def quoted(name: str) -> str:
    """Return a name as it stands in a dotted key: in quotes where it has dots itself."""
    return f'"{name}"' if "." in name else name


def leaves(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted keys of a table and their values."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{quoted(key)}.")
        else:
            yield f"{prefix}{quoted(key)}", value


def typed(document: Document, kind: type[StructT], where: str) -> StructT:
    """Return a document as its struct. No number in it may be nan or infinite, and no text may hold a NUL."""
    _known(document, kind, "", where)
    try:
        made = msgspec.convert(document, kind)
    except msgspec.ValidationError as wrong:
        rule, _, place = str(wrong).partition(" - at `$.")
        place = place.rstrip("`")
        if missing := re.fullmatch(r"Object missing required field `(.+)`", rule):
            raise ExperimentError(f"{where}: {f'{place}: ' if place else ''}key {missing[1]!r} is missing") from None
        value = _at(document, place)
        raise ExperimentError(f"{where}: {place or 'the document'} is {value!r}: {_plain(rule)}") from None
    _check_values(made, "", where)
    return made


def _plain(rule: str) -> str:
    words = {"str": "text", "int": "a whole number", "float": "a number", "bool": "true or false"}
    kinds = {**words, "array": "a list", "object": "a table"}

    def said(match: re.Match[str]) -> str:
        return " or ".join(kinds.get(kind, kind) for kind in match.group(1).split(" | ") if kind != "null")

    return re.sub(r"`([a-z| ]+)`", said, rule[:1].lower() + rule[1:])


def _at(document: Any, place: str) -> Any:
    for step in re.findall(r"[^.\[\]]+", place):
        try:
            document = document[int(step) if step.isdigit() and isinstance(document, list) else step]
        except (KeyError, IndexError, TypeError):
            return None
    return document


def _known(value: Any, kind: Any, prefix: str, where: str) -> None:
    """Refuse keys that a struct does not have, at any depth."""
    if get_origin(kind) in (Union, UnionType):
        kind = next((choice for choice in get_args(kind) if _is_struct(choice)), None)
    if get_origin(kind) is list and isinstance(value, list):
        for item in value:
            _known(item, get_args(kind)[0], prefix, where)
    if not _is_struct(kind) or not isinstance(value, dict):
        return
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    for key, inner in value.items():
        if key not in fields:
            what = f"key of [{prefix.rstrip('.')}]" if prefix else "table or key"
            raise ExperimentError(f"{where}: {unknown_name(what, key, fields)}")
        _known(inner, fields[key], f"{prefix}{key}.", where)


def _check_values(value: Any, place: str, where: str) -> None:
    """Refuse nan, infinite numbers and NUL in text, at any depth; tables of anything are checked when typed."""
    if isinstance(value, float) and not isfinite(value):
        raise ExperimentError(f"{where}: {place} is {value}: must be a finite number")
    if isinstance(value, str) and "\0" in value:  # no file and no program can be called so
        raise ExperimentError(f"{where}: {place} is {value!r}: must not hold the character NUL")
    inner: list[tuple[str, Any]] = []
    if isinstance(value, msgspec.Struct):
        fields = [field for field in msgspec.structs.fields(value) if "Any" not in str(field.type)]
        inner = [(f"{place}.{field.encode_name}", getattr(value, field.name)) for field in fields]
    elif isinstance(value, dict):
        inner = [(f"{place}.{key}", item) for key, item in value.items()]
    elif isinstance(value, list):
        inner = [(f"{place}[{index}]", item) for index, item in enumerate(value)]
    for at, item in inner:
        _check_values(item, at.lstrip("."), where)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)

"""Turn what programs hold into what travels to a server and back: JSON values, and bytes.

Over the local socket a value is msgpack, which has bytes. Over HTTP it is JSON, where bytes are an object with the one
key ``base64``. Nothing is unpickled on either way.
"""

from base64 import b64decode, b64encode
from types import NoneType
from typing import Any

import msgspec

from headway.errors import ServeError

MOST_ELEMENTS = 1_000_000
"""Of an array that becomes a list: about 20 MB of JSON."""
BYTES = "base64"
_ATOMS = frozenset((NoneType, bool, int, float, str, bytes))
_TOO_DEEP = "is nested too deeply"


def plain(value: Any) -> Any:
    """Return a value as None, bool, int, float, str, bytes, and lists and dicts of them; raise ServeError otherwise.

    Arrays and tensors become lists. Keys become text, as they are in JSON.
    """
    if type(value) in _ATOMS:
        return value
    try:
        return _plain(value)
    except RecursionError:
        raise ServeError(f"a {_kind(value)} {_TOO_DEEP} to travel") from None


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is list or kind is tuple:
        return [each if type(each) in _ATOMS else _plain(each) for each in value]
    if kind is dict:
        return {
            key if type(key) is str else _key(key): each if type(each) in _ATOMS else _plain(each)
            for key, each in value.items()
        }
    if kind in (bytearray, memoryview):
        return bytes(value)
    if callable(listed := getattr(value, "tolist", None)):
        return _listed(value, listed)
    try:
        return msgspec.to_builtins(value, builtin_types=(bytes,), str_keys=True, enc_hook=_plain_inside)
    except (TypeError, ValueError) as problem:
        raise ServeError(f"a {_kind(value)} does not travel: {problem}") from None


def _plain_inside(value: Any) -> Any:
    """Return an array inside a dataclass or set as a list; refuse what has no form as JSON."""
    if callable(listed := getattr(value, "tolist", None)):
        return _listed(value, listed)
    raise TypeError(f"{_kind(value)} is neither JSON nor bytes")


def _listed(value: Any, listed: Any) -> Any:
    """Return an array, tensor or scalar of one as lists and numbers."""
    shape = tuple(getattr(value, "shape", ()))
    elements = 1
    for side in shape:
        elements *= int(side)
    if elements > MOST_ELEMENTS:
        raise ServeError(
            f"a {_kind(value)} of {elements:,} elements is too large to travel as a list (at most {MOST_ELEMENTS:,}): "
            "return its bytes"
        )
    return listed()


def _key(key: Any) -> str:
    if key is None or isinstance(key, bool | int | float):
        return str(msgspec.json.encode(key), "ascii")
    if isinstance(key, str):
        return str(key)
    raise ServeError(f"a dict with a {_kind(key)} as a key does not travel: keys are text")


def _kind(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


# --- JSON -----------------------------------------------------------------------------------------------------------


def to_json(value: Any) -> bytes:
    """Return a plain value as JSON; bytes as an object with the key ``base64``."""
    try:
        return msgspec.json.encode(wrapped(value))
    except (TypeError, ValueError, OverflowError) as problem:
        raise ServeError(f"a {_kind(value)} is no JSON: {problem}") from None


def wrapped(value: Any) -> Any:
    """Return a plain value with each bytes as an object with the key ``base64``."""
    kind = type(value)
    if kind is bytes:
        return {BYTES: b64encode(value).decode("ascii")}
    if kind is list:
        return [wrapped(each) if type(each) in (list, dict, bytes) else each for each in value]
    if kind is dict:
        return {key: wrapped(each) if type(each) in (list, dict, bytes) else each for key, each in value.items()}
    return value


def from_json(data: bytes) -> Any:
    """Return the value of JSON text; objects with the one key ``base64`` as bytes. Raises ServeError."""
    try:
        value = msgspec.json.decode(data)
        return _unwrapped(value) if b'"base64"' in data or b"\\u" in data else value
    except RecursionError:
        raise ServeError(f"the JSON {_TOO_DEEP}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise ServeError(f"not JSON: {problem}") from None


def _unwrapped(value: Any) -> Any:
    if type(value) is dict:
        if len(value) == 1 and type(text := value.get(BYTES)) is str:
            try:
                return b64decode(text, validate=True)
            except ValueError as problem:
                raise ServeError(f"{BYTES}: {problem}") from None
        return {key: _unwrapped(each) for key, each in value.items()}
    if type(value) is list:
        return [_unwrapped(each) for each in value]
    return value

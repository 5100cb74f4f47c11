"""Read requests to Moonshot's Kimi (Mooncake; Qin et al., FAST 2025): a JSON object a line, with block hashes.

``{"timestamp": 250, "input_length": 1100, "output_length": 20, "hash_ids": [0, 1, 3]}``: milliseconds since the
trace began, tokens, and one id for each 512 tokens of the prompt.
"""

from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from headway.core.collector import no_collection
from headway.errors import TraceError
from headway.fleet.traces.trace import RequestTrace, in_order
from headway.formats.head import Head
from headway.formats.table import text
from headway.jobs.traces.trace import Dropped
from headway.units import MILLISECOND

NAME = "mooncake"
KEYS = ("timestamp", "input_length", "output_length")
_SHOWN = 60
_LATEST_MS = 2**63 // MILLISECOND
_MOST_TOKENS = 2**62


_CLOCK = msgspec.Meta(ge=0, lt=_LATEST_MS)
_Tokens = Annotated[int, msgspec.Meta(ge=0, lt=_MOST_TOKENS)]


class _Request(msgspec.Struct, gc=False):
    timestamp: Annotated[int, _CLOCK] | Annotated[float, _CLOCK]
    input_length: _Tokens
    output_length: _Tokens
    hash_ids: tuple[_Tokens, ...] = ()


class _Unbounded(msgspec.Struct):
    """A request whose numbers may break a rule, which ``_broken`` then names."""

    timestamp: int | float
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...] = ()


def recognises(head: Head) -> bool:
    """Return whether the first line is an object with all keys."""
    return head.first_line.startswith("{") and all(f'"{key}"' in head.first_line for key in KEYS)


def _broken(line: str) -> tuple[str, str, str]:
    """Return the key, the value and the rule that a line breaks."""
    try:
        request = msgspec.json.decode(line, type=_Unbounded)
    except (msgspec.DecodeError, RecursionError) as problem:
        shown = line.strip() if len(line.strip()) <= _SHOWN else line.strip()[:_SHOWN] + "…"
        return "row", shown, f"is no request: {problem}"
    if not 0 <= request.timestamp < _LATEST_MS:
        return "timestamp", str(request.timestamp), "must be milliseconds, at least 0"
    for key in ("input_length", "output_length"):
        if not 0 <= (tokens := getattr(request, key)) < _MOST_TOKENS:
            return key, str(tokens), "must be at least 0" if tokens < 0 else "is too large"
    return "hash_ids", str(min(request.hash_ids)), "must be numbers of at least 0, below 2^62"


def _parsed(path: Path) -> tuple[list[_Request], list[Dropped]]:
    decode = msgspec.json.Decoder(_Request).decode
    kept: list[_Request] = []
    dropped: list[Dropped] = []
    for number, line in enumerate(text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            kept.append(decode(line))
        except (msgspec.DecodeError, RecursionError):
            dropped.append(Dropped(number, *_broken(line)))
    return kept, dropped


def read(path: Path, strict: bool) -> RequestTrace:
    """Return the requests of a Mooncake file."""
    with no_collection():
        kept, dropped = _parsed(path)
        if dropped and (strict or not kept):
            prefix = "" if strict else f"all {len(dropped)} rows are bad; the first is "
            raise TraceError(f"trace {path}: {prefix}{dropped[0]}")
        arrival = np.array([round(request.timestamp * MILLISECOND) for request in kept], dtype=np.int64)
        tokens_in = np.array([request.input_length for request in kept], dtype=np.int64)
        tokens_out = np.array([request.output_length for request in kept], dtype=np.int64)
        hashes = tuple(request.hash_ids for request in kept)
    return in_order((arrival, tokens_in, tokens_out), hashes if any(hashes) else (), NAME, tuple(dropped), ())

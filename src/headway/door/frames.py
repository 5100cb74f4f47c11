"""Messages on a stream of bytes: msgpack, each with its length before it."""

from collections.abc import Iterator
from struct import Struct as Layout
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

MOST_BYTES = 1 << 31
_LENGTH = Layout("<I")
_encode = msgspec.msgpack.Encoder().encode
MessageT = TypeVar("MessageT")


def framed(message: Struct) -> bytes:
    """Return a message as bytes, its length first."""
    data = _encode(message)
    return _LENGTH.pack(len(data)) + data


class Frames(Generic[MessageT]):
    """Cuts a stream of bytes into messages."""

    def __init__(self, decoder: "msgspec.msgpack.Decoder[MessageT]", most_bytes: int = MOST_BYTES) -> None:
        self._decode = decoder.decode
        self._most_bytes = most_bytes
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[MessageT]:
        """Yield the messages that are complete with these bytes; raise ValueError for one that is too long."""
        rest = self._rest
        rest += data
        at = 0
        while len(rest) - at >= _LENGTH.size:
            length = _LENGTH.unpack_from(rest, at)[0]
            end = at + _LENGTH.size + length
            if length > self._most_bytes:
                raise ValueError(f"a message of {length:,} bytes, at most {self._most_bytes:,}")
            if end > len(rest):
                break
            yield self._decode(memoryview(rest)[at + _LENGTH.size : end])
            at = end
        if at:
            del rest[:at]

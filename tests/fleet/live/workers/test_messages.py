"""Messages survive the way through a stream of bytes, however it is cut."""

import pytest
from hypothesis import given, strategies as st

from headway.door.frames import Frames, framed
from headway.fleet.live.workers.messages import (
    ANSWERS,
    ORDERS,
    Beat,
    Evict,
    Fetch,
    Fetched,
    Finished,
    Hello,
    Loaded,
    Lost,
    Rejected,
    Run,
    Setup,
    Stop,
)
from headway.fleet.live.workers.payload import Payload

_ORDERS = (
    Setup("app.py", 3, ("caption",), ("vit",), 1 << 34, "cuda:0", "headway-1", "/dev/shm/h", "/var/w", (0, 5)),
    Run(7, 0, ((Payload(b"a"), Payload(b"", "block", (70_000,))), (Payload(b"c"), Payload(b"d"))), (0,), (1, 2), 4, 0),
    Fetch(8, 1, (0,)),
    Evict(5),
    Stop(),
)
_ANSWERS = (
    Hello(4711, (10, 0), 700),
    Loaded(7),
    Finished(7, (Payload(b"x"), Payload(b"")), {1: "ValueError: no"}, 1_000),
    Fetched(8, 1),
    Rejected(9, "model vit is in use", (), True),
    Beat(1 << 40, 3),
    Lost((0, 3), 8),
)


@given(st.lists(st.integers(1, 40), max_size=60))
def test_messages_come_back_however_the_stream_is_cut(lengths: list[int]) -> None:
    for messages, decoder in ((_ORDERS, ORDERS), (_ANSWERS, ANSWERS)):
        stream, found, at = b"".join(map(framed, messages)), [], 0  # type: ignore[arg-type]
        frames: Frames[object] = Frames(decoder)  # type: ignore[arg-type]
        for length in (*lengths, len(stream)):
            found += list(frames.feed(stream[at : at + length]))
            at += length
        assert found == list(messages)


@pytest.mark.parametrize("message", _ORDERS + _ANSWERS)
def test_a_message_says_its_length_first(message: object) -> None:
    data = framed(message)  # type: ignore[arg-type]
    assert int.from_bytes(data[:4], "little") == len(data) - 4

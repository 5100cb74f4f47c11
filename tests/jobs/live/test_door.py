"""The socket of a queue: for its own user only, and no message brings it down."""

import os
import random
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headway.door.frames import Frames, framed
from headway.door.local_socket import connected, is_own, listening
from headway.errors import QueueError
from headway.jobs.live import client
from headway.jobs.live.door import _Connection
from headway.jobs.live.messages import ANSWERS, Answered, Cancel, Refused, Status, Stop, Submit
from headway.jobs.live.place import Place
from tests.jobs.live.queues import Bench

FUZZED = 10_000
NOBODY = 65534


class Line:
    """The transport of a connection: keeps what is sent."""

    def __init__(self, ours: socket.socket) -> None:
        self._ours, self.sent, self.closed = ours, b"", False

    def get_extra_info(self, name: str) -> socket.socket:
        """The socket."""
        return self._ours

    def is_closing(self) -> bool:
        """Whether it was closed."""
        return self.closed

    def write(self, data: bytes) -> None:
        """Keep it."""
        self.sent += data

    def close(self) -> None:
        """End."""
        self.closed = True

    abort = close


class Asked:
    """Stands for the event that wakes the loop."""

    def set(self) -> None:
        """Do nothing."""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A queue with four slots."""
    made = Bench(tmp_path)
    yield made
    made.queue.stop(kill=True, at_once=True)
    made.until(lambda: made.queue.idle)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a socket."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def opened(bench: Bench, ours: socket.socket) -> tuple[_Connection, Line, list[tuple[bool, bool]]]:
    stopped: list[tuple[bool, bool]] = []
    made = _Connection(bench.queue, lambda *how: stopped.append(how), Asked(), set())  # type: ignore[arg-type]
    line = Line(ours)
    made.connection_made(line)  # type: ignore[arg-type]
    return made, line, stopped


def mutated(draw: random.Random, data: bytes) -> bytes:
    """A message with some bytes changed, left out, repeated or made up."""
    found = bytearray(data)
    for _ in range(draw.randint(1, 6)):
        at = draw.randrange(len(found) + 1)
        match draw.randrange(4):
            case 0:
                found[at : at + 1] = bytes([draw.randrange(256)])
            case 1:
                del found[at : at + draw.randint(1, 8)]
            case 2:
                found[at:at] = draw.randbytes(draw.randint(1, 8))
            case _:
                found[at:at] = found[: draw.randint(0, 16)]
    return bytes(found)


def test_ten_thousand_fuzzed_messages_are_each_answered_or_waited_for(
    bench: Bench, pair: tuple[socket.socket, socket.socket]
) -> None:
    draw = random.Random(7)
    impossible = Submit(("/bin/true",), "/", {"A": "b"}, 9, name="x")
    whole = [framed(each) for each in (Status(), Cancel(3), Stop(kill=True), impossible)]
    refused = answered = 0
    for _ in range(FUZZED):
        made, line, _ = opened(bench, pair[0])
        data = draw.choice(whole) if draw.random() < 0.05 else mutated(draw, draw.choice(whole))
        data = draw.randbytes(draw.randint(0, 40)) if draw.random() < 0.1 else data
        made.data_received(data)
        for answer in Frames(ANSWERS).feed(line.sent):
            refused += isinstance(answer, Refused)
            answered += isinstance(answer, Answered)
    assert refused > FUZZED // 20
    assert answered > FUZZED // 200
    for job in list(bench.queue.state.jobs):
        bench.queue.cancel(job)
    bench.python("print('still there')")
    bench.over()
    assert "still there\n" in {bench.out(job) for job in range(len(bench.queue.jobs))}


def test_a_message_that_is_too_long_is_refused_and_ends_the_connection(
    bench: Bench, pair: tuple[socket.socket, socket.socket]
) -> None:
    made, line, _ = opened(bench, pair[0])
    made.data_received((1 << 31).to_bytes(4, "little"))
    (answer,) = Frames(ANSWERS).feed(line.sent)
    assert isinstance(answer, Refused)
    assert "at most" in answer.reason
    assert line.closed


def test_a_connection_of_another_user_is_cut_before_it_asks(
    bench: Bench, pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.door.local_socket.peer", lambda connection: (1, os.geteuid() + 1))
    _, line, _ = opened(bench, pair[0])
    assert line.closed
    assert not is_own(pair[0])


def attempt(place: Place, question: Any) -> str:
    """What another user gets to hear, from a process of its own."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            try:
                said = repr(client.ask(place, question, timeout_s=5))
            except QueueError as problem:
                said = str(problem)
            os.write(writing, said.encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(pid, 0)
    with os.fdopen(reading) as file:
        return file.read()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user, as a GPU needs a driver")
def test_another_user_gets_neither_into_the_folder_nor_past_an_open_socket() -> None:
    with tempfile.TemporaryDirectory() as above:  # pytest's own folders keep others out by themselves
        Path(above).chmod(0o755)
        place = Place(Path(above) / "queue")
        _refuses_others(place)


def _refuses_others(place: Place) -> None:
    with place.held():
        assert place.folder.stat().st_mode & 0o777 == 0o700
        served = threading.Event()
        listener = listening(place.socket, QueueError)

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                if is_own(connection):
                    connection.sendall(framed(Answered("let in")))
            served.set()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        assert "is another user's" in attempt(place, Status())
        place.folder.chmod(0o755)
        place.socket.chmod(0o666)
        assert "let in" not in attempt(place, Status())
        assert served.wait(10)
        listener.close()


def test_an_answer_of_another_version_and_an_end_without_an_answer_are_told(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with pytest.raises(QueueError, match=r"no queue runs in .*: headway queue start --folder .* starts one"):
        client.ask(place, Status())
    for answer, line in ((framed(Answered(1))[:-1] + b"\xc1", "another version"), (b"", "ended before it answered")):
        listener = listening(place.socket, QueueError)

        def serve(answer: bytes = answer, listener: socket.socket = listener) -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(100)
                connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        with pytest.raises(QueueError, match=line):
            client.ask(place, Status())
        thread.join(10)
        listener.close()


def test_a_socket_has_a_path_of_any_length(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    with listening(deep / "socket", QueueError) as listener, connected(deep / "socket", 1.0) as ours:
        theirs, _ = listener.accept()
        with theirs:
            assert is_own(theirs)
            assert is_own(ours)
    assert msgspec.msgpack.decode(framed(Status())[4:]) == [2]

"""The local socket: pipelined requests, answers out of order, permissions, what is malformed, who may start."""

import asyncio
import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest
import uvloop

from headway.door.frames import Frames
from headway.errors import RequestError, RequestRefusedError, ServeError
from headway.fleet.live.client.client import AsyncClient, Client, submission
from headway.fleet.live.client.links import AsyncSocketLink, connected
from headway.fleet.live.doors.control import OUTCOMES, Control, Failed
from headway.fleet.live.doors.front import Front
from headway.fleet.live.doors.place import Place
from tests.fleet.live.doors.doors import running
from tests.fleet.live.fake import FakeServer


def test_answers_come_in_the_order_in_which_they_are_ready(tmp_path: Path) -> None:
    with running(tmp_path / "s", port=None) as run:

        async def play() -> list[str]:
            order: list[str] = []
            async with AsyncClient(run.folder) as client:
                held = client.ask(submission("held", "slow"))
                held.add_done_callback(lambda done: order.append("held"))
                many = [client.ask(submission("echo", number)) for number in range(500)]
                values = [reply.value for reply in await asyncio.gather(*many)]
                assert values == list(range(500))
                order.append("many")
                run.release()
                assert (await held).value == "slow"
            return order

        assert asyncio.run(play()) == ["many", "held"]


def test_values_deadlines_tenants_and_priorities_arrive(tmp_path: Path) -> None:
    with running(tmp_path / "s", port=None) as run, Client(run.folder) as client:
        assert client.call("echo", {"a": [1, b"\0\xff", None]}) == {"a": [1, b"\0\xff", None]}
        client.call("echo", b"x", deadline="600ms", tenant="lab", priority=7)
        client.call("echo", b"x", deadline=0.25, tenant="other")
        assert run.server.accepted[1:] == [
            ("echo", b"x", 600_000_000, "lab", 7),
            ("echo", b"x", 250_000_000, "other", 0),
        ]


def test_server_and_client_may_run_on_the_loop_of_uvloop(tmp_path: Path) -> None:
    async def play() -> Any:
        control = Control(tmp_path / "socket", Front(FakeServer()), lambda drain: None)
        await control.open()
        link = AsyncSocketLink(tmp_path / "socket")
        await link.open()
        reply = await link.ask(submission("echo", b"x"), 10.0)
        await link.close()
        await control.close()
        return reply.value

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(play()) == b"x"


def test_the_socket_is_for_this_user_alone(tmp_path: Path) -> None:
    with running(tmp_path / "new" / "s", port=None) as run:
        place = Place(run.folder)
        assert stat.S_IMODE(place.socket.stat().st_mode) == 0o600
        assert stat.S_IMODE(run.folder.stat().st_mode) == 0o700
    assert not place.socket.exists()


def test_two_servers_on_one_folder_are_refused_in_one_line(tmp_path: Path) -> None:
    with running(tmp_path / "s", port=None) as run:
        with (
            pytest.raises(ServeError, match=rf"a server runs there already \(process {os.getpid()}\)"),
            running(run.folder, port=None),
        ):
            pass
        with Client(run.folder) as client:
            assert client.call("echo", 1) == 1
    with running(tmp_path / "s", port=None) as run, Client(run.folder) as client:
        assert client.call("echo", 2) == 2


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s").chmod(0o777)
    with pytest.raises(ServeError, match="others can write there"), running(tmp_path / "s", port=None):
        pass


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"\x01\0\0\0\xc1", b"\x03\0\0\0\x92\x63\x01"])
def test_a_malformed_message_is_answered_and_others_go_on(tmp_path: Path, data: bytes) -> None:
    with running(tmp_path / "s", port=None) as run, Client(run.folder) as client:
        link: socket.socket = connected(Place(run.folder).socket)
        with link:
            link.sendall(data)
            received = b"".join(iter(lambda: link.recv(1 << 16), b""))
        (answer,) = Frames(OUTCOMES).feed(received)
        assert isinstance(answer, Failed)
        assert answer.status == 400
        assert client.call("echo", 1) == 1


def test_a_result_that_cannot_be_sent_fails_that_request_alone(tmp_path: Path) -> None:
    with running(tmp_path / "s", port=None) as run, Client(run.folder) as client:
        for odd, line in ((lambda value: 1 << 70, "cannot be sent"), (lambda value: object(), "does not travel")):
            run.server.odd = odd
            with pytest.raises(RequestError, match=line):
                client.call("odd", 1)
        assert client.call("echo", 1) == 1


def test_drain_answers_what_was_accepted_and_refuses_the_rest(tmp_path: Path) -> None:
    with running(tmp_path / "s", port=None) as run:

        async def play() -> None:
            async with AsyncClient(run.folder) as client:
                held = client.ask(submission("held", 1))
                while not run.server.waiting:
                    await asyncio.sleep(0.001)
                draining = asyncio.ensure_future(client.drain())
                while not (await client.status())["draining"]:
                    await asyncio.sleep(0.001)
                with pytest.raises(RequestRefusedError, match="drains"):
                    await client.call("echo", 1)
                assert not draining.done()
                run.release()
                await draining
                assert held.done()
                assert (await held).value == 1

        asyncio.run(play())
        assert run.server.drained


def test_a_client_that_waits_is_told_when_the_server_ends(tmp_path: Path) -> None:
    async def play() -> None:
        with running(tmp_path / "s", port=None) as run:
            client = AsyncClient(run.folder)
            await client.open()
            held = client.ask(submission("held", 1))
            while not run.server.waiting:
                await asyncio.sleep(0.001)
            await client.stop(drain=False)
            with pytest.raises(RequestError, match="before it answered"):
                await held
            await client.close()

    asyncio.run(play())

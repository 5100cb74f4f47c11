"""Clients, sync and async, over the socket and over HTTP: the same answers, the same errors."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import headway as hw
from headway.errors import (
    NoServerError,
    RequestError,
    RequestLateError,
    RequestRefusedError,
    ServeError,
    TaskFailedError,
    UnknownGraphError,
)
from headway.fleet.live.client.client import AsyncClient, Client
from headway.fleet.live.doors.place import Place
from tests.fleet.live.doors.doors import Running, running

TOKEN = "a-token-of-twenty-letters"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """A server that clients find by its name ``reading``."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("HEADWAY_TOKEN", raising=False)
    with running(tmp_path / "headway" / "serve" / "reading") as run:
        yield run


def _call(where: str, is_async: bool, *args: Any, **options: Any) -> Any:
    if not is_async:
        with hw.client(where) as client:
            return client.call(*args, **options)

    async def play() -> Any:
        async with hw.AsyncClient(where) as client:
            return await client.call(*args, **options)

    return asyncio.run(play())


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("door", ["", "reading", "folder", "http"])
def test_every_client_gets_the_same_answers_and_errors(server: Running, door: str, is_async: bool) -> None:
    where = {"folder": str(server.folder), "http": server.url}.get(door, door)
    value = {"text": "héllo", "image": b"\0\xff", "n": [1, 2.5, None, True]}
    assert _call(where, is_async, "echo", value, deadline="2s", key="k1", tenant="lab", priority=3) == value
    assert server.server.accepted[-1][2:] == (2_000_000_000, "lab", 3)
    assert _call(where, is_async, "echo", b"\0raw") == b"\0raw"
    for graph, kind, line in (
        ("nope", UnknownGraphError, "unknown graph 'nope'"),
        ("full", RequestRefusedError, "120 requests wait"),
        ("late", RequestLateError, "late by 3 ms"),
        ("fails", TaskFailedError, "task caption: ValueError"),
    ):
        with pytest.raises(kind, match=line):
            _call(where, is_async, graph, 1)
    with pytest.raises(ServeError, match="another request"):
        _call(where, is_async, "echo", 1, key="k1", tenant="lab")
    with pytest.raises(ServeError, match="priority"):
        _call(where, is_async, "echo", 1, priority=101)


def test_what_a_client_can_see_is_wrong_is_not_sent(server: Running) -> None:
    with hw.client() as client:
        for value, deadline, line in (
            (object(), None, "does not travel"),
            (1, "0s", "longer than nothing"),
            (1, "soon", "not understood"),
            (1 << 70, None, "cannot be sent"),
        ):
            with pytest.raises(hw.HeadwayError, match=line):
                client.call("echo", value, deadline=deadline)
    assert server.server.accepted == []


def test_threads_may_share_a_client(server: Running) -> None:
    for where in ("", server.url):
        found: list[int] = []
        with hw.client(where) as client:

            def ask(first: int, client: Client = client, found: list[int] = found) -> None:
                found.extend(client.call("echo", first + number) for number in range(20))

            threads = [threading.Thread(target=ask, args=(100 * each,)) for each in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert sorted(found) == sorted(100 * each + number for each in range(6) for number in range(20))


def test_a_client_goes_on_after_a_restart_of_the_server(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    with running(folder, port=None):
        client = Client(folder)
        assert client.call("echo", 1, key="once") == 1
    with pytest.raises(hw.HeadwayError, match="no server answers"):
        client.call("echo", 2)
    with running(folder, port=None) as run:
        assert client.call("echo", 3) == 3
        assert client.call("echo", 1, key="once") == 1
        assert [value for _, value, *_ in run.server.accepted] == [3]
        client.close()


def test_an_async_client_goes_on_after_a_restart_too(tmp_path: Path) -> None:
    async def play() -> None:
        with running(tmp_path / "s", port=None) as run:
            client = AsyncClient(run.folder)
            assert await client.call("echo", 1) == 1
        await asyncio.sleep(0.01)
        with running(tmp_path / "s", port=None):
            assert await client.call("echo", 2) == 2
            await client.close()

    asyncio.run(play())


async def _closed_after(client: AsyncClient, call: Any) -> Any:
    try:
        return await call
    finally:
        await client.close()


@pytest.mark.parametrize("port", [None, 0])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_call_with_a_key_and_a_deadline_outlives_its_server(tmp_path: Path, is_async: bool, port: int | None) -> None:
    with running(tmp_path / "s", port=port) as run:
        where = run.url if port is not None else str(run.folder)
        ours = urlsplit(where).port if port is not None else None
        clients = [(AsyncClient if is_async else Client)(where) for _ in range(3)]

    def called(client: AsyncClient | Client, **options: Any) -> Any:
        if isinstance(client, AsyncClient):
            return asyncio.run(_closed_after(client, client.call("echo", 5, **options)))
        with client:
            return client.call("echo", 5, **options)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(called, clients[0], key="again", deadline=60.0)
        for client, without in zip(clients[1:], ({"key": "again"}, {"deadline": 60.0}), strict=True):
            with pytest.raises(NoServerError):
                called(client, **without)
        with running(tmp_path / "s", port=ours) as run:
            assert waiting.result() == 5
            assert [value for _, value, *_ in run.server.accepted] == [5]


def test_who_calls_a_server_that_starts_is_told_so(tmp_path: Path) -> None:
    with Place(tmp_path / "s").held(), pytest.raises(NoServerError, match="one starts or stops there; try again"):
        Client(tmp_path / "s").call("echo", 5)


def test_a_call_under_a_key_is_not_sent_again_after_its_deadline(tmp_path: Path) -> None:
    with running(tmp_path / "s", port=None) as run:
        client = Client(run.folder)
    with pytest.raises(NoServerError, match="no server answers"):
        client.call("echo", 5, key="again", deadline=0.3)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_token_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_async: bool) -> None:
    monkeypatch.delenv("HEADWAY_TOKEN", raising=False)
    with running(tmp_path / "s", token=TOKEN) as run:
        url = run.url
        with pytest.raises(ServeError, match="send the token"):
            _call(url, is_async, "echo", 1)
        monkeypatch.setenv("HEADWAY_TOKEN", TOKEN)
        assert _call(url, is_async, "echo", 1) == 1
        monkeypatch.setenv("HEADWAY_TOKEN", "another-token-of-letters")
        with pytest.raises(ServeError, match="send the token"):
            _call(url, is_async, "echo", 1)


def test_who_is_not_there_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for where, line in (
        ("", "no server runs here: headway serve start"),
        ("reading", "no server runs in .*/reading"),
        (str(tmp_path), f"no server runs in {tmp_path}"),
        ("http://127.0.0.1:1", "no server answers at http://127.0.0.1:1: Connection refused"),
        ("http://", "not an address like"),
        ("http://[", "not an address like"),
    ):
        with pytest.raises(ServeError, match=line), hw.client(where) as client:
            client.status()
    for name in ("one", "two"):
        (tmp_path / "headway" / "serve" / name).mkdir(parents=True)
    one, two = (tmp_path / "headway" / "serve" / name for name in ("one", "two"))
    with running(one, port=None), running(two, port=None):
        with pytest.raises(ServeError, match=r"several servers run here \(one, two\): say which with --server NAME"):
            hw.client()
        with hw.client("two") as client:
            assert client.call("echo", 2) == 2


def test_a_server_is_not_drained_over_http(server: Running) -> None:
    with hw.client(server.url) as client, pytest.raises(ServeError, match="on its own machine"):
        client.drain()


def test_a_server_that_says_nothing_is_given_up_past_the_deadline(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.fleet.live.client.client.GRACE_S", 0.05)
    for where in ("", server.url):
        for is_async in (False, True):
            with pytest.raises(RequestError, match="said nothing"):
                _call(where, is_async, "held", 1, deadline="50ms")
    server.release()

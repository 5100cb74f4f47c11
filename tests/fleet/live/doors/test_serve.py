"""A server with its doors: what it says, what it refuses to open, and how it ends."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import headway as hw
from headway.errors import RequestRefusedError, ServeError
from headway.fleet.live.doors.loopback import is_loopback
from headway.fleet.live.doors.place import Place
from headway.fleet.live.doors.serve import Doors, check
from headway.fleet.live.doors.tokens import token_of
from tests.fleet.live.doors.doors import Running, running

PROGRAM = """
import asyncio, sys
from pathlib import Path
from headway.fleet.live.doors.place import Place
from headway.fleet.live.doors.serve import Doors, opened, serve
from tests.fleet.live.fake import FakeServer
doors = Doors(Place(Path(sys.argv[1])), port=0)
with opened(doors) as listener:
    asyncio.run(serve(FakeServer(), doors, listener, say=lambda line: print(line, flush=True)))
"""
ROOT = Path(__file__).resolve().parents[4]


def test_it_says_where_it_is_and_how_to_call_it(tmp_path: Path) -> None:
    with running(tmp_path / "s") as run:
        url = run.url
        text = "\n".join(run.said)
        assert f"folder {run.folder}" in text
        assert f"curl {url}/v1/graphs/echo" in text
        assert "headway call echo" in text
    assert run.said[-1] == "stopped"
    assert run.server.stopped


def test_a_port_in_use_is_one_line_and_starts_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(ServeError, match=f"--port {port}: Address already in use.*another --port"),
            running(tmp_path / "s", port=port),
        ):
            pass
    assert not Place(tmp_path / "s").runs


def test_an_address_that_others_reach_needs_a_token(tmp_path: Path) -> None:
    place = Place(tmp_path)
    for host in ("0.0.0.0", "::", "192.168.1.7", "example.org", "127.example.org"):
        with pytest.raises(ServeError, match=f"--host {host}: others can reach it, so it needs a token"):
            check(Doors(place, host=host))
        check(Doors(place, host=host, token="x" * 20))
    for host in ("127.0.0.1", "127.0.0.2", "localhost", "::1"):
        check(Doors(place, host=host))


def test_without_fastapi_the_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)
    with pytest.raises(ServeError, match=r"pip install 'headway\[serve\]'"):
        check(Doors(Place(tmp_path)))
    check(Doors(Place(tmp_path), port=None))


@pytest.mark.parametrize(("text", "line"), [("", "it is empty"), ("short", "16 or more"), ("a b" * 10, "one word")])
def test_a_token_that_is_none_is_refused(tmp_path: Path, text: str, line: str) -> None:
    (tmp_path / "token").write_text(text)
    with pytest.raises(ServeError, match=line):
        token_of(str(tmp_path / "token"))
    with pytest.raises(ServeError, match="cannot be read"):
        token_of(str(tmp_path / "none"))


def _started(folder: Path) -> "subprocess.Popen[str]":
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder)], stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "Ctrl-C" in line:
            break
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_drains_and_stops(tmp_path: Path, number: signal.Signals) -> None:
    process = _started(tmp_path / "s")
    process.send_signal(number)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert out.splitlines()[0].startswith("draining: ")
    assert out.splitlines()[-1] == "stopped"


def test_a_second_signal_ends_at_once_although_a_request_is_held(tmp_path: Path) -> None:
    process = _started(tmp_path / "s")

    async def play() -> None:
        async with hw.AsyncClient(tmp_path / "s") as client:
            held = asyncio.ensure_future(client.call("held", 1))
            while not (await client.status())["server"]["open"]:
                await asyncio.sleep(0.01)
            process.send_signal(signal.SIGINT)
            while not (await client.status())["draining"]:
                await asyncio.sleep(0.01)
            process.send_signal(signal.SIGINT)
            with pytest.raises(RequestRefusedError, match=r"^the server stops$"):
                await held

    asyncio.run(play())
    process.communicate(timeout=30)
    assert process.returncode == 0


def test_stop_now_tells_callers_of_both_doors_why_they_get_no_answer(tmp_path: Path) -> None:
    async def play(run: Running) -> tuple[BaseException, BaseException]:
        async with hw.AsyncClient(run.folder) as local, hw.AsyncClient(run.url) as remote:
            calls = [asyncio.ensure_future(each.call("held", 1)) for each in (local, remote)]
            keyed = asyncio.ensure_future(local.call("held", 2, key="k"))
            while (await local.status())["server"]["open"] < 3:
                await asyncio.sleep(0.01)
            with hw.client(run.folder) as other:
                other.stop(drain=False)
            first, second, third = await asyncio.gather(*calls, keyed, return_exceptions=True)
            assert isinstance(third, RequestRefusedError)
            return first, second

    with running(tmp_path / "s") as run:
        for end in asyncio.run(play(run)):
            assert isinstance(end, RequestRefusedError)
            assert str(end) == "the server stops"
            assert end.retry_after_s == 1


@pytest.mark.parametrize(
    ("host", "is_one"),
    [
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("localhost", True),
        ("LOCALHOST.", True),
        ("127.0.0.1.example.org", False),
        ("127.example.org", False),
        ("127.1", False),
        ("localhost.example.org", False),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("", False),
    ],
)
def test_loopback_is_an_address_or_localhost_and_no_other_name(host: str, is_one: bool) -> None:
    assert is_loopback(host) == is_one


def test_a_server_that_was_killed_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    process = _started(tmp_path / "s")
    with hw.client(tmp_path / "s") as client:
        assert client.call("echo", 1, key="k") == 1
    process.kill()
    process.communicate(timeout=30)
    assert Place(tmp_path / "s").socket.exists()
    with running(tmp_path / "s", port=None) as run, hw.client(run.folder) as client:
        assert client.call("echo", 1, key="k") == 1
        assert run.server.accepted == []


def test_a_start_that_fails_is_told_and_frees_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(self: object) -> None:
        raise ServeError("worker 0 ended before it was ready")

    monkeypatch.setattr("tests.fleet.live.fake.FakeServer.start", fails)
    with pytest.raises(ServeError, match="worker 0 ended"), running(tmp_path / "s"):
        pass
    assert not Place(tmp_path / "s").runs

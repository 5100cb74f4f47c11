"""Run a server with its doors: its lock, the socket, HTTP, signals, and an end in good order."""

import asyncio
import contextlib
import errno
import os
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headway.errors import ServeError
from headway.fleet.live.doors.control import Control
from headway.fleet.live.doors.front import MOST_BODY_BYTES, Front, Server
from headway.fleet.live.doors.keys import StoredKeys
from headway.fleet.live.doors.loopback import is_loopback
from headway.fleet.live.doors.place import Place
from headway.fleet.live.doors.tokens import VARIABLE
from headway.fleet.live.doors.values import to_json, wrapped

Say = Callable[[str], None]
_MISSING = "HTTP needs fastapi and uvicorn, which are not installed here: pip install 'headway[serve]'"
_KEEP_ALIVE_S = 75
"""Longer than clients use a connection again."""
_BACKLOG = 512
_SHORT = 60
"""Characters of an example that is shown."""


@dataclass(frozen=True, slots=True)
class Doors:
    """Where a server can be reached."""

    place: Place
    host: str = "127.0.0.1"
    port: int | None = 8000
    """0: any that is free; None: no HTTP."""
    token: str = ""
    most_body_bytes: int = MOST_BODY_BYTES


@contextlib.contextmanager
def opened(doors: Doors) -> Iterator[socket.socket | None]:
    """Hold the folder and the port of a server; yield the socket that HTTP is to be served on, None without HTTP.

    They are taken before anything else: a server that cannot be reached starts no workers and keeps no run.
    """
    check(doors)
    with doors.place.held(), _listening(doors) as listener:
        yield listener


async def serve(
    server: Server,
    doors: Doors,
    listener: socket.socket | None,
    *,
    say: Say,
    about: Mapping[str, Any] | None = None,
    examples: Mapping[str, Any] | None = None,
    on_open: Callable[[Front], None] = lambda front: None,
) -> None:
    """Start a server, answer requests until a signal or a client ends it, drain it, stop it.

    ``on_open`` is told when requests are taken.
    """
    with contextlib.closing(StoredKeys(doors.place.keys)) as keys:
        url = url_of(doors.host, listener.getsockname()[1]) if listener is not None else ""
        facts = {"pid": os.getpid(), "started_s": round(time.time(), 3), "url": url, "folder": str(doors.place.folder)}
        front = Front(server, keys, about={**facts, **(about or {})}, examples=examples, say=say)
        end = _End()
        control = Control(doors.place.socket, front, end.ask)
        try:
            with end.on_signals():
                await _started(server, end)
                await control.open()
                async with _http(front, doors, listener):
                    for line in _welcome(front, doors, url):
                        say(line)
                    on_open(front)
                    await end.wait()
                    await _drain(front, end, say)
                    await server.stop()  # while callers can still be told why they get no answer
        finally:
            await control.close()
            await server.stop()
    say("stopped")


async def _started(server: Server, end: "_End") -> None:
    """Start the workers; a signal ends that too."""
    starting = asyncio.ensure_future(server.start())
    ended = asyncio.ensure_future(end.wait())
    await asyncio.wait((starting, ended), return_when=asyncio.FIRST_COMPLETED)
    ended.cancel()
    if not starting.done():
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await starting
        raise KeyboardInterrupt
    starting.result()


async def _drain(front: Front, end: "_End", say: Say) -> None:
    """Answer what was accepted, unless it is to end at once."""
    if end.at_once.is_set():
        return
    say("draining: requests that were accepted are answered, new ones are refused; once more ends at once")
    draining = asyncio.ensure_future(front.drain())
    impatient = asyncio.ensure_future(end.at_once.wait())
    await asyncio.wait((draining, impatient), return_when=asyncio.FIRST_COMPLETED)
    impatient.cancel()
    if draining.done():
        draining.result()
    else:
        draining.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await draining


class _End:
    """When a server is to end: at a signal or when a client says so; at the second at once."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.at_once = asyncio.Event()

    def ask(self, drain: bool) -> None:
        """Have the server end, after its requests or at once."""
        if self.asked.is_set() or not drain:
            self.at_once.set()
        self.asked.set()

    async def wait(self) -> None:
        """Return when the server is to end."""
        await self.asked.wait()

    @contextlib.contextmanager
    def on_signals(self) -> Iterator[None]:
        """Listen to Ctrl-C and SIGTERM, which the main thread alone can."""
        main = threading.current_thread() is threading.main_thread()
        loop, numbers = asyncio.get_running_loop(), (signal.SIGINT, signal.SIGTERM) if main else ()
        for number in numbers:
            loop.add_signal_handler(number, self.ask, True)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)


# --- HTTP -----------------------------------------------------------------------------------------------------------


def check(doors: Doors, flag: str = "--host") -> None:
    """Raise ServeError for doors that cannot be opened as asked: HTTP is missing, or strangers could come in."""
    if doors.port is None:
        return
    if not is_loopback(doors.host) and not doors.token:
        raise ServeError(
            f"{flag} {doors.host}: others can reach it, so it needs a token: give --token-file, or set {VARIABLE}"
        )
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError:
        raise ServeError(_MISSING) from None


@contextlib.contextmanager
def _listening(doors: Doors) -> Iterator[socket.socket | None]:
    """Yield a socket that listens at the address of HTTP; None without HTTP."""
    if doors.port is None:
        yield None
        return
    with contextlib.ExitStack() as stack:
        try:
            found = socket.getaddrinfo(doors.host, doors.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, kind, protocol, _, address = found[0]
            # With its protocol named, asyncio sends answers at once instead of waiting for more (TCP_NODELAY).
            listener = stack.enter_context(socket.socket(family, kind, protocol))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(_BACKLOG)
        except OSError as problem:
            what = f"--host {doors.host} --port {doors.port}"
            in_use = problem.errno == errno.EADDRINUSE
            remedy = ": another program listens there; take another --port, or 0 for any" if in_use else ""
            raise ServeError(f"{what}: {problem.strerror or problem}{remedy}") from None
        yield listener


def url_of(host: str, port: int | None) -> str:
    """Return the address that clients use."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


@contextlib.asynccontextmanager
async def _http(front: Front, doors: Doors, listener: socket.socket | None) -> AsyncIterator[None]:
    """Serve HTTP in this loop while the body runs."""
    if listener is None:
        yield
        return
    import uvicorn

    from headway.fleet.live.doors.http import application

    class Uvicorn(uvicorn.Server):
        """A server of HTTP that leaves signals to us."""

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    app = application(front, token=doors.token, most_body_bytes=doors.most_body_bytes)
    config = uvicorn.Config(
        app,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=2,
    )
    http = Uvicorn(config)
    running = asyncio.ensure_future(http.serve(sockets=[listener]))
    while not http.started and not running.done():
        await asyncio.sleep(0.005)
    try:
        yield
    finally:
        http.should_exit = True
        await running


def _welcome(front: Front, doors: Doors, url: str) -> Iterator[str]:
    graph = min(front.examples or front.server.graphs, default="GRAPH")
    shown = to_json(wrapped(front.examples[graph])).decode() if graph in front.examples else "…"
    yield f"serving {', '.join(sorted(front.server.graphs))}; process {os.getpid()}, folder {doors.place.folder}"
    if url:
        secret = "-H 'Authorization: Bearer …' " if doors.token else ""
        given = shown if len(shown) <= _SHORT and "'" not in shown else "…"
        kind = "-H 'Content-Type: application/json'"
        url = url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")  # of all addresses one to call
        yield f"""  curl {secret}{url}/v1/graphs/{graph} {kind} -d '{{"input": {given}}}'"""
    value = "" if graph in front.examples else " '…'"
    yield f"  headway call {graph}{value}"
    yield f"  headway load {graph} --rate 20"
    yield "  headway serve status --watch"
    yield "  Ctrl-C drains and stops"

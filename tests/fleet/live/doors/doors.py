"""A fake server behind real doors, in a thread of its own; and its application called in process."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway.fleet.live.client.client import Client
from headway.fleet.live.doors.front import Front
from headway.fleet.live.doors.http import application
from headway.fleet.live.doors.place import Place
from headway.fleet.live.doors.serve import Doors, opened, serve
from tests.fleet.live.fake import FakeServer


@dataclass
class Running:
    """A server that runs in another thread."""

    server: FakeServer
    folder: Path
    said: list[str] = field(default_factory=list)
    loop: asyncio.AbstractEventLoop | None = None

    @property
    def url(self) -> str:
        """The address of its HTTP door."""
        with Client(self.folder) as client:
            return str(client.status()["url"])

    def release(self) -> None:
        """Answer what is held, in the thread of the server."""
        assert self.loop is not None
        self.loop.call_soon_threadsafe(self.server.release)


@contextmanager
def running(folder: Path, *, port: int | None = 0, **doors: Any) -> Iterator[Running]:
    """Run a fake server in a folder until the body ends."""
    run, up = Running(FakeServer(), folder), threading.Event()
    problems: list[BaseException] = []

    def say(line: str) -> None:
        run.said.append(line)
        up.set()

    async def main() -> None:
        run.loop = asyncio.get_running_loop()
        places = Doors(Place(folder), port=port, **doors)
        with opened(places) as listener:
            about = {"app": "fake.py", "slo_ns": {"echo": 10_000_000_000}}
            await serve(run.server, places, listener, say=say, examples={"echo": "an example"}, about=about)

    def thread() -> None:
        try:
            asyncio.run(main())
        except BaseException as problem:  # noqa: BLE001 - raised again where the test waits
            problems.append(problem)
        finally:
            up.set()

    worker = threading.Thread(target=thread)
    worker.start()
    up.wait(30)
    try:
        if problems:
            raise problems[0]
        yield run
    finally:
        if worker.is_alive() and Place(folder).runs:
            with Client(folder) as client:
                client.stop(drain=False)
        worker.join(30)
        assert not worker.is_alive()


@dataclass
class Answer:
    """What came back over HTTP."""

    status: int
    headers: dict[str, str]
    body: bytes


async def asked(
    front: Front,
    path: str = "/v1/graphs/echo",
    body: bytes = b'{"input": 1}',
    headers: Mapping[str, str] | list[tuple[bytes, bytes]] | None = None,
    *,
    method: str = "POST",
    pieces: int = 1,
    **options: Any,
) -> Answer:
    """Call the application in process; return its answer."""
    size = max(1, -(-len(body) // pieces))
    parts = [body[at : at + size] for at in range(0, len(body), size)] or [b""]
    sent: list[dict[str, Any]] = []
    taken = 0

    async def receive() -> dict[str, Any]:
        nonlocal taken
        if taken < len(parts):
            taken += 1
            return {"type": "http.request", "body": parts[taken - 1], "more_body": taken < len(parts)}
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    given = (
        headers if isinstance(headers, list) else [(k.lower().encode(), v.encode()) for k, v in (headers or {}).items()]
    )
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": given,
        "scheme": "http",
        "server": ("127.0.0.1", 8000),
        "client": ("127.0.0.1", 40000),
        "state": {},
    }
    await application(front, **options)(scope, receive, send)
    head = {name.decode(): text.decode() for name, text in sent[0]["headers"]}
    whole = b"".join(message.get("body", b"") for message in sent[1:])
    return Answer(sent[0]["status"], head, whole)

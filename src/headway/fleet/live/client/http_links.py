"""Reach a server over HTTP with the standard library: connections are kept open and used again."""

import asyncio
import http.client
import ssl
import threading
import time
from asyncio import Future, StreamReader, StreamWriter
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from headway.errors import NoServerError, RequestLostError, ServeError
from headway.fleet.live.client.links import LOST, too_long
from headway.fleet.live.doors.control import Question, Status, Submit
from headway.fleet.live.doors.front import Reply
from headway.fleet.live.doors.values import from_json, to_json

KEPT_OPEN_S = 60.0
"""A connection that lay idle longer is not used again: the server may be about to close it."""
_LONGEST_HEAD = 1 << 16


class Address(NamedTuple):
    """Where a server listens."""

    host: str
    port: int
    secure: bool
    path: str
    """Before the paths of the server, where it stands behind a proxy."""


class HttpRequest(NamedTuple):
    """A request as HTTP has it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


def address_of(text: str) -> Address:
    """Return the parts of ``http://host:8000``."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ServeError(f"server {text!r}: not an address like http://127.0.0.1:8000")
    secure = parts.scheme == "https"
    return Address(parts.hostname, port or (443 if secure else 80), secure, parts.path.rstrip("/"))


def request_of(question: Question, address: Address, token: str) -> HttpRequest:
    """Return a question as an HTTP request."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    if isinstance(question, Status):
        return HttpRequest("GET", f"{address.path}/v1/status", headers, b"")
    if not isinstance(question, Submit):
        raise ServeError("a server is drained and stopped on its own machine: headway serve drain, headway serve stop")
    if question.deadline_ns:
        headers["X-Headway-Deadline"] = f"{question.deadline_ns}ns"
    for name, text in (
        ("Idempotency-Key", question.key),
        ("X-Headway-Tenant", question.tenant),
        ("X-Headway-Priority", str(question.priority or "")),
    ):
        if text:
            headers[name] = _header(name, text)
    if isinstance(question.value, bytes):
        headers["Content-Type"], body = "application/octet-stream", question.value
    else:
        headers["Content-Type"], body = "application/json", to_json({"input": question.value})
    return HttpRequest("POST", f"{address.path}/v1/graphs/{quote(question.graph, safe='')}", headers, body)


def _header(name: str, text: str) -> str:
    if not text.isascii() or not text.isprintable():
        raise ServeError(f"{name} {text!r}: over HTTP, printable ASCII alone")
    return text


def reply_from(status: int, retry_after: str, body: bytes) -> Reply:
    """Return an HTTP answer as every door says it."""
    try:
        value = from_json(body)
    except ServeError:
        value = None
    found: dict[str, Any] = value if isinstance(value, dict) else {}
    if status == 200:
        return Reply(200, found.get("output", found))
    try:
        retry_after_s = float(retry_after or 0)
    except ValueError:
        retry_after_s = 0.0
    reason = found.get("error") or f"HTTP status {status}: it may be no server of headway"
    return Reply(status, None, str(reason), retry_after_s, str(found.get("field", "")))


class HttpLink:
    """Connections that threads take and give back."""

    def __init__(self, address: str, token: str) -> None:
        self._text, self._address, self._token = address, address_of(address), token
        self._idle: list[tuple[float, http.client.HTTPConnection]] = []
        self._lock = threading.Lock()

    def ask(self, question: Question, timeout_s: float | None) -> Reply:
        """Return the answer to a question."""
        request = request_of(question, self._address, self._token)
        link = self._connection(timeout_s)
        try:
            link.request(request.method, request.path, request.body or None, request.headers)
            answer = link.getresponse()
            reply = reply_from(answer.status, answer.getheader("Retry-After", ""), answer.read())
        except TimeoutError:
            link.close()
            raise too_long(timeout_s) from None
        except (OSError, http.client.HTTPException) as problem:
            link.close()
            raise RequestLostError(f"{self._text}: {LOST} ({problem})") from None
        except BaseException:
            link.close()
            raise
        if not answer.will_close:
            with self._lock:
                self._idle.append((time.monotonic(), link))
        return reply

    def _connection(self, timeout_s: float | None) -> http.client.HTTPConnection:
        with self._lock:
            while self._idle:
                since, link = self._idle.pop()
                if time.monotonic() - since < KEPT_OPEN_S and link.sock is not None:
                    link.sock.settimeout(timeout_s)
                    return link
                link.close()
        kind = http.client.HTTPSConnection if self._address.secure else http.client.HTTPConnection
        link = kind(self._address.host, self._address.port, timeout=timeout_s)
        try:
            link.connect()
        except OSError as problem:
            raise NoServerError(f"no server answers at {self._text}: {problem.strerror or problem}") from None
        return link

    def close(self) -> None:
        """Close the connections that lie idle."""
        with self._lock:
            while self._idle:
                self._idle.pop()[1].close()


class AsyncHttpLink:
    """A connection for each request in flight, used again."""

    def __init__(self, address: str, token: str) -> None:
        self._text, self._address, self._token = address, address_of(address), token
        self._idle: list[tuple[float, StreamReader, StreamWriter]] = []

    async def open(self) -> None:
        """Do nothing: connections are opened when they are needed."""

    def ask(self, question: Question, timeout_s: float | None) -> "Future[Reply]":
        """Return the future of the answer to a question."""
        request = request_of(question, self._address, self._token)
        return asyncio.ensure_future(self._answered(request, timeout_s))

    async def _answered(self, request: HttpRequest, timeout_s: float | None) -> Reply:
        try:
            async with asyncio.timeout(timeout_s):
                reader, writer = await self._connection()
                try:
                    reply, again = await self._exchanged(reader, writer, request)
                except BaseException:
                    writer.close()
                    raise
        except TimeoutError:
            raise too_long(timeout_s) from None
        except (OSError, EOFError, ValueError, IndexError, asyncio.LimitOverrunError) as problem:
            raise RequestLostError(f"{self._text}: {LOST} ({problem})") from None
        if again:
            self._idle.append((time.monotonic(), reader, writer))
        else:
            writer.close()
        return reply

    async def _connection(self) -> tuple[StreamReader, StreamWriter]:
        while self._idle:
            since, reader, writer = self._idle.pop()
            if time.monotonic() - since < KEPT_OPEN_S and not writer.is_closing() and not reader.at_eof():
                return reader, writer
            writer.close()
        secure = ssl.create_default_context() if self._address.secure else None
        try:
            return await asyncio.open_connection(
                self._address.host, self._address.port, ssl=secure, limit=_LONGEST_HEAD
            )
        except OSError as problem:
            raise NoServerError(f"no server answers at {self._text}: {problem.strerror or problem}") from None

    async def _exchanged(self, reader: StreamReader, writer: StreamWriter, request: HttpRequest) -> tuple[Reply, bool]:
        """Return the answer, and whether the connection can be used again."""
        headers = {"Host": f"{self._address.host}:{self._address.port}", **request.headers}
        if request.body or request.method == "POST":
            headers["Content-Length"] = str(len(request.body))
        head = "".join(f"{name}: {text}\r\n" for name, text in headers.items())
        writer.write(f"{request.method} {request.path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + request.body)
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        status = int(first.split(maxsplit=2)[1])
        told = {name.strip().lower(): text.strip() for name, _, text in (line.partition(":") for line in lines)}
        if told.get("transfer-encoding", "").lower() == "chunked":
            body = await _chunked(reader)
        else:
            body = await reader.readexactly(int(told.get("content-length", "0")))
        reply = reply_from(status, told.get("retry-after", ""), body)
        return reply, told.get("connection", "").lower() != "close"

    async def close(self) -> None:
        """Close the connections that lie idle."""
        while self._idle:
            writer = self._idle.pop()[2]
            writer.close()


async def _chunked(reader: StreamReader) -> bytes:
    """Return a body that comes in pieces, as a proxy may send it."""
    pieces = []
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        pieces.append(await reader.readexactly(size))
        await reader.readexactly(2)
    while await reader.readuntil(b"\r\n") != b"\r\n":
        pass
    return b"".join(pieces)

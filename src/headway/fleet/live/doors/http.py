"""HTTP door of a server, thin: read a request, hand it to the front, write its reply.

``POST /v1/graphs/NAME`` with ``{"input": VALUE}`` answers ``{"output": VALUE}``; a body of type
application/octet-stream is bytes. Errors are ``{"error": LINE}``, with the field where one is wrong. Values are JSON:
nothing that comes over the network is unpickled.
"""

import asyncio
import hmac
import math
import re
from typing import Any
from urllib.parse import urlsplit

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from headway import __version__
from headway.errors import InputError, ServeError, printable
from headway.fleet.live.doors import prometheus
from headway.fleet.live.doors.front import MOST_BODY_BYTES, Call, Front, Reply
from headway.fleet.live.doors.loopback import is_loopback
from headway.fleet.live.doors.openapi import path_item
from headway.fleet.live.doors.values import from_json, plain, to_json, wrapped
from headway.units import format_size, parse_duration

BODY_S = 30.0
"""A body that takes longer to come is given up."""
BYTES_TYPE = "application/octet-stream"
FIELDS = {
    "deadline": "X-Headway-Deadline",
    "key": "Idempotency-Key",
    "tenant": "X-Headway-Tenant",
    "priority": "X-Headway-Priority",
}
"""The header that holds each part of a request."""
_OPEN = ("/healthz", "/readyz")
"""Paths that need no token: they say nothing but whether the server is there."""
_TRACE = {
    "traceparent": re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[\x21-\x7e]{0,256})?"),
    "tracestate": re.compile(r"[\x20-\x7e]{1,512}"),
}


class _RefusedError(Exception):
    """A request that is answered before it reaches the front."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.reason)
        self.reply = reply


def application(front: Front, *, token: str = "", most_body_bytes: int = MOST_BODY_BYTES) -> ASGIApp:
    """Return the application that uvicorn runs; with a token, requests must carry it."""
    app = FastAPI(
        title="headway",
        description="Pipelines that headway serves.",
        version=__version__,
        redoc_url=None,
        redirect_slashes=False,
    )
    names = sorted(front.server.graphs)

    async def call(request: Request) -> Response:
        name = request.path_params["name"]
        try:
            reply = _in_headers(await front.answered(await _call(name, request, most_body_bytes)))
        except _RefusedError as refused:
            front.counts.add(name if name in names else "", refused.reply.status)
            reply = refused.reply
        return _response(reply, _passed_on(request))

    # A route of Starlette: it reads its own body, and what FastAPI does for each request would take twice as long.
    app.add_route("/v1/graphs/{name}", call, methods=["POST"])

    @app.get("/v1/status")
    async def status() -> Response:
        """Say what is going on: graphs, requests, workers."""
        return Response(to_json(plain(front.status())), media_type="application/json")

    @app.get("/healthz")
    async def healthz() -> Response:
        """Say that the server is there."""
        return Response(b'{"ok":true}', media_type="application/json")

    @app.get("/readyz", responses={503: {"description": "It starts or drains."}})
    async def readyz() -> Response:
        """Say whether requests are taken."""
        body = b'{"ready":true}' if front.takes_requests else b'{"ready":false}'
        return Response(body, 200 if front.takes_requests else 503, media_type="application/json")

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Return what is counted, for Prometheus."""
        return Response(prometheus.text_of(front), media_type=prometheus.CONTENT_TYPE)

    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_problem)
    app.openapi()["paths"]["/v1/graphs/{name}"] = path_item(names, wrapped(front.examples))
    return _Guard(app, token)


# --- a request ------------------------------------------------------------------------------------------------------


async def _call(name: str, request: Request, most_bytes: int) -> Call:
    """Return a request as the front takes it; raise _RefusedError where it cannot be read."""
    headers = request.headers
    deadline, priority = _deadline(headers.get("x-headway-deadline")), _priority(headers.get("x-headway-priority"))
    body = await _body(request, most_bytes)
    if headers.get("content-type", "").partition(";")[0].strip().lower() == BYTES_TYPE:
        value: Any = body
    else:
        value = _input(body)
    key, tenant = headers.get("idempotency-key", ""), headers.get("x-headway-tenant", "")
    return Call(name, value, deadline, key, tenant, priority)


async def _body(request: Request, most_bytes: int) -> bytes:
    """Return the body, read no further than the limit."""
    told = request.headers.get("content-length", "")
    if told.isdecimal() and int(told) > most_bytes:
        raise _too_large(most_bytes)
    pieces, size = [], 0
    try:
        async with asyncio.timeout(BODY_S):
            async for piece in request.stream():
                size += len(piece)
                if size > most_bytes:
                    raise _too_large(most_bytes)
                pieces.append(piece)
    except TimeoutError:
        raise _RefusedError(Reply(408, reason=f"the body did not come within {BODY_S:g} s")) from None
    except ClientDisconnect:
        raise _RefusedError(Reply(400, reason="the client left before its body was complete")) from None
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _too_large(most_bytes: int) -> _RefusedError:
    return _RefusedError(
        Reply(413, reason=f"the body is larger than {format_size(most_bytes)}, the --most-body of this server")
    )


def _input(body: bytes) -> Any:
    """Return the input that a JSON body holds."""
    try:
        document = from_json(body)
    except ServeError as problem:
        raise _wrong("body", f'{problem}; write {{"input": …}}, or send bytes as {BYTES_TYPE}') from None
    if not isinstance(document, dict) or "input" not in document:
        raise _wrong("input", 'the body has no field "input": write {"input": …}')
    if others := [name for name in document if name != "input"]:
        header = f"; {others[0]} is a header, {FIELDS[others[0]]}" if others[0] in FIELDS else ""
        raise _wrong(others[0], f"the body has an unknown field {others[0]!r}: its one field is input{header}")
    return document["input"]


def _deadline(text: str | None) -> int:
    if text is None:
        return 0
    try:
        time = parse_duration(text, what="deadline")
    except (InputError, ValueError, OverflowError) as problem:
        raise _wrong(FIELDS["deadline"], str(problem)) from None
    if time <= 0:
        raise _wrong(FIELDS["deadline"], f"deadline {text!r}: longer than nothing, like 600ms")
    return time


def _priority(text: str | None) -> int:
    if text is None:
        return 0
    if not re.fullmatch(r"[0-9]{1,3}", text.strip()):
        raise _wrong(FIELDS["priority"], f"priority {text[:40]!r}: a whole number, 0 to 100")
    return int(text)


def _wrong(field: str, reason: str) -> _RefusedError:
    return _RefusedError(Reply(422, reason=reason, field=field))


# --- an answer ------------------------------------------------------------------------------------------------------


def _in_headers(reply: Reply) -> Reply:
    """Return a reply that names the header in which a field came."""
    return msgspec.structs.replace(reply, field=FIELDS[reply.field]) if reply.field in FIELDS else reply


def _response(reply: Reply, headers: dict[str, str]) -> Response:
    """Return a reply as HTTP."""
    if reply.status == 200:
        try:
            return Response(to_json({"output": reply.value}), headers=headers, media_type="application/json")
        except ServeError as problem:
            reply = Reply(500, reason=f"the result cannot be sent: {problem}")
    if reply.retry_after_s:
        headers["Retry-After"] = str(max(1, math.ceil(reply.retry_after_s)))
    told: dict[str, Any] = {"error": printable(reply.reason)}
    if reply.field:
        told["field"] = reply.field
    return Response(_error(told), reply.status, headers, media_type="application/json")


def _error(told: dict[str, Any]) -> bytes:
    try:
        return to_json(told)
    except ServeError:  # half of a surrogate pair, out of somebody's task
        return to_json({key: text.encode("utf-8", "replace").decode() for key, text in told.items()})


def _passed_on(request: Request) -> dict[str, str]:
    """Return the trace headers of a request, for its answer."""
    found = {name: request.headers.get(name, "") for name in _TRACE}
    return {name: text for name, text in found.items() if _TRACE[name].fullmatch(text)}


async def _invalid(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, RequestValidationError)
    first = problem.errors()[0]
    field = str(first["loc"][-1])
    return _response(Reply(422, reason=f"{field}: {first['msg']}", field=field), {})


async def _http_problem(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    reason = {404: "no such path: POST /v1/graphs/NAME, or see /docs", 405: "not a method of this path"}
    answer = _response(Reply(problem.status_code, reason=reason.get(problem.status_code, str(problem.detail))), {})
    answer.headers.update(problem.headers or {})
    return answer


class _Guard:
    """Refuses requests without the token, and those that a web page of another site makes a browser send."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what is allowed."""
        if scope["type"] == "http" and scope["path"] not in _OPEN and (refusal := self._refusal(scope["headers"])):
            headers = {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else {}
            await _response(refusal, headers)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _refusal(self, headers: list[tuple[bytes, bytes]]) -> Reply | None:
        if self._token:
            given = next((text for name, text in headers if name == b"authorization"), b"")
            kind, _, secret = given.partition(b" ")
            if kind.lower() == b"bearer" and hmac.compare_digest(secret.strip(), self._token):
                return None
            return Reply(401, reason="send the token of the server: Authorization: Bearer TOKEN")
        about = {name: text.decode("latin-1") for name, text in headers if name in (b"origin", b"host")}
        if b"origin" in about and not _is_local(about[b"origin"]):
            return Reply(403, reason="a web page of another site: without a token, programs of this machine alone")
        if b"host" in about and not _is_local(f"//{about[b'host']}"):  # a name of others that leads here
            return Reply(403, reason=f"host {about[b'host'][:80]!r} is not this machine: use 127.0.0.1, or a token")
        return None


def _is_local(origin: str) -> bool:
    try:
        return is_loopback(urlsplit(origin).hostname or "")
    except ValueError:
        return False

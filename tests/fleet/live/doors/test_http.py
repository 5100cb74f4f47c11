"""The HTTP door: what a request may look like, the status of every outcome, and that nothing odd makes it fail."""

import asyncio
import json
import re
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from headway.fleet.live.doors.front import Front
from headway.fleet.live.doors.http import application
from tests.fleet.live.doors.doors import Answer, asked
from tests.fleet.live.fake import FakeServer

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TOKEN = "a-token-of-twenty-letters"


def ask(*args: Any, front: Front | None = None, **options: Any) -> Answer:
    """Ask once."""

    async def play() -> Answer:
        return await asked(front or Front(FakeServer()), *args, **options)

    return asyncio.run(play())


def told(answer: Answer) -> dict[str, Any]:
    found = json.loads(answer.body)
    assert isinstance(found, dict)
    return found


def test_a_value_comes_back() -> None:
    answer = ask(body='{"input": {"text": "héllo", "image": {"base64": "AP8="}}}'.encode())
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert told(answer) == {"output": {"text": "héllo", "image": {"base64": "AP8="}}}


def test_a_raw_body_is_bytes() -> None:
    answer = ask(body=b"\0\xff", headers={"Content-Type": "application/octet-stream"}, pieces=2)
    assert told(answer) == {"output": {"base64": "AP8="}}


def test_headers_say_deadline_tenant_priority_and_trace() -> None:
    server = FakeServer()
    headers = {
        "X-Headway-Deadline": "600ms",
        "X-Headway-Tenant": "lab",
        "X-Headway-Priority": "7",
        "traceparent": TRACE,
        "tracestate": "a=1,b=2",
    }
    answer = ask(headers=headers, front=Front(server))
    assert server.accepted == [("echo", 1, 600_000_000, "lab", 7)]
    assert (answer.headers["traceparent"], answer.headers["tracestate"]) == (TRACE, "a=1,b=2")
    assert "traceparent" not in ask(headers={"traceparent": "nonsense"}).headers


@pytest.mark.parametrize(
    ("graph", "status", "line"),
    [
        ("nope", 404, "unknown graph 'nope' (valid: echo, fails, full, held, late, odd)"),
        ("full", 429, "120 requests wait, at most 120"),
        ("fails", 500, "task caption: ValueError: no image"),
        ("late", 504, "late by 3 ms: task caption waited for its model"),
    ],
)
def test_each_outcome_has_its_status_and_its_reason(graph: str, status: int, line: str) -> None:
    answer = ask(f"/v1/graphs/{graph}")
    assert (answer.status, told(answer)["error"]) == (status, line)
    assert answer.headers.get("retry-after") == ("3" if status == 429 else None)


def test_a_server_that_drains_starts_or_has_failed_is_unavailable() -> None:
    for change in ("draining", "starting", "failed"):
        front = Front(FakeServer())
        front.draining = change == "draining"
        front.server.ready = change != "starting"  # type: ignore[misc]
        front.server.failure = "the policy failed" if change == "failed" else ""  # type: ignore[misc]
        answer = ask("/v1/graphs/full", front=front)
        assert (answer.status, "retry-after" in answer.headers) == (503, True)
        assert ask("/readyz", method="GET", front=front).status == 503
        assert ask("/healthz", method="GET", front=front).status == 200


@pytest.mark.parametrize(
    ("body", "headers", "field"),
    [
        (b"", {}, "body"),
        (b"{", {}, "body"),
        (b"text", {}, "body"),
        (b"[1]", {}, "input"),
        (b'{"inputs": 1}', {}, "input"),
        (b'{"input": 1, "deadline": "1s"}', {}, "deadline"),
        (b'{"input": 1}', {"X-Headway-Deadline": "soon"}, "X-Headway-Deadline"),
        (b'{"input": 1}', {"X-Headway-Deadline": "0s"}, "X-Headway-Deadline"),
        (b'{"input": 1}', {"X-Headway-Deadline": "9999w"}, "X-Headway-Deadline"),
        (b'{"input": 1}', {"X-Headway-Priority": "-1"}, "X-Headway-Priority"),
        (b'{"input": 1}', {"X-Headway-Priority": "101"}, "X-Headway-Priority"),
        (b'{"input": 1}', {"Idempotency-Key": "k" * 256}, "Idempotency-Key"),
        (b'{"input": 1}', {"X-Headway-Tenant": "t" * 256}, "X-Headway-Tenant"),
    ],
)
def test_what_is_wrong_is_named_by_its_field(body: bytes, headers: dict[str, str], field: str) -> None:
    answer = ask(body=body, headers=headers)
    assert (answer.status, told(answer)["field"]) == (422, field)


def test_a_body_that_is_too_large_is_refused_before_it_is_read() -> None:
    taken: list[int] = []

    async def receive() -> dict[str, Any]:
        taken.append(1)
        return {"type": "http.request", "body": b"x" * 60, "more_body": True}

    async def play(headers: list[tuple[bytes, bytes]]) -> int:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        path = "/v1/graphs/echo"
        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "headers": headers,
            "query_string": b"",
            "root_path": "",
        }
        await application(Front(FakeServer()), most_body_bytes=100)(scope, receive, send)
        assert b"larger than 100 B, the --most-body of this server" in sent[1]["body"]
        return int(sent[0]["status"])

    assert asyncio.run(play([(b"content-length", b"101")])) == 413
    assert taken == []
    assert asyncio.run(play([])) == 413
    assert len(taken) == 2


def test_a_bug_behind_the_door_is_one_line_and_no_traceback() -> None:
    server = FakeServer()

    def wrong(value: Any) -> Any:
        future = asyncio.get_running_loop().create_future()
        future.set_exception(ZeroDivisionError("division by zero"))
        return future

    server.submit = lambda graph, value, **more: wrong(value)  # type: ignore[method-assign,assignment,misc]
    answer = ask(front=Front(server))
    assert (answer.status, told(answer)["error"]) == (500, "internal error: ZeroDivisionError: division by zero")


# --- who may ask ----------------------------------------------------------------------------------------------------


def test_with_a_token_every_path_but_the_health_checks_asks_for_it() -> None:
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    assert ask(headers=bearer, token=TOKEN).status == 200
    for path, method in (("/v1/graphs/echo", "POST"), ("/metrics", "GET"), ("/v1/status", "GET"), ("/docs", "GET")):
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}):
            answer = ask(path, method=method, headers=headers, token=TOKEN)
            assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert ask("/healthz", method="GET", token=TOKEN).status == 200


def test_without_a_token_a_page_of_another_site_is_refused() -> None:
    for origin in ("https://evil.example", "null", "http://[", "http://127.0.0.1.evil.example"):
        assert ask(headers={"Origin": origin}).status == 403
    assert ask(headers={"Origin": "http://localhost:8000"}).status == 200


def test_without_a_token_a_name_of_others_that_leads_here_is_refused() -> None:
    for host in ("evil.example", "evil.example:8000", "127.evil.example", "127.0.0.1.evil.example", "[::2]:8000", "["):
        assert ask(headers={"Host": host}).status == 403, host
    for host in ("localhost:8000", "127.0.0.1", "127.0.0.2:8000", "[::1]:8000"):
        assert ask(headers={"Host": host}).status == 200, host


# --- what is said of it -----------------------------------------------------------------------------------------


def test_openapi_describes_the_graphs_and_every_status() -> None:
    front = Front(FakeServer(), examples={"echo": b"\0"})
    found = told(ask("/openapi.json", method="GET", front=front))
    call = found["paths"]["/v1/graphs/{name}"]["post"]
    assert call["parameters"][0]["schema"]["enum"] == ["echo", "fails", "full", "held", "late", "odd"]
    assert {"200", "404", "413", "422", "429", "500", "503", "504"} <= set(call["responses"])
    example = call["requestBody"]["content"]["application/json"]["examples"]["echo"]["value"]
    assert example == {"input": {"base64": "AA=="}}
    assert {"/healthz", "/readyz", "/metrics", "/v1/status"} <= set(found["paths"])


def test_the_metrics_are_lines_that_prometheus_reads() -> None:
    async def play() -> str:
        front = Front(FakeServer())
        for graph in ("echo", "echo", "full", 'no"such'):
            await asked(front, f"/v1/graphs/{graph}")
        return (await asked(front, "/metrics", method="GET")).body.decode()

    text = asyncio.run(play())
    line = re.compile(r'[a-z_]+(\{[a-z]+="[^"\\]*"(,[a-z]+="[^"\\]*")*\})? [0-9.e+-]+')
    lines = text.splitlines()
    assert all(each.startswith(("# HELP ", "# TYPE ")) or line.fullmatch(each) for each in lines)
    assert 'headway_requests_total{graph="echo",outcome="ok"} 2' in lines
    assert 'headway_requests_total{graph="full",outcome="refused"} 1' in lines
    assert 'headway_requests_total{graph="",outcome="invalid"} 1' in lines
    assert 'headway_request_seconds_bucket{graph="echo",le="+Inf"} 2' in lines
    assert "headway_workers_up 1" in lines
    assert 'headway_drift_ratio{task="vit"} 1.25' in lines
    assert "headway_cache_hits_total 2" in lines
    assert 'headway_worker_booked_bytes{worker="w0"} 10' in lines
    named = {each.split()[2] for each in lines if each.startswith("# TYPE")}
    assert {"headway_open", "headway_tasks_total", "headway_moved_bytes_total", "headway_ready"} <= named


def test_the_status_has_what_the_server_and_the_doors_know() -> None:
    found = told(ask("/v1/status", method="GET"))
    assert found["server"]["policy"] == "hash"
    assert found["graphs"] == ["echo", "fails", "full", "held", "late", "odd"]


# --- anything ---------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.just("base64") | st.just("input"), inner),
    max_leaves=12,
)
BODIES = (
    st.binary(max_size=200)
    | JSON.map(lambda value: json.dumps(value).encode())
    | JSON.map(lambda value: json.dumps({"input": value}).encode())
)
VALUES = st.text(st.characters(max_codepoint=255, exclude_characters="\r\n\0"), max_size=300) | st.sampled_from(
    [
        "600ms",
        "1e400s",
        "1e-9ns",
        "-1",
        "²",
        "7",
        "0",
        "nan",
        "inf",
        "application/json",
        "application/octet-stream",
        TRACE,
    ]
)
NAMES = st.sampled_from(
    [
        *("content-type", "x-headway-deadline", "x-headway-priority", "x-headway-tenant", "idempotency-key"),
        *("content-length", "traceparent", "tracestate", "accept", "expect", "range"),
    ]
)
PATHS = st.sampled_from(["echo", "fails", "full", "late", "odd"]) | st.text(max_size=20)
MEANT = {"fails": {500}, "late": {504}}


@settings(max_examples=300)
@given(
    graph=PATHS,
    body=BODIES,
    headers=st.dictionaries(NAMES, VALUES, max_size=5),
    method=st.sampled_from(["POST", "POST", "POST", "GET", "PUT", "DELETE", "HEAD"]),
    pieces=st.integers(1, 4),
)
def test_whatever_is_sent_only_the_meant_errors_come_back(
    graph: str, body: bytes, headers: dict[str, str], method: str, pieces: int
) -> None:
    given_headers = [(name.encode(), text.encode("latin-1")) for name, text in headers.items()]
    path = f"/v1/graphs/{graph}".encode("utf-8", "replace").decode()
    answer = ask(path, body, given_headers, method=method, pieces=pieces)
    assert answer.status < 500 or answer.status in MEANT.get(graph, set())
    if answer.status != 200:
        found = told(answer)
        assert found["error"]
        assert "Traceback" not in found["error"]
        assert answer.status != 422 or found["field"]

"""The load generator: an open loop, latency from the due time, every request accounted for."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.errors import ServeError
from headway.fleet.live.client.client import AsyncClient
from headway.fleet.live.load.sender import Measured, Plan, event_loop, read_inputs, run_load
from headway.units import MILLISECOND, SECOND
from tests.fleet.live.doors.doors import Running, running

OUTCOMES = ("ok", "late", "refused", "failed", "unavailable", "invalid", "lost", "unanswered")


def plan(graphs: list[str], gap: int = MILLISECOND, deadline: int = 0, inputs: tuple[Any, ...] = (1,)) -> Plan:
    times = np.arange(len(graphs), dtype=np.int64) * gap
    names = set(graphs)
    return Plan(times, graphs, dict.fromkeys(names, inputs), dict.fromkeys(names, deadline))


def measured(run: Running, planned: Plan, **options: Any) -> Measured:
    async def play() -> Measured:
        client = AsyncClient(run.folder)
        try:
            return await run_load(client, planned, **options)
        finally:
            await client.close()

    with asyncio.Runner(loop_factory=event_loop) as runner:
        return runner.run(play())


def test_every_request_is_counted_once_by_what_became_of_it(tmp_path: Path) -> None:
    graphs = ["echo", "fails", "late", "full", "echo"] * 20
    with running(tmp_path / "s", port=None) as run:
        told: list[str] = []
        found = measured(run, plan(graphs), tell=lambda what, share: told.append(what))
    summary = found.summary()
    assert summary["requests"] == 100 == sum(summary[name] for name in OUTCOMES)
    assert {name: summary[name] for name in OUTCOMES if summary[name]} == {
        "ok": 40,
        "failed": 20,
        "late": 20,
        "refused": 20,
    }
    assert sorted(summary["errors"].values()) == [20, 20, 20]
    assert summary["errors"]["task caption: ValueError: no image"] == 20
    assert summary["graphs"]["echo"]["requests"] == 40
    assert summary["slo_hit_rate"] is None
    assert 0 < summary["latency_p50_s"] <= summary["latency_p90_s"] <= summary["latency_p99_s"]
    assert summary["latency_p99_s"] <= summary["latency_max_s"]
    assert told[0].endswith("in flight")


def test_latency_counts_from_the_due_time_and_a_late_generator_says_so() -> None:
    """A server that blocks the generator's own loop: what was due meanwhile is late by as much."""
    now = [0]

    class Blocking:
        async def open(self) -> None:
            pass

        def ask(self, question: Any) -> Any:
            from headway.fleet.live.doors.front import Reply

            now[0] += 1
            if now[0] == 1:
                import time

                time.sleep(0.05)
            future = asyncio.get_running_loop().create_future()
            future.set_result(Reply(200, 1))
            return future

    found = asyncio.run(run_load(Blocking(), plan(["echo"] * 10, deadline=20 * MILLISECOND)))  # type: ignore[arg-type]
    assert (found.latency >= 40 * MILLISECOND).all()
    assert (found.lag[1:] >= 40 * MILLISECOND).all()
    assert found.summary()["slo_hit_rate"] == 0.0
    assert found.summary()["lag_p99_s"] >= 0.04


def test_deadlines_are_sent_and_hits_are_counted(tmp_path: Path) -> None:
    with running(tmp_path / "s", port=None) as run:
        found = measured(run, plan(["echo", "late"] * 10, deadline=30 * SECOND))
        assert {row[2] for row in run.server.accepted} == {30 * SECOND}
    assert found.summary()["slo_hit_rate"] == 0.5
    assert found.summary()["graphs"]["echo"]["slo_hit_rate"] == 1.0


def test_inputs_are_taken_in_turn(tmp_path: Path) -> None:
    with running(tmp_path / "s", port=None) as run:
        measured(run, plan(["echo"] * 5, inputs=("a", "b")))
        assert [row[1] for row in run.server.accepted] == ["a", "b", "a", "b", "a"]


def test_an_interrupted_load_keeps_what_was_measured(tmp_path: Path) -> None:
    with running(tmp_path / "s", port=None) as run:

        async def play() -> Measured:
            client = AsyncClient(run.folder)
            work = asyncio.ensure_future(run_load(client, plan(["held"] * 3 + ["echo"] * 5000, 10 * MILLISECOND)))
            while len(run.server.accepted) < 10:
                await asyncio.sleep(0.005)
            work.cancel()
            found = await work
            await client.close()
            return found

        summary = asyncio.run(play()).summary()
    assert summary["stopped"]
    assert summary["unanswered"] >= 3
    assert summary["ok"] >= 5
    assert summary["requests"] == sum(summary[name] for name in OUTCOMES) < 5003


def test_requests_to_a_server_that_ends_are_lost(tmp_path: Path) -> None:
    with running(tmp_path / "s", port=None) as run:

        async def play() -> Measured:
            client = AsyncClient(run.folder)
            work = asyncio.ensure_future(run_load(client, plan(["held"] * 5)))
            while len(run.server.accepted) < 5:
                await asyncio.sleep(0.001)
            other = AsyncClient(run.folder)
            await other.stop(drain=False)
            found = await work
            await client.close()
            await other.close()
            return found

        summary = asyncio.run(play()).summary()
    assert summary["lost"] == 5
    assert list(summary["errors"]) == ["the server ended, or closed the connection, before it answered"]


def test_inputs_are_json_lines_of_json_or_bytes(tmp_path: Path) -> None:
    for name, content, value in (
        ("a.json", b'{"x": {"base64": "AA=="}}', [{"x": b"\0"}]),
        ("b.jsonl", b'1\n\n"two"\n', [1, "two"]),
        ("c.jpg", b"\xff\xd8", [b"\xff\xd8"]),
    ):
        (tmp_path / name).write_bytes(content)
        assert read_inputs(str(tmp_path / name)) == value
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "empty.jsonl").write_text("\n")
    for name, line in (("bad.json", "not JSON"), ("empty.jsonl", "empty"), ("none", "No such file")):
        with pytest.raises(ServeError, match=f"--input .*{name}: .*{line}"):
            read_inputs(str(tmp_path / name))

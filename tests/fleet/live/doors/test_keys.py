"""Answers by key: one a key, for ten minutes, over restarts, in bounded space."""

import asyncio
import sqlite3
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from headway.errors import ServeError
from headway.fleet.live.doors import keys as stored
from headway.fleet.live.doors.front import Call, Front, Reply
from headway.fleet.live.doors.keys import StoredKeys
from headway.units import DAY, MILLISECOND
from tests.fleet.live.fake import FakeServer


def run(work: "Coroutine[Any, Any, Any]") -> Any:
    return asyncio.run(work)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def _kept(keys: StoredKeys, *names: str) -> list[str]:
    return [name for name in names if await keys.find("", name) is not None]


def test_a_second_answer_under_a_key_is_the_first(tmp_path: Path) -> None:
    async def play() -> None:
        keys = StoredKeys(tmp_path / "keys.sqlite")
        assert await keys.keep("", "a", b"1", Reply(200, {"x": b"\0"})) == Reply(200, {"x": b"\0"})
        assert await keys.keep("", "a", b"1", Reply(500, reason="no")) == Reply(200, {"x": b"\0"})
        assert await keys.find("", "a") == (b"1", Reply(200, {"x": b"\0"}))
        assert await keys.find("other tenant", "a") is None
        keys.close()

    run(play())
    assert (tmp_path / "keys.sqlite").stat().st_mode & 0o077 == 0


def test_answers_go_after_their_time_and_outlive_a_restart(tmp_path: Path) -> None:
    async def play() -> None:
        clock = Clock()
        keys = StoredKeys(tmp_path / "k", clock=clock)
        await keys.keep("", "a", b"1", Reply(200, 1))
        keys.close()
        clock.now += 599
        keys = StoredKeys(tmp_path / "k", clock=clock)
        assert await _kept(keys, "a") == ["a"]
        clock.now += 1
        assert await _kept(keys, "a") == []
        assert await keys.keep("", "a", b"2", Reply(200, 2)) == Reply(200, 2)
        keys.close()

    run(play())


def test_the_oldest_go_where_there_are_too_many_or_too_much(tmp_path: Path) -> None:
    async def play() -> None:
        clock = Clock()
        for limits in ({"most_keys": 10}, {"most_bytes": 3000}):
            (tmp_path / "k").unlink(missing_ok=True)
            keys = StoredKeys(tmp_path / "k", clock=clock, **limits)
            names = [f"k{number}" for number in range(40)]
            for name in names:
                clock.now += 1
                await keys.keep("", name, b"1", Reply(200, "x" * 280))
            kept = await _kept(keys, *names)
            assert 5 <= len(kept) <= 11
            assert kept == names[-len(kept) :]
            keys.close()
            base = sqlite3.connect(tmp_path / "k")
            assert base.execute("SELECT count(*) FROM answers").fetchone() == (len(kept),)
            base.close()

    run(play())


def test_keys_that_share_a_hash_have_answers_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "_SLOTS", 1)

    async def play() -> None:
        clock = Clock()
        keys = StoredKeys(tmp_path / "k", clock=clock)
        for number, name in enumerate("abc"):
            assert await keys.find("", name) is None
            assert await keys.keep("", name, b"1", Reply(200, number)) == Reply(200, number)
            clock.now += 200
        assert await keys.find("", "c") == (b"1", Reply(200, 2))
        assert await keys.keep("", "d", b"1", Reply(200, 3)) == Reply(200, 3)  # the first has gone by now
        assert await _kept(keys, *"abcd") == ["b", "c", "d"]
        keys.close()

    run(play())


def test_memory_holds_none_of_the_keys_that_are_kept(tmp_path: Path) -> None:
    async def play() -> None:
        keys = StoredKeys(tmp_path / "k")
        await keys.keep("", "first", b"1", Reply(200, 1))
        before = sum(sys.getsizeof(value) for value in vars(keys).values())
        for number in range(300):
            await keys.keep("", f"k{number}", b"1", Reply(200, 1))
        assert sum(sys.getsizeof(value) for value in vars(keys).values()) == before
        keys.close()

    run(play())


def test_a_file_that_is_no_database_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "k").write_bytes(b"not a database, but long enough to be looked at" * 30)
    with pytest.raises(ServeError, match="cannot be used for answers by key"):
        StoredKeys(tmp_path / "k")


# --- behind the front -----------------------------------------------------------------------------------------


def test_a_retry_gets_the_first_answer_while_it_is_in_flight_and_after(tmp_path: Path) -> None:
    async def play() -> None:
        server, keys = FakeServer(), StoredKeys(tmp_path / "k")
        front = Front(server, keys)
        call = Call("held", [1], key="a")
        first, second = (asyncio.ensure_future(front.answered(call)) for _ in range(2))
        while not server.waiting:
            await asyncio.sleep(0)
        other = await front.answered(Call("held", [2], key="a"))
        assert (other.status, other.field) == (422, "key")
        server.release()
        assert (await first, await second) == (Reply(200, [1]), Reply(200, [1]))
        assert await front.answered(call) == Reply(200, [1])
        assert (await front.answered(Call("echo", [1], key="a"))).status == 422
        assert len(server.accepted) == 1
        keys.close()
        keys = StoredKeys(tmp_path / "k")
        again = Front(server, keys)
        assert await again.answered(call) == Reply(200, [1])
        assert len(server.accepted) == 1
        assert front.counts.rows()["held"]["repeated"] == 2
        keys.close()

    run(play())


def test_failures_of_accepted_requests_are_kept_and_refusals_are_not(tmp_path: Path) -> None:
    async def play() -> None:
        server, keys = FakeServer(), StoredKeys(tmp_path / "k")
        front = Front(server, keys)
        for graph, times in (("fails", 1), ("late", 1), ("full", 0)):
            before = len(server.accepted)
            replies = [await front.answered(Call(graph, 1, key=graph)) for _ in range(2)]
            assert replies[0] == replies[1]
            assert len(server.accepted) - before == times
        assert await keys.find("", "full") is None
        front.draining = True
        assert (await front.answered(Call("echo", 1, key="new"))).status == 503
        assert (await front.answered(Call("fails", 1, key="fails"))).status == 500
        keys.close()

    run(play())


def test_without_space_for_answers_requests_are_still_answered(tmp_path: Path) -> None:
    async def play() -> list[str]:
        said: list[str] = []
        keys = StoredKeys(tmp_path / "k")
        keys._thread.submit(keys._base.execute, "PRAGMA max_page_count = 1").result()
        keys._thread.submit(keys._base.execute, "PRAGMA wal_checkpoint(TRUNCATE)").result()
        front = Front(FakeServer(), keys, say=said.append)
        assert await front.answered(Call("echo", "x" * 100_000, key="a")) == Reply(200, "x" * 100_000)
        keys.close()
        return said

    (line,) = run(play())
    assert line.startswith("an answer could not be kept under its key: database or disk is full")


@pytest.mark.parametrize("own", [True, False])
def test_a_retry_waits_for_the_first_request_no_longer_than_its_own_deadline(tmp_path: Path, own: bool) -> None:
    async def play() -> None:
        keys, server = StoredKeys(tmp_path / "k"), FakeServer()
        front = Front(server, keys, about={} if own else {"slo_ns": {"held": MILLISECOND}})
        first = asyncio.ensure_future(front.answered(Call("held", 1, key="a", deadline_ns=DAY)))
        while not server.waiting:
            await asyncio.sleep(0.001)
        late = await front.answered(Call("held", 1, key="a", deadline_ns=MILLISECOND if own else 0))
        assert late == Reply(504, reason="late: the first request under key 'a' is still being answered")
        assert not first.done()
        server.release()
        assert await first == Reply(200, 1)
        assert await front.answered(Call("held", 1, key="a")) == Reply(200, 1)  # that is what is kept
        keys.close()

    run(play())

"""The store of a queue: whole transactions, disks that are full, clocks that are set."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.errors import QueueError
from headway.jobs.live import ground as live
from headway.jobs.live.store import Program, Store, read
from headway.jobs.model.job import Job
from headway.units import HOUR, SECOND
from tests.jobs.live.queues import Bench

ROW = (5, 1, 0, 0, -1, 0, 0)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A queue with four slots."""
    made = Bench(tmp_path)
    yield made
    made.queue.stop(kill=True, at_once=True)
    made.until(lambda: made.queue.idle)
    made.check()


def test_rows_are_read_back_with_their_notes_and_in_order(tmp_path: Path) -> None:
    store = Store(tmp_path / "queue.sqlite")
    store.begin(b"{}")
    store.submit(Job(0, 0, 7, estimate=7, open_end=True, name="it's"), Program(("a b", "\n"), "/", {"X": "1"}))
    for number in range(3):
        store.journal.append((number, *ROW[1:]))
    store.journal.note("why")
    store.commit()
    assert not store.pending
    store.journal.append((9, *ROW[1:]))
    past = read(tmp_path / "queue.sqlite")
    assert past is not None
    assert past.tape.column("time").tolist() == [0, 1, 2]
    assert past.tape.notes == {2: "why"}
    assert past.jobs[0].name == "it's"
    assert past.programs[0].command == ("a b", "\n")
    store.close()


def test_a_store_of_another_version_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path / "queue.sqlite")
    store._base.execute("PRAGMA user_version=9")
    store.close()
    for opening in (Store, read):
        with pytest.raises(QueueError, match="is of version 9, this headway reads 1"):
            opening(tmp_path / "queue.sqlite")
    (tmp_path / "torn").write_bytes(b"no database at all, and long enough to be looked at" * 40)
    with pytest.raises(QueueError, match="cannot be opened"):
        Store(tmp_path / "torn")


def test_a_full_disk_stops_deciding_loses_nothing_and_says_so(bench: Bench) -> None:
    bench.python("print('one')")
    bench.over()
    base = bench.queue.store._base
    pages = base.execute("PRAGMA page_count").fetchone()[0]
    base.execute(f"PRAGMA max_page_count={pages}")
    taken, refusal = 1, ""
    while not refusal:
        try:
            bench.python("pass", "x" * 500, gpus=0, cpus=1)
            taken += 1
        except QueueError as problem:
            refusal = str(problem)
    assert "cannot be written (database or disk is full): nothing is decided until it can" in refusal
    assert len(bench.past.jobs) == taken
    base.execute("PRAGMA max_page_count=1000000")
    assert bench.python("print('more')") == taken
    assert bench.queue.failure == ""
    bench.over()
    assert set(bench.ends()) == set(range(taken + 1))
    assert bench.out(0) == "one\n"
    assert bench.out(taken) == "more\n"


def test_what_cannot_be_written_down_is_not_carried_out(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    store = bench.queue.store

    def full() -> None:
        if store.pending:
            raise QueueError("the disk is full")

    monkeypatch.setattr(store, "commit", full)
    bench.python("print('later')")
    assert bench.queue.failure == "the disk is full"
    assert bench.queue.status()["failure"] == "the disk is full"
    with pytest.raises(QueueError, match="the disk is full"):
        bench.python("pass")
    for _ in range(5):
        bench.queue.turn()
    assert len(bench.past.tape) == 0
    assert not (bench.place.run(1) / "leases").exists()
    monkeypatch.undo()
    bench.over()
    assert bench.out(0) == "later\n"
    assert "the store can be written again: deciding goes on" in bench.log


@pytest.mark.parametrize("step_s", [3600.0, -3600.0])
def test_a_clock_that_is_set_changes_no_time_on_the_tape(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, step_s: float
) -> None:
    bench.python("import time; time.sleep(0.05)")
    really = time.time
    monkeypatch.setattr(time, "time", lambda: really() + step_s)
    monkeypatch.setattr(live, "time", time.time)
    bench.again()
    bench.over()
    assert int(bench.past.tape.column("time")[-1]) < 60 * SECOND


def test_after_a_restart_of_the_machine_time_goes_on_and_never_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.python("pass")
    bench.over()
    last = int(bench.past.tape.column("time")[-1])
    monkeypatch.setattr(live, "boot", lambda: "another")
    really = time.time
    monkeypatch.setattr(live, "time", lambda: really() + 3600)
    assert live.clock_of(bench.past)() >= HOUR
    monkeypatch.setattr(live, "time", lambda: really() - 3600)
    assert live.clock_of(bench.past)() > last

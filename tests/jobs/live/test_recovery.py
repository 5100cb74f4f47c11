"""A queue that was killed goes on where it was: nothing is lost, nothing is started twice; so with killed runners."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.queue_faults import play
from bench.queue_faults_program import SAVE_EVERY
from headway.device import processes
from headway.jobs.live.engine import SAVED
from headway.jobs.live.listing import listed
from headway.jobs.live.local.runner import BEGAN, EXIT
from headway.jobs.model.rows import Kind
from tests.jobs.live.queues import Bench
from tests.jobs.live.test_queue import FAMILY, SAVER

WAITS = "import os, time\nprint('ready', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('end')"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A queue with four slots."""
    made = Bench(tmp_path)
    yield made
    made.queue.stop(kill=True, at_once=True)
    made.until(lambda: made.queue.idle)
    made.check()


def told(bench: Bench, lease: int = 1) -> dict[str, int]:
    found: dict[str, int] = json.loads((bench.place.run(1) / "leases" / str(lease) / BEGAN).read_text())
    return found


def test_a_killed_queue_finds_its_programs_again(bench: Bench) -> None:
    bench.python(WAITS)
    bench.said(0, "ready")
    bench.again()
    assert list(bench.queue.state.running) == [0]
    (bench.folder / "go").touch()
    bench.over()
    assert bench.out(0) == "ready\nend\n"
    assert bench.ends() == {0: "finished"}


def test_a_program_that_ends_while_no_queue_is_there_is_not_lost(bench: Bench) -> None:
    bench.python("import sys; sys.exit(7)")
    exit_file = bench.place.run(1) / "leases" / "1" / EXIT
    end = time.monotonic() + 60
    while not exit_file.exists() and time.monotonic() < end:
        time.sleep(0.01)
    bench.again()
    bench.over()
    assert bench.ends() == {0: "failed"}
    assert bench.past.leases[0].status == 7


def test_a_program_that_ends_while_no_queue_is_there_ends_then_and_nothing_starts_until_the_next_queue(
    bench: Bench,
) -> None:
    bench.python("pass", gpus=4)
    waiting = bench.python("print('later')", gpus=4)
    exit_file = bench.place.run(1) / "leases" / "1" / EXIT
    end = time.monotonic() + 60
    while not exit_file.exists() and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.05)
    before = bench.queue._clock()
    bench.again()
    bench.over()
    tape = bench.past.tape
    finished = {row[2]: row[0] for row in tape.of(int(Kind.FINISHED)).tolist()}
    started = {row[2]: row[0] for row in tape.of(int(Kind.START)).tolist()}
    assert started[0] < finished[0] < before < started[waiting]
    drained, back = (tape.of(int(kind)).tolist() for kind in (Kind.NODE_DRAINED, Kind.NODE_RECOVERED))
    assert [row[0] for row in drained] == [finished[0]]
    assert [row[0] for row in back] == [started[waiting]]
    jobs = listed(bench.past, bench.queue._clock() / 1e9)
    assert jobs[0].ran_s == pytest.approx((finished[0] - started[0]) / 1e9)


def test_a_job_that_was_written_down_and_never_arrived_does_so_at_the_next_start(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.queue, "turn", lambda: None)  # killed before its first decision
    bench.python("print('once')")
    assert len(bench.past.tape) == 0
    bench.again()
    bench.over()
    assert bench.out(0) == "once\n"


def test_a_decision_that_was_written_down_is_carried_out_by_the_next_queue_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.queue.cluster, "carry_out", lambda: None)  # killed between the two
    bench.python("print('once')")
    assert bench.count(Kind.START, 0) == 1
    assert not (bench.place.run(1) / "leases" / "1").exists()
    bench.again()
    bench.over()
    assert bench.out(0) == "once\n"
    assert bench.count(Kind.START, 0) == 1


def test_a_preemption_that_was_written_down_is_carried_out_by_the_next_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, "srtf")
    bench.python(SAVER, gpus=4, estimate=10**13)
    bench.said(0, "ready")
    monkeypatch.setattr(bench.queue.cluster, "carry_out", lambda: None)
    bench.python("pass", gpus=4, estimate=10**9)
    assert bench.count(Kind.PREEMPT, 0) == 1
    bench.again()
    bench.until(lambda: bench.ends() == {1: "finished"})
    bench.said(0, "ready\nsaved\nready")
    bench.queue.cancel(0)
    bench.over()
    bench.check()


def test_a_policy_that_fails_ends_the_queue_and_half_an_instant_is_not_written_down(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.python(WAITS)
    bench.said(0, "ready")
    rows = len(bench.past.tape)

    def decide(now: int, state: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(bench.queue.policy, "decide", decide)
    bench.python("print('after')")
    assert bench.queue.broken
    assert bench.queue.over
    assert "failed: ZeroDivisionError: oh" in bench.queue.failure
    bench.queue.turn()
    assert len(bench.past.tape) == rows
    bench.again()
    (bench.folder / "go").touch()
    bench.over()
    assert bench.out(1) == "after\n"


def test_two_runners_of_one_lease_start_its_program_once(bench: Bench) -> None:
    bench.python("print('once'); import time; time.sleep(0.5)")
    folder = bench.place.run(1) / "leases" / "1"
    command = [sys.executable, "-m", "headway.jobs.live.local.runner", str(folder)]
    others = [subprocess.Popen(command) for _ in range(3)]
    bench.over()
    assert [each.wait(30) for each in others] == [0, 0, 0]
    assert bench.out(0) == "once\n"


def test_a_killed_runner_takes_its_program_along_and_the_job_runs_again(bench: Bench) -> None:
    bench.python(FAMILY)
    bench.said(0, "ready")
    child, me = int(bench.out(0).split()[1]), int(bench.out(0).split()[3])
    os.kill(told(bench)["runner"], signal.SIGKILL)
    bench.until(lambda: bench.count(Kind.INTERRUPTED, 0) == 1)
    assert not processes.alive(me, 0)
    bench.until(lambda: bench.out(0).count("ready") == 2)
    assert bench.ends() == {}
    assert bench.count(Kind.QUEUED_AGAIN, 0) == 0  # the attempt of the machine failed, not the job's
    if processes.alive(child, 0):  # a session of its own, no environment, no control groups: nobody can know it
        os.kill(child, signal.SIGKILL)


def test_a_program_that_saves_and_asks_to_be_called_again_is(bench: Bench) -> None:
    code = "import os, sys\nprint('x', flush=True)\nsys.exit(85 if os.environ['HEADWAY_STARTED_AGAIN'] == '0' else 0)"
    assert SAVED == 85
    bench.python(code)
    bench.over()
    assert bench.out(0) == "x\nx\n"
    (row,) = bench.past.tape.of(int(Kind.INTERRUPTED)).tolist()
    assert row[6] == 1


def test_random_kills_lose_no_job_and_run_none_twice(tmp_path: Path) -> None:
    report = play(tmp_path, kills=25, jobs=8, seed=3)
    assert report.problems == []
    assert report.twice == []
    assert report.lost_steps <= SAVE_EVERY
    assert sum(report.ended.values()) == report.jobs
    assert sum(report.kills.values()) >= 20

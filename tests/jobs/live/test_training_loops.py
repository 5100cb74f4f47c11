"""Training loops (``headway.steps``) under a real queue: preempted by its policy, they end as if they had not been."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import steps_preempted
from headway.jobs.model.rows import Kind
from tests.jobs.live.queues import Bench

LOOP = """
import json, random, sys, time
import headway

random.seed(0)
notes = []

def load(path):
    notes[:] = json.loads(path.read_text())

loop = headway.steps(range(40), epochs=2, checkpoint=lambda path: path.write_text(json.dumps(notes)), resume=load)
for batch in loop:
    notes.append([batch, random.random()])
    time.sleep(float(sys.argv[1]))
    print("step", loop.step, flush=True)
print("notes", json.dumps(notes))
"""
LONG, SHORT = 10**13, 10**9


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A queue that preempts long jobs for short ones."""
    made = Bench(tmp_path, "srtf")
    yield made
    made.queue.stop(kill=True, at_once=True)
    made.until(lambda: made.queue.idle)
    made.check()


def submit(bench: Bench, *words: str, estimate: int, gpus: int = 4) -> int:
    """Submit a program that imports headway."""
    paths = os.pathsep.join((str(steps_preempted.ROOT / "src"), str(steps_preempted.ROOT)))
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": paths}
    return bench.submit(sys.executable, *words, estimate=estimate, gpus=gpus, environment=environment)


def steps_of(bench: Bench, job: int) -> list[int]:
    return [int(line.split()[1]) for line in bench.out(job).splitlines() if line.startswith("step")]


def test_a_loop_that_is_preempted_ends_as_if_it_had_not_been(bench: Bench) -> None:
    alone = submit(bench, "-c", LOOP, "0", estimate=LONG)
    bench.over()
    long = submit(bench, "-c", LOOP, "0.01", estimate=LONG)
    for times in range(1, 4):
        seen = len(steps_of(bench, long))
        bench.until(lambda seen=seen: len(steps_of(bench, long)) > seen + 3, "it goes on")  # type: ignore[misc]
        short = bench.python("pass", gpus=1, estimate=SHORT)
        bench.until(lambda short=short: short in bench.ends(), "the short job ends")  # type: ignore[misc]
        assert bench.count(Kind.PREEMPT, long) == times
    bench.over()
    assert steps_of(bench, long) == list(range(80))
    assert bench.out(long).splitlines()[-1] == bench.out(alone).splitlines()[-1]
    assert set(bench.ends().values()) == {"finished"}
    assert bench.count(Kind.START, long) == 4


def test_ranks_that_a_program_spawned_save_although_their_parent_is_ended(bench: Bench, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    trial = steps_preempted.Trial(tmp_path / "trial", ranks=1, workers=0, every=None, step_s=0.0)
    words = (str(steps_preempted.PROGRAM), str(trial.folder), "--step-s=0.02", "--batches=20", "--spawn=2")
    long = submit(bench, *words, f"--port={steps_preempted.free_port()}", estimate=LONG)
    bench.until(lambda: len(trial.lines()) > 5, "its ranks train")
    bench.python("pass", gpus=1, estimate=SHORT)
    bench.over()
    assert bench.count(Kind.PREEMPT, long) == 1
    assert bench.ends()[long] == "finished", bench.out(long, errors=True)
    assert any(f"job {long}" in line and "saved, exit status -15" in line for line in bench.log), bench.log
    for rank in range(2):
        assert [int(line.split()[0]) for line in trial.lines(rank)] == list(range(60))

"""A worker process does what it is told: batches, models, fetches; two of them share what can be shared."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.fleet.live.workers.messages import (
    NO_LEASE,
    Beat,
    Evict,
    Fetch,
    Fetched,
    Finished,
    Loaded,
    Rejected,
    Setup,
    Stop,
)
from tests.fleet.live.driving import Driven, Start, starting
from tests.processes import until

APP = '''
import os, threading, time
from pathlib import Path
import numpy as np
from headway.program.pipeline import graph, model, task

HERE = Path(__file__).parent

def held(name):
    """Wait for a file that the test makes."""
    (HERE / f"{name}-begun").touch()
    while not (HERE / name).exists():
        time.sleep(0.005)

@model(memory="1KB")
def words():
    (HERE / f"built-{os.getpid()}-{time.monotonic_ns()}").touch()
    return {"a": 1, "b": 2}

@model(memory="1KB")
def slow():
    if (HERE / "hold").exists():
        held("slow-goes")
    return "slow"

@model(memory="1KB")
def missing():
    return (HERE / "checkpoint").read_text()

@task(max_batch=8)
def double(xs):
    return [x * 2 for x in xs]

@task(max_batch=8)
def join(left, right):
    return [(a, b) for a, b in zip(left, right, strict=True)]

@task(models=[words], max_batch=8)
def look_up(table, keys):
    return [table[key] for key in keys]

@task(models=[slow], max_batch=8)
def with_slow(value, xs):
    return [(value, x) for x in xs]

@task(models=[missing], max_batch=8)
def with_missing(value, xs):
    return [value for x in xs]

@task
def hold(names):
    held(names[0])
    return [threading.current_thread().name for _ in names]

@task
def where(xs):
    return [(os.getpid(), sorted(os.sched_getaffinity(0))) for _ in xs]

@task
def speak(xs):
    print("said by a task", xs)
    return xs

ALONE = [graph(each.name, each) for each in (look_up, with_slow, with_missing, hold, where)]
JOINED = graph("joined", {double, speak} >> join)
'''
FUNCTIONS = ("double", "join", "look_up", "with_slow", "with_missing", "hold", "where", "speak")
MODELS = ("words", "slow", "missing")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts workers of the application, ready for orders; they end with the test."""
    yield from starting(tmp_path / "app.py", APP, FUNCTIONS, MODELS)


def test_batches_come_back_with_one_result_each(start: Start) -> None:
    driven = start()
    lease = driven.run("double", 1, "ab", [3])
    assert driven.expect(Loaded) == Loaded(lease)
    assert driven.results() == [2, "abab", [3, 3]]
    driven.run_joined("join", (1, "x"), (2, "y"))
    driven.expect(Loaded)
    assert driven.results() == [(1, "x"), (2, "y")]


def test_large_values_go_through_shared_memory_both_ways(start: Start) -> None:
    driven = start()
    given = np.arange(100_000)
    driven.run("double", given)
    driven.expect(Loaded)
    done = driven.expect(Finished)
    assert len(done.results[0].data) < 1_000
    assert done.results[0].block.startswith(f"{driven.prefix}-worker-")
    assert done.run_ns > 0
    driven.run("double", given)
    driven.expect(Loaded)
    assert np.array_equal(driven.results()[0], given * 2)


def test_a_model_is_built_when_a_batch_needs_it_and_kept_until_it_is_evicted(start: Start, tmp_path: Path) -> None:
    def built() -> int:
        return len(list(tmp_path.glob("built-*")))

    driven = start()
    before = built()  # once to see what it is
    for _ in range(2):
        driven.run("look_up", "a", "b", models=["words"])
        driven.expect(Loaded)
        assert driven.results() == [1, 2]
    assert built() - before == 1
    driven.send(Evict(0))
    driven.run("look_up", "b", models=["words"])
    driven.expect(Loaded)
    assert driven.results() == [2]
    assert built() - before == 2
    driven.run("with_slow", "x", models=["slow"], evict=["words"])
    driven.expect(Loaded)
    assert driven.results() == [("slow", "x")]
    driven.run("look_up", "a", models=["words"])
    driven.expect(Loaded)
    assert driven.results() == [1]
    assert built() - before == 3


def test_a_fetch_goes_on_while_a_batch_runs_and_a_batch_that_needs_the_model_waits_for_it(
    start: Start, tmp_path: Path
) -> None:
    driven = start()
    (tmp_path / "hold").touch()
    running = driven.run("hold", "batch-goes")
    assert driven.expect(Loaded).lease == running
    driven.send(Fetch(90, 1))
    until(lambda: (tmp_path / "slow-goes-begun").exists())
    waiting = driven.run("with_slow", "x", models=["slow"])
    (tmp_path / "batch-goes").touch()
    assert driven.expect(Finished).lease == running
    (tmp_path / "slow-goes").touch()
    answers = [driven.answer() for _ in range(3)]
    fetched = next(each for each in answers if isinstance(each, Fetched))
    assert (fetched.lease, fetched.model) == (90, 1)
    assert [each.lease for each in answers if isinstance(each, Loaded | Finished)] == [waiting, waiting]


def test_the_models_of_a_waiting_batch_are_loaded_while_the_one_before_it_runs(start: Start, tmp_path: Path) -> None:
    driven = start()
    (tmp_path / "hold").touch()
    driven.run("hold", "batch-goes")
    driven.expect(Loaded)
    driven.run("with_slow", "x", models=["slow"])
    until(lambda: (tmp_path / "slow-goes-begun").exists())
    (tmp_path / "slow-goes").touch()
    (tmp_path / "batch-goes").touch()
    driven.expect(Finished)
    driven.expect(Loaded)
    assert driven.results() == [("slow", "x")]


def test_batches_on_cpus_alone_run_beside_each_other_and_beside_the_device(start: Start, tmp_path: Path) -> None:
    driven = start()
    names = ["one", "two", "three"]
    for name in names[:2]:
        driven.run("hold", name, slices=0)
    driven.run("hold", names[2])
    for name in names:
        until(lambda name=name: (tmp_path / f"{name}-begun").exists())  # type: ignore[misc]
    assert [type(driven.answer()) for _ in names] == [Loaded] * 3
    found = []
    for name in reversed(names):
        (tmp_path / name).touch()
        found += driven.results()
    assert found == ["MainThread", "lane", "lane"]


def test_batches_on_the_device_run_one_after_the_other(start: Start, tmp_path: Path) -> None:
    driven = start()
    first = driven.run("hold", "one")
    driven.expect(Loaded)
    second = driven.run("hold", "two")
    assert not (tmp_path / "two-begun").exists()
    (tmp_path / "two").touch()
    (tmp_path / "one").touch()
    kinds = [driven.answer() for _ in range(3)]
    assert [(type(each), each.lease) for each in kinds] == [  # type: ignore[union-attr]
        (Finished, first),
        (Loaded, second),
        (Finished, second),
    ]


def test_orders_against_the_books_are_rejected_and_nothing_happens(start: Start, tmp_path: Path) -> None:
    driven = start(memory_bytes=1_500)
    driven.run("look_up", "a", models=["words"])
    driven.expect(Loaded)
    driven.results()
    lease = driven.run("with_slow", "x", models=["slow"])
    rejected = driven.expect(Rejected)
    assert rejected.lease == lease
    assert "take 1000 bytes more, 500 of 1500 are free" in rejected.reason
    (tmp_path / "hold").touch()
    driven.send(Fetch(91, 1, (0,)))
    until(lambda: (tmp_path / "slow-goes-begun").exists())
    driven.send(Evict(1))
    assert driven.expect(Rejected) == Rejected(NO_LEASE, "model slow is in use: it cannot be evicted", stale=True)
    (tmp_path / "slow-goes").touch()
    assert driven.expect(Fetched).lease == 91


def test_a_model_that_cannot_be_loaded_rejects_the_batch_and_works_when_its_file_is_there(
    start: Start, tmp_path: Path
) -> None:
    driven = start()
    lease = driven.run("with_missing", 1, models=["missing"])
    rejected = driven.expect(Rejected)
    assert rejected.lease == lease
    assert rejected.reason.startswith("models are not loaded: FileNotFoundError: ")
    driven.send(Fetch(92, 2))
    assert driven.expect(Rejected).lease == 92
    (tmp_path / "checkpoint").write_text("weights")
    driven.run("with_missing", 1, models=["missing"])
    driven.expect(Loaded)
    assert driven.results() == ["weights"]
    assert "model missing cannot be built: FileNotFoundError" in driven.text()


def test_beats_come_by_themselves_and_count_the_memory_of_models(start: Start) -> None:
    driven = start()
    driven.run("look_up", "a", models=["words"])
    driven.expect(Loaded)
    driven.results()
    while not driven.beats or driven.beats[-1].used_bytes == 0:
        driven.run("double", 1)
        driven.expect(Loaded)
        driven.results()
        time.sleep(0.01)
    assert driven.beats[-1] == Beat(1_000, 0)


def test_the_worker_stops_when_what_it_was_given_is_done(start: Start, tmp_path: Path) -> None:
    driven = start()
    driven.run("hold", "one")
    driven.run("hold", "two", slices=0)
    for name in ("one", "two"):
        until(lambda name=name: (tmp_path / f"{name}-begun").exists())  # type: ignore[misc]
    driven.send(Stop())
    late = driven.run("double", 1)
    answers = [driven.answer() for _ in range(3)]
    assert next(each for each in answers if isinstance(each, Rejected)) == Rejected(
        late, "the worker is stopping", stale=True
    )
    (tmp_path / "one").touch()
    driven.expect(Finished)
    assert driven.process.poll() is None
    (tmp_path / "two").touch()
    driven.expect(Finished)
    assert driven.process.wait(60) == 0


def test_the_worker_runs_on_the_cpus_it_is_given(start: Start) -> None:
    one = min(os.sched_getaffinity(0))
    driven = start(cpus=(one,))
    driven.run("where", 0)
    driven.expect(Loaded)
    assert driven.results() == [(driven.process.pid, [one])]


def test_what_a_task_prints_is_in_the_log_at_once(start: Start) -> None:
    driven = start()
    driven.run("speak", 7)
    driven.expect(Loaded)
    driven.results()
    assert "said by a task [7]\n" in driven.text()


def test_a_second_setup_is_rejected(start: Start) -> None:
    driven = start()
    driven.send(Setup("x", 0, (), (), 0, "cpu", "p", "h", "w"))
    assert driven.expect(Rejected).lease == NO_LEASE


@pytest.mark.parametrize(
    ("source", "setup", "says"),
    [
        ("import nothing_like_this", {}, "No module named 'nothing_like_this'"),
        ("1/0", {}, "ZeroDivisionError: division by zero"),
        (APP, {"device": "abacus"}, "device 'abacus': must be cpu or cuda:NUMBER"),
    ],
)
def test_a_worker_that_cannot_start_says_why_and_ends(
    tmp_path: Path, source: str, setup: dict[str, Any], says: str
) -> None:
    (tmp_path / "app.py").write_text(source)
    driven = Driven(tmp_path / "app.py", (), (), **setup)
    try:
        rejected = driven.expect(Rejected)
        assert rejected.lease == NO_LEASE
        assert says in rejected.reason
        assert driven.process.wait(60) == 1
    finally:
        driven.close()

"""The engine's orders to a Slurm that does something between a look and an order; without a Slurm."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from headway.errors import QueueError
from headway.jobs.live.engine import SAVED, Ended, Order
from headway.jobs.live.store import Program
from headway.jobs.model.job import Job
from headway.jobs.slurm.live import engine as module
from headway.jobs.slurm.live.board import Board
from headway.jobs.slurm.live.client import SlurmClient
from headway.jobs.slurm.live.engine import SlurmEngine
from headway.jobs.slurm.live.rows import JobRow
from headway.units import HOUR
from tests.jobs.slurm.live.test_parts import row


class OneJob(SlurmClient):
    """A Slurm with one job of a user, whose state a test sets; ``starts_at_hold``: it starts as it is to be held."""

    def __init__(self) -> None:
        self.row = replace(row(JobID="17"), comment="headway:q:0:0")
        self.starts_at_hold = False
        self.orders: list[str] = []

    def jobs(self) -> list[JobRow]:
        return [self.row]

    def set(self, state: str, **values: object) -> None:
        self.row = replace(self.row, state=state, **values)  # type: ignore[arg-type]

    def update(self, job: int, values: Mapping[str, str]) -> None:
        self.row = replace(self.row, comment=values["Comment"])

    def release(self, job: int) -> None:
        self.orders.append("release")
        self.set("PENDING", reason="Priority", priority=5)

    def hold(self, job: int) -> None:
        self.orders.append("hold")
        if self.starts_at_hold:
            self.set("RUNNING", reason="None")
        else:
            self.set("PENDING", reason="JobHeldUser", priority=0)

    def requeue_held(self, job: int) -> None:
        self.orders.append("requeuehold")
        self.set("PENDING", reason="JobHeldUser", priority=0)

    def signal(self, job: int, name: str, *, batch: bool) -> None:
        self.orders.append(name)


@pytest.fixture
def slurm() -> OneJob:
    return OneJob()


@pytest.fixture
def engine(slurm: OneJob, tmp_path: Path) -> SlurmEngine:
    program = Program(("sbatch", "17"), "/", {}, slurm=17, external=True)
    board = Board(slurm, "q", look_s=0.0)
    board.look()
    return SlurmEngine(board, tmp_path, lambda job: (Job(0, 0, HOUR, 4), program), ("n1", "n2"), start_s=60.0)


def looked(engine: SlurmEngine) -> list[Ended]:
    engine._board.look(now=True)
    return engine.poll()


def test_a_job_that_started_as_it_was_to_be_held_is_asked_to_end(engine: SlurmEngine, slurm: OneJob) -> None:
    engine.launch(Order(1, 0, ((0, 15),)))
    slurm.starts_at_hold = True
    engine.stop(1)
    assert looked(engine) == [], "it runs: its lease is not gone"
    assert looked(engine) == []
    assert slurm.orders == ["release", "hold", "TERM"]
    slurm.set("FAILED", status=SAVED)
    (ended,) = looked(engine)
    assert (ended.lease, ended.status) == (1, SAVED)
    assert slurm.orders[-1] == "requeuehold"


def test_a_job_that_was_held_before_it_started_is_gone(engine: SlurmEngine, slurm: OneJob) -> None:
    engine.launch(Order(1, 0, ((0, 15),)))
    engine.stop(1)
    (ended,) = looked(engine)
    assert ended.lost
    assert slurm.row.held


def test_a_job_that_is_done_is_not_run_again(engine: SlurmEngine, slurm: OneJob) -> None:
    slurm.set("COMPLETED", reason="None", status=0, comment="headway:q:0:1")
    engine._board.look(now=True)
    engine.launch(Order(2, 0, ((0, 15),)))
    (ended,) = looked(engine)
    assert (ended.lease, ended.status, ended.lost) == (2, 0, False)
    assert slurm.orders == []


def test_a_job_rests_after_its_end(engine: SlurmEngine, slurm: OneJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node refuses a job in the second of its last end, and Slurm then has it fail."""
    engine.launch(Order(1, 0, ((0, 15),)))
    slurm.set("RUNNING", reason="None")
    engine.stop(1)
    looked(engine)
    slurm.set("FAILED", status=SAVED)
    assert looked(engine)
    with pytest.raises(QueueError, match="has just ended"):
        engine.launch(Order(2, 0, ((0, 15),)))
    monkeypatch.setattr(module, "REST_S", 0.0)
    engine.launch(Order(2, 0, ((0, 15),)))
    assert slurm.orders == ["release", "TERM", "requeuehold", "release"]


def test_a_job_that_is_divided_anew_goes_on_under_its_lease(
    engine: SlurmEngine, slurm: OneJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.launch(Order(1, 0, ((0, 15),), cpu_milli=4000))
    slurm.set("RUNNING", reason="None")
    looked(engine)
    engine.regrant(Order(1, 0, ((0, 15),), cpu_milli=8000))
    looked(engine)
    slurm.set("FAILED", status=SAVED)
    assert looked(engine) == []
    assert looked(engine) == [], "it rests"
    assert slurm.orders == ["release", "TERM", "requeuehold"]
    monkeypatch.setattr(module, "REST_S", 0.0)
    assert looked(engine) == []
    assert slurm.orders[-1] == "release"

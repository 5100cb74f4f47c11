"""Errors of simulated starts: against hand-made records, and zero against the run's own."""

import pytest

from headway.jobs.metrics.backtest.errors import backtest
from headway.jobs.metrics.ledger import Ledger
from headway.jobs.model.cluster import Partition, uniform
from headway.jobs.model.job import Job, workload
from headway.jobs.show.terminal.backtest import errors_line, signed, tables
from headway.units import SECOND
from tests.drive import World, drive

CLUSTER = uniform(2, 4, partitions=(Partition("a", (0,)), Partition("b", (1,))))
JOBS = workload(
    Job(i, submit=i * SECOND, work=100 * SECOND, gpus=2 if i % 2 else 4, name=f"j{i}", partition="ab"[i % 2])
    for i in range(6)
)


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(drive("fifo", World(CLUSTER, JOBS)).tape, JOBS, CLUSTER)


def test_a_run_against_its_own_starts_has_no_error(ledger: Ledger) -> None:
    waits = {job.name: int(ledger.first_start[job.id]) - job.submit for job in JOBS}
    found = backtest(ledger, waits, "fifo")
    assert (found.jobs, found.compared, found.only_recorded, found.only_simulated) == (6, 6, 0, 0)
    assert (found.whole.error_p50_s, found.whole.error_p90_s, found.whole.bias_s) == (0, 0, 0)
    assert found.whole.wait_recorded_mean_s == found.whole.wait_simulated_mean_s
    assert found.rank_correlation == pytest.approx(1)


def test_errors_are_simulated_less_recorded_by_size_and_partition(ledger: Ledger) -> None:
    shift = {"j0": 5, "j1": 1, "j2": 7, "j3": 3, "j4": 9}
    waits = {
        name: int(ledger.first_start[int(name[1])] - ledger.submit[int(name[1])]) + late * SECOND
        for name, late in shift.items()
    }
    found = backtest(ledger, waits | {"never": 3}, "fifo")
    assert (found.compared, found.only_simulated) == (5, 1)
    assert (found.whole.error_p50_s, found.whole.bias_s) == (5, -5)
    assert found.whole.error_p90_s == pytest.approx(8.2)
    assert [(group.group, group.jobs, group.error_p50_s) for group in found.by_size] == [
        ("2 GPUs", 2, 2),
        ("3-4 GPUs", 3, 7),
    ]
    assert [(group.group, group.jobs) for group in found.by_partition] == [("a", 3), ("b", 2)]
    assert "half of the 5 jobs start within 5.0 s" in errors_line(found)
    assert len(list(tables([found], ["fifo"]))) == 3
    assert found.record()["by_size"][1]["bias_s"] == -7


def test_nothing_in_common_is_said(ledger: Ledger) -> None:
    found = backtest(ledger, {"other": 1}, "fifo")
    assert found.compared == 0
    assert found.rank_correlation is None
    assert "nothing to believe" in errors_line(found)


def test_signs_read_well() -> None:
    assert [signed(time) for time in (0.01, -2, 90)] == ["0.0 s", "-2.0 s", "+1m 30s"]

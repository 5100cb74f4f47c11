"""Tapes and their numbers worked out by hand. Times are in hours on the tape, in seconds in the numbers."""

from collections.abc import Sequence

import numpy as np
import pytest

from headway.core.tape import COLUMNS, Tape
from headway.errors import TapeError
from headway.jobs.metrics.fragmentation import fragmentation
from headway.jobs.metrics.groups import by_group, by_tenant, jain
from headway.jobs.metrics.jobs import job_table
from headway.jobs.metrics.ledger import Ledger
from headway.jobs.metrics.little import little
from headway.jobs.metrics.overload import overload
from headway.jobs.metrics.summary import as_json, percentile, summarise
from headway.jobs.metrics.timeline import timeline
from headway.jobs.model.cluster import Cluster, Node, Partition, Tenant, uniform
from headway.jobs.model.job import Job, Outcome, workload
from headway.jobs.model.rows import Kind, placement_rows
from headway.units import HOUR

Written = tuple[float, Kind, int, int, int, int, int]
FULL = 1_000_000


def tape(rows: Sequence[Written]) -> Tape:
    written = [(round(time * HOUR), int(kind), *rest) for time, kind, *rest in rows]
    return Tape(np.array(written, dtype=np.int64).reshape(-1, len(COLUMNS)))


JOBS = workload(
    [
        Job(0, 0, 4 * HOUR, gpus=2, name="wide", tenant="red"),
        Job(1, 1 * HOUR, 1 * HOUR, gpus=1, name="short", tenant="blue", partition="left"),
        Job(2, 2 * HOUR, 2 * HOUR, gpus=1, name="fails", outcome=Outcome.FAILS, outcome_after=1 * HOUR, retries=1),
        Job(3, 3 * HOUR, 9 * HOUR, gpus=4, name="gives-up", tenant="blue"),
    ]
)
CLUSTER = Cluster(
    nodes=(Node("a", 2, cpu_milli=1000), Node("b", 2)),
    partitions=(Partition("left", (0,)),),
    tenants=(Tenant("red", weight=2),),
)
TAPE = tape(
    [
        (0, Kind.ARRIVED, 0, 0, -1, 0, 0),
        (0, Kind.START, 0, 1, 0, 0b11, FULL),  # both GPUs of a
        (1, Kind.ARRIVED, 1, 0, -1, 0, 0),
        (1, Kind.PREEMPT, 0, 1, -1, 0, HOUR),
        (1, Kind.START, 1, 2, 0, 0b01, FULL),
        (2, Kind.FINISHED, 1, 2, -1, 0, HOUR),
        (2, Kind.ARRIVED, 2, 0, -1, 0, 0),
        (2, Kind.START, 0, 3, 0, 0b11, FULL),
        (2, Kind.COST, 0, 3, -1, 0, HOUR // 2),
        (2, Kind.START, 2, 4, 1, 0b01, FULL),
        (3, Kind.FAILED, 2, 4, -1, 0, HOUR),
        (3, Kind.QUEUED_AGAIN, 2, 4, -1, 0, 1),
        (3, Kind.ARRIVED, 3, 0, -1, 0, 0),
        (3, Kind.MIGRATE, 0, 5, 1, 0b11, 2 * FULL),  # to b, twice as fast
        (3, Kind.START, 2, 6, 0, 0b10, FULL),
        (4, Kind.FAILED, 2, 6, -1, 0, HOUR),
        (4.25, Kind.FINISHED, 0, 5, -1, 0, 4 * HOUR),
        (5, Kind.CANCELLED, 3, 0, -1, 0, 0),
    ]
)


def test_the_job_table_by_hand() -> None:
    table = job_table(Ledger(TAPE, JOBS, CLUSTER))
    assert table["name"].to_list() == ["wide", "short", "fails", "gives-up"]
    assert table["outcome"].to_list() == ["finished", "finished", "failed", "cancelled"]
    assert table["jct_s"].to_list() == [4.25 * 3600, 3600, 7200, 7200]
    assert table["wait_s"].to_list() == [3600, 0, 0, 7200]
    assert table["queue_delay_s"].to_list() == [0, 0, 0, None]
    assert table["run_s"].to_list() == [3.25 * 3600, 3600, 7200, 0]
    assert table["ideal_s"].to_list() == [4 * 3600, 3600, 7200, None]
    assert table["slowdown"].to_list() == [4.25 / 4, 1, 1, None]
    assert table["preemptions"].to_list() == [1, 0, 0, 0]
    assert table["migrations"].to_list() == [1, 0, 0, 0]
    assert table["gpu_s"].to_list() == [6.5 * 3600, 3600, 7200, 0]
    assert table["lost_gpu_s"].to_list() == [2 * 1800, 0, 0, 0]
    assert table["failed_gpu_s"].to_list() == [0, 0, 7200, 0]
    assert table["failed_attempts"].to_list() == [0, 0, 2, 0]


def test_finish_time_fairness_by_hand() -> None:
    table = job_table(Ledger(TAPE, JOBS, CLUSTER))
    # Alive: 1 job in hour 0, 2 in hours 1 and 2, 3 in hour 3, 2 in the last quarter: the wide job wants 2 of 4 GPUs,
    # its part is 4 GPUs over (1 + 2 + 2 + 3 + 0.5) / 4.25 = 2 jobs: exactly as wide as it is.
    assert table["ftf"].to_list() == [pytest.approx(4.25 / 4), 1, 1, None]
    pair = workload([Job(0, 0, HOUR, gpus=4), Job(1, 0, HOUR, gpus=4)])
    one_by_one = tape(
        [
            (0, Kind.ARRIVED, 0, 0, -1, 0, 0),
            (0, Kind.ARRIVED, 1, 0, -1, 0, 0),
            (0, Kind.START, 0, 1, 0, 0b1111, FULL),
            (1, Kind.FINISHED, 0, 1, -1, 0, HOUR),
            (1, Kind.START, 1, 2, 0, 0b1111, FULL),
            (2, Kind.FINISHED, 1, 2, -1, 0, HOUR),
        ]
    )
    rho = job_table(Ledger(one_by_one, pair, uniform(1, 4)))["ftf"].to_list()
    assert rho == [1 / 2, pytest.approx(2 / 1.5)]  # the second lived with 2 jobs for an hour, then alone


def test_the_summary_by_hand() -> None:
    summary = summarise(TAPE, JOBS, CLUSTER)
    assert (summary.jobs, summary.finished, summary.failed, summary.cancelled, summary.unfinished) == (4, 2, 1, 1, 0)
    assert summary.completed == 3  # the one that gave up never ran
    assert summary.jct_s.mean == pytest.approx((4.25 + 1 + 2) * 1200)
    assert summary.jct_s.p50 == 7200
    assert summary.jct_s.max == 4.25 * 3600
    assert summary.wait_s.mean == 1200
    assert summary.makespan_s == 5 * 3600
    assert summary.throughput_per_hour == pytest.approx(3 / 5)
    assert summary.gpu_utilisation == pytest.approx((6.5 + 1 + 2) / 20)
    # Effective: 2 for an hour, 1, then 2 for half an hour (standing still first) and 1 for an hour, 4 for 1.25 h and 1.
    assert summary.effective_gpu_utilisation == pytest.approx((2 + 1 + 1 + 1 + 5 + 1) / 20)
    assert summary.queue_mean == pytest.approx((1 + 2) / 5)
    assert summary.queue_max == 1
    assert summary.waiting_gpus_mean == pytest.approx((2 + 8) / 5)
    assert (summary.preemptions, summary.migrations, summary.failed_attempts) == (1, 1, 2)
    assert summary.lost_gpu_hours == pytest.approx(1)
    assert summary.failed_gpu_hours == pytest.approx(2)
    assert summary.cpu_utilisation == 0
    assert summary.memory_utilisation is None
    assert summary.events == 9
    assert summary.actions == 7
    # GPU time over weight: red 6.5 / 2, blue 1, default 2.
    assert summary.jain_tenants == pytest.approx(6.25**2 / (3 * (3.25**2 + 1 + 4)))
    assert summary.overload is None


def test_fragmentation_by_hand() -> None:
    fragments = fragmentation(Ledger(TAPE, JOBS, CLUSTER))
    node = fragments.levels["node"]
    # Hour 0: b is free and whole. Hour 1: a has one of three free GPUs. Hour 2: b has the only free one, and so on.
    assert [node.at(round(hour * HOUR)) for hour in (0, 1, 2, 3, 4, 4.25)] == [0, 1 / 3, 1, 1, 0, 0]
    assert [fragments.free.at(hour * HOUR) for hour in range(5)] == [2, 3, 1, 1, 2]
    assert fragments.levels["gpu"].peak(0, 5 * HOUR) == 0
    # Jobs ask for 2, 1, 1 and 4 GPUs (a whole node, as none is wider); 1 only within a, so b's are of no use to it.
    assert fragments.fgd.at(0) == pytest.approx(1 / 4)
    assert fragments.fgd.at(2 * HOUR) == pytest.approx(3 / 4)


def test_shares_of_a_gpu_fragment_the_level_gpu() -> None:
    jobs = workload([Job(0, 0, HOUR, gpu_milli=300), Job(1, 0, HOUR, gpu_milli=600), Job(2, 0, HOUR, gpus=1)])
    run = tape(
        [
            *((0, Kind.ARRIVED, job, 0, -1, 0, 0) for job in range(3)),
            (0, Kind.START, 0, 1, 0, 0b0001, FULL),
            (0, Kind.START, 1, 2, 0, 0b0010, FULL),
            (1, Kind.FINISHED, 0, 1, -1, 0, HOUR),
            (1, Kind.START, 2, 3, 0, 0b0001, FULL),
            (1, Kind.NODE_DRAINED, 1, 0, 1, 0, 0),
            (2, Kind.FINISHED, 1, 2, -1, 0, HOUR),
            (2, Kind.FINISHED, 2, 3, -1, 0, HOUR),
        ]
    )
    cluster = uniform(2, 4, island_gpus=(2,))
    fragments = fragmentation(Ledger(run, jobs, cluster))
    assert fragments.free.at(0) == pytest.approx(7.1)
    at_first = {level: series.at(0) for level, series in fragments.levels.items()}
    assert at_first == pytest.approx({"node": 3.1 / 7.1, "island": 1.1 / 7.1, "gpu": 1.1 / 7.1})
    # 700 left are too small for the whole job only, 400 also for the job of 600; all else suits everybody.
    assert fragments.fgd.at(0) == pytest.approx((0.7 / 3 + 0.4 * 2 / 3) / 7.1)
    later = {level: series.at(HOUR) for level, series in fragments.levels.items()}
    assert later == pytest.approx({"node": 1, "island": 0.4 / 2.4, "gpu": 0.4 / 2.4})  # the drained node is out
    assert {level: series.at(2 * HOUR) for level, series in fragments.levels.items()} == {
        "node": 0,
        "island": 0,
        "gpu": 0,
    }


def test_a_node_with_more_gpus_than_a_word_has_bits() -> None:
    jobs = workload([Job(0, 0, HOUR, gpus=70, cpu_milli=700, memory_bytes=7)])
    cluster = uniform(2, 100, island_gpus=(50,), cpus_per_node=1, memory_per_node_bytes=10)
    mask = ((1 << 69) - 1) << 10
    rows = list(placement_rows(0, Kind.START, 0, 1, ((0, mask), (1, 1 << 99)), FULL))
    run = tape([(0, Kind.ARRIVED, 0, 0, -1, 0, 0), *rows, (1, Kind.FINISHED, 0, 1, -1, 0, HOUR)])
    ledger = Ledger(run, jobs, cluster)
    lines, fragments = timeline(ledger), fragmentation(ledger)
    assert lines.allocated.at(0) == 70
    assert lines.cpus is not None
    assert lines.cpus.at(0) == pytest.approx(0.7)
    assert lines.memory_bytes is not None
    assert lines.memory_bytes.at(0) == 8  # 7 * 69 / 70 and 7 / 70, each rounded up
    assert fragments.levels["node"].at(0) == 1
    assert fragments.levels["island"].at(0) == pytest.approx((10 + 21 + 49) / 130)


def test_an_interrupted_tape_is_measured_up_to_its_last_row() -> None:
    summary = summarise(TAPE.until(3 * HOUR), JOBS, CLUSTER)
    assert (summary.jobs, summary.to_come, summary.finished, summary.unfinished) == (4, 0, 1, 3)
    assert summary.makespan_s == 3 * 3600
    assert summary.gpu_utilisation == pytest.approx((2 + 1 + 2 + 1) / 12)
    assert summary.jct_s.mean == 3600
    early = summarise(TAPE.until(0), JOBS, CLUSTER)
    assert (early.jobs, early.to_come, early.finished, early.makespan_s, early.gpu_utilisation) == (1, 3, 0, 0, 0)
    outcomes = job_table(Ledger(TAPE.until(round(2.5 * HOUR)), JOBS, CLUSTER))["outcome"].to_list()
    assert outcomes == ["running", "finished", "running"]


def test_an_empty_tape_has_numbers_too() -> None:
    summary = summarise(tape([]), JOBS, CLUSTER)
    assert (summary.jobs, summary.to_come, summary.events, summary.jct_s.mean) == (0, 4, 0, None)
    assert summarise(tape([]), (), CLUSTER).jain_tenants is None
    assert little(tape([]), ()) == (0, 0)


def test_json_has_what_was_promised() -> None:
    flat = as_json(summarise(TAPE, JOBS, CLUSTER), "fifo+fit")
    promised = (
        "policy jobs finished jct_mean_s jct_p50_s jct_p99_s wait_mean_s makespan_s gpu_utilisation "
        "fragmentation_mean preemptions migrations lost_gpu_hours events"
    )
    assert set(promised.split()) <= set(flat)
    assert flat["policy"] == "fifo+fit"
    assert flat["fragmentation_mean"] == flat["fragmentation_node"]
    assert all(value is None or isinstance(value, str | int | float) for value in flat.values())


def test_tables_a_tenant_and_a_partition() -> None:
    ledger = Ledger(TAPE, JOBS, CLUSTER)
    tenants = by_tenant(ledger)
    assert tenants["tenant"].to_list() == ["blue", "default", "red"]
    assert tenants["weight"].to_list() == [1, 1, 2]
    assert tenants["jobs"].to_list() == [2, 1, 1]
    assert tenants["jct_mean_s"].to_list() == [3600, 7200, 4.25 * 3600]
    assert tenants["gpu_hours"].to_list() == pytest.approx([1, 2, 6.5])
    assert tenants["share"].to_list() == pytest.approx([1 / 9.5, 2 / 9.5, 6.5 / 9.5])
    partitions = by_group(ledger, "partition")
    assert partitions["partition"].to_list() == ["", "left"]
    assert partitions["preemptions"].to_list() == [1, 0]


def test_jains_index() -> None:
    assert jain(np.array([3.0, 3.0, 3.0])) == pytest.approx(1)
    assert jain(np.array([5.0, 0.0, 0.0, 0.0])) == pytest.approx(1 / 4)
    assert jain(np.zeros(3)) == 1
    assert jain(np.empty(0)) is None


def test_percentiles_interpolate_linearly() -> None:
    ordered = np.array([10, 20, 40, 80, 160], dtype=np.int64)
    assert percentile(ordered, 50) == 40
    assert percentile(ordered, 90) == pytest.approx(80 + 80 * 0.6)
    assert percentile(ordered[:1], 99) == 10


def test_a_tape_of_another_workload_or_cluster_is_told_apart() -> None:
    with pytest.raises(TapeError, match="names job 3, the workload has 2"):
        Ledger(TAPE, JOBS[:2], CLUSTER)
    with pytest.raises(TapeError, match="names node 1, the cluster has 1"):
        Ledger(TAPE, JOBS, uniform(1, 8))
    with pytest.raises(TapeError, match="2 GPUs in use on node n0, which has 1"):
        summarise(TAPE, JOBS, uniform(2, 1))
    with pytest.raises(TapeError, match="under a lease that no start or move took"):
        Ledger(tape([(0, Kind.ARRIVED, 0, 0, -1, 0, 0), (0, Kind.COST, 0, 9, -1, 0, 5)]), JOBS, CLUSTER)


def arrivals(gaps_hours: Sequence[float], work_hours: Sequence[float], **fields: str) -> tuple[Tape, tuple[Job, ...]]:
    """Jobs of one GPU that arrive and are never started."""
    times = np.cumsum(gaps_hours)
    jobs = workload(
        Job(0, round(time * HOUR), round(work * HOUR), **fields)  # type: ignore[arg-type]
        for time, work in zip(times, work_hours, strict=True)
    )
    return tape([(job.submit / HOUR, Kind.ARRIVED, job.id, 0, -1, 0, 0) for job in jobs]), jobs


def test_arrivals_that_outgrow_the_cluster_are_said() -> None:
    run, jobs = arrivals([0, *[1] * 20], [3] * 21)
    line = "arrivals ask for 1.50 of the cluster's GPU time; the queue grew to 21 jobs by the last arrival"
    assert overload(Ledger(run, jobs, uniform(1, 2))) == line
    assert overload(Ledger(run, jobs, uniform(1, 3))) is None
    assert summarise(run, jobs, uniform(1, 2)).overload == line


def test_a_queue_of_one_is_one_job() -> None:
    _, jobs = arrivals([0, *[1] * 20], [3] * 21)
    rows: list[Written] = []
    for job in jobs:  # all but the last start at once: whether there is room for them is not asked here
        rows.append((job.submit / HOUR, Kind.ARRIVED, job.id, 0, -1, 0, 0))
        if job is not jobs[-1]:
            rows.append((job.submit / HOUR, Kind.START, job.id, job.id + 1, 0, 1, FULL))
    line = "arrivals ask for 1.50 of the cluster's GPU time; the queue grew to 1 job by the last arrival"
    assert overload(Ledger(tape(rows), jobs, uniform(1, 2))) == line


def test_one_batch_that_is_worked_off_is_no_overload() -> None:
    run, jobs = arrivals([0] * 20 + [10] * 4, [10] * 20 + [1] * 4)
    assert overload(Ledger(run, jobs, uniform(1, 3))) is None
    together, same = arrivals([0] * 30, [10] * 30)
    assert overload(Ledger(together, same, uniform(1, 1))) is None


def test_a_partition_is_outgrown_on_its_own() -> None:
    run, jobs = arrivals([0, *[1] * 20], [3] * 21, partition="small")
    cluster = uniform(4, 2, partitions=(Partition("small", (3,)),))
    line = overload(Ledger(run, jobs, cluster))
    assert line is not None
    assert line.startswith("arrivals ask for 1.50 of partition small's GPU time")

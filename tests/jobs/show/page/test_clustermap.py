"""The cluster map says who holds which GPU at the end of each tick, whatever is on the tape."""

import base64
import json
import struct
import zlib
from typing import Any

import numpy as np
from hypothesis import given, settings, strategies as st

from headway.core.tape import Tape
from headway.jobs.audit.replay import placement_of
from headway.jobs.metrics.ledger import Ledger
from headway.jobs.metrics.timeline import timeline
from headway.jobs.model.cluster import Cluster, Level, Node, Partition, uniform
from headway.jobs.model.job import Job, workload
from headway.jobs.model.rows import Kind
from headway.jobs.show.page import clustermap
from headway.jobs.show.page.packing import blob, differences, folded, varints
from headway.show.page import deflated
from headway.units import DAY, SECOND
from tests.jobs.metrics.runs import Recorded, recorded

CLOSES = {Kind.FINISHED, Kind.FAILED, Kind.CANCELLED, Kind.PREEMPT, Kind.EVICTED, Kind.MIGRATE}
ROOM = 10**9


def numbers(data: bytes) -> list[int]:
    """A column read back, byte by byte."""
    found, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            found.append(value)
            value = shift = 0
    return found


def unfolded(values: list[int]) -> list[int]:
    """Signs put back."""
    return [-(value + 1) // 2 if value % 2 else value // 2 for value in values]


def unpacked(text: str) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Head and columns of what a page holds."""
    data = zlib.decompress(base64.b64decode(text))
    (length,) = struct.unpack("<I", data[:4])
    head = json.loads(data[4 : 4 + length])
    columns, at = {}, 4 + length
    for name, size in head["columns"].items():
        columns[name] = data[at : at + size]
        at += size
    assert at == len(data)
    return head, columns


def holds(text: str) -> list[tuple[int, int | None, int, int, list[int]]]:
    """(start, end, job, flags, GPUs) of each hold, as the page's script rebuilds them."""
    _, columns = unpacked(text)
    counts, gaps, lengths = (iter(numbers(columns[name])) for name in ("runs", "gaps", "lengths"))
    found = []
    start = job = 0
    rows = zip(
        *(numbers(columns["start"]), numbers(columns["length"]), unfolded(numbers(columns["job"]))),
        *(numbers(columns["flags"]), counts),
        strict=True,
    )
    for step, length, change, flags, runs in rows:
        start, job, at = start + step, job + change, 0
        gpus: list[int] = []
        for _ in range(runs):
            first = at + next(gaps)
            at = first + next(lengths)
            gpus.extend(range(first, at))
        found.append((start, start + length if length else None, job, flags, gpus))
    assert next(gaps, None) is None
    return found


def drawn(text: str, tick: int) -> dict[int, set[int]]:
    """Jobs by GPU at the end of a tick, as the page draws them."""
    cells: dict[int, set[int]] = {}
    for start, end, job, _, gpus in holds(text):
        if start <= tick and (end is None or tick < end):
            for gpu in gpus:
                cells.setdefault(gpu, set()).add(job)
    return cells


def naive(run: Recorded, until: int) -> dict[int, set[int]]:
    """Jobs by GPU after everything up to a time, row by row."""
    first = np.cumsum([0, *(node.gpus for node in run.cluster.nodes)]).tolist()
    placed: dict[int, list[list[int]]] = {}
    for row in run.tape.until(until).rows.tolist():
        if row[1] in CLOSES:
            placed.pop(row[2], None)
        if row[1] in (Kind.START, Kind.MIGRATE):
            placed[row[2]] = [row]
        elif row[1] == Kind.PLACE:
            placed[row[2]].append(row)
    cells: dict[int, set[int]] = {}
    for job, rows in placed.items():
        for node, mask in placement_of(rows):
            for gpu in range(mask.bit_length()):
                if mask >> gpu & 1:
                    cells.setdefault(first[node] + gpu, set()).add(job)
    return cells


def packed(run: Recorded, room: int = ROOM) -> clustermap.Map | None:
    """The map of a run."""
    ledger = Ledger(run.tape, run.jobs, run.cluster)
    return clustermap.pack(ledger, timeline(ledger), ledger.horizon, room)


@given(st.lists(st.integers(0, 2**63 - 1)))
def test_numbers_come_back_as_they_were(values: list[int]) -> None:
    assert numbers(varints(np.array(values, dtype=np.int64))) == values


@given(st.lists(st.integers(-(2**61), 2**61)))
def test_differences_of_either_sign_come_back(values: list[int]) -> None:
    array = np.array(values, dtype=np.int64)
    assert np.cumsum(unfolded(numbers(varints(folded(differences(array)))))).tolist() == values


@settings(max_examples=40)
@given(recorded())
def test_every_gpu_is_held_by_whom_the_tape_says(run: Recorded) -> None:
    made = packed(run)
    assert made is not None
    assert made.tick == 1
    horizon = int(run.tape.column("time")[-1]) if len(run.tape) else 0
    for time in range(0, horizon + 1, max(1, horizon // 12)):
        assert drawn(made.text, time) == naive(run, time)


@settings(max_examples=25)
@given(recorded(), st.sampled_from([3, 10]))
def test_longer_ticks_show_the_same_truth_less_often(run: Recorded, tick: int) -> None:
    ledger = Ledger(run.tape, run.jobs, run.cluster)
    text = deflated(clustermap._packed(ledger, timeline(ledger), ledger.horizon, tick))
    for number in range(ledger.horizon // tick):
        assert drawn(text, number) == naive(run, (number + 1) * tick - 1)


@settings(max_examples=25)
@given(recorded())
def test_a_moved_job_is_marked_where_it_came_to_and_where_it_left(run: Recorded) -> None:
    made = packed(run)
    assert made is not None
    moves = int((run.tape.column("kind") == Kind.MIGRATE).sum())
    here = [(start, job) for start, _, job, flags, _ in holds(made.text) if flags & clustermap.MOVED_HERE]
    away = [(end, job) for _, end, job, flags, _ in holds(made.text) if flags & 7 == clustermap.CLOSED_BY[Kind.MIGRATE]]
    assert len(here) <= moves
    assert len(away) <= moves
    rows = run.tape.rows[run.tape.column("kind") == Kind.MIGRATE].tolist()
    assert {*here, *away} <= {(row[0], row[2]) for row in rows}


def test_a_tick_is_at_most_a_second_and_a_run_has_two_million_of_them() -> None:
    assert clustermap.tick_of(0) == 1
    assert clustermap.tick_of(10 * 60 * SECOND) == SECOND // 10_000
    assert clustermap.tick_of(65 * DAY) == SECOND
    assert clustermap.tick_of(36_500 * DAY) == SECOND


def long_run() -> Recorded:
    """Two thousand short jobs on one GPU after the other, for a month."""
    jobs = workload(Job(0, number * 1000 * SECOND, (1 + number % 700) * SECOND, 1) for number in range(2000))
    rows = []
    for job in jobs:
        rows.append((job.submit, Kind.ARRIVED, job.id, 0, -1, 0, 0))
        rows.append((job.submit, Kind.START, job.id, job.id + 1, job.id % 4, 1 << job.id % 8, 1_000_000))
        rows.append((job.submit + job.work, Kind.FINISHED, job.id, job.id + 1, -1, 0, job.work))
    return Recorded(Tape(np.array(rows, dtype=np.int64)), jobs, uniform(4, 8))


def test_a_map_without_room_gets_longer_ticks_or_is_left_out() -> None:
    run = long_run()
    whole = packed(run)
    assert whole is not None
    assert whole.tick == whole.finest
    tight = packed(run, len(whole.text) * 3 // 4)
    assert tight is not None
    assert tight.tick > tight.finest == whole.finest
    assert len(tight.text) <= len(whole.text) * 3 // 4
    assert packed(run, 100) is None


def test_a_node_is_down_from_its_failure_to_its_recovery() -> None:
    kinds = [
        (5, Kind.NODE_FAILED, 1),
        (8, Kind.NODE_DRAINED, 0),
        (9, Kind.NODE_RECOVERED, 1),
        (12, Kind.NODE_FAILED, 0),
        (20, Kind.NODE_DRAINED, 1),
    ]
    rows = [(time, kind, node, 0, -1, 0, 0) for time, kind, node in kinds]
    run = Recorded(Tape(np.array(rows, dtype=np.int64)), (), uniform(2, 4))
    made = packed(run)
    assert made is not None
    flat = numbers(unpacked(made.text)[1]["down"])
    found = [tuple(flat[i : i + 4]) for i in range(0, len(flat), 4)]
    assert found == [(1, 5, 4, 1), (0, 8, 4, 2), (0, 12, 0, 1), (1, 20, 0, 2)]


def test_frames_are_partitions_and_then_the_levels_that_divide_them() -> None:
    cluster = Cluster(
        nodes=tuple(Node(f"n{i}", 2, path=("z0", f"r{i // 2}")) for i in range(6)),
        levels=(Level("zone"), Level("rack"), Level("node")),
        partitions=(Partition("a", (0, 1, 2, 3)), Partition("b", (3, 4))),
    )
    frame = clustermap.describe(cluster)["frame"]
    assert [each["name"] for each in frame["frames"]] == ["a", "a, b", "b", ""]
    first = frame["frames"][0]
    assert [(each["kind"], each["name"], each["nodes"]) for each in first["frames"]] == [
        ("rack", "r0", [0, 1]),
        ("rack", "r1", [2]),
    ]
    assert frame["frames"][1]["nodes"] == [3]


def test_a_plain_cluster_has_no_frames() -> None:
    told = clustermap.describe(uniform(3, 8))
    assert told["frame"] == {"kind": "", "name": "", "nodes": [0, 1, 2]}
    assert told["nodes"][2] == ["n2", 8, "gpu"]


def test_the_workload_is_told_with_the_tenant_of_most_work_first() -> None:
    jobs = workload(
        [
            Job(0, 0, 10, 1, name="line\nbreak", tenant="small"),
            Job(1, 5, 10, 8, name="x" * 200, tenant="large"),
            Job(2, 9, 10, 1, gpu_milli=250, tenant="small"),
        ]
    )
    head, columns = unpacked(deflated(clustermap.pack_workload(jobs)))
    assert head["tenants"] == ["large", "small"]
    assert numbers(columns["tenant"]) == [1, 0, 1]
    assert numbers(columns["milli"]) == [1000, 1000, 250]
    assert np.cumsum(numbers(columns["submit"])).tolist() == [0, 5, 9]
    names = columns["names"].decode().split("\n")
    assert names == ["line break", "x" * clustermap.LONGEST_NAME, ""]


def test_a_blob_holds_any_name() -> None:
    data = blob({"name": "</script>é"}, {"a": b"12", "b": b""})
    head, columns = unpacked(deflated(data))
    assert head["name"] == "</script>é"
    assert columns == {"a": b"12", "b": b""}

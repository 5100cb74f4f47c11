"""Exports: a valid trace whose slices are the ledger's holds, and tables that come back as they were."""

import gzip
import json
import re
from collections import defaultdict
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from polars.testing import assert_frame_equal
from typer.testing import CliRunner

from headway.cli import main
from headway.cli.program import app
from headway.core.tape import Tape
from headway.errors import TapeError
from headway.formats import toml
from headway.jobs.metrics.ledger import Ledger
from headway.jobs.model.cluster import Cluster, Node, uniform
from headway.jobs.model.job import Job, workload
from headway.jobs.model.rows import Kind
from headway.jobs.policies.registry import build
from headway.jobs.rules.limits.limit import LimitRule
from headway.jobs.show.export.gpu_lanes import slots
from headway.jobs.show.export.perfetto import FIRST_NODE_PID, thinned, trace_events
from headway.jobs.show.export.tables import tables, write_perfetto
from headway.jobs.sim.faults import FailureModel, Faults
from headway.jobs.tables.settings import Experiment
from headway.runs.play import run as play
from headway.show.export import check_file, check_folder, write_tables
from headway.show.trace_events import microseconds
from headway.statistics.series import Series, exact_dot
from headway.units import SECOND
from tests.docs.pages import tables as tables_of_page
from tests.drive import World, drive, seconds_of
from tests.jobs.metrics.runs import Recorded, recorded

ROOT = Path(__file__).resolve().parents[4]
TABLES = ("jobs", "holds", "tape", "timeline", "tenants", "partitions", "qos", "users", "gpu_types", "nodes")


def ledger_of(run: Recorded) -> Ledger:
    return Ledger(run.tape, run.jobs, run.cluster)


def tables_of(ledger: Ledger, tape: Tape) -> dict[str, pl.DataFrame]:
    return {name: made() for name, made in tables(ledger, tape).items()}


def events_of(ledger: Ledger) -> list[dict[str, Any]]:
    document = json.loads("".join(trace_events(ledger, 'a "run"')))
    assert document["otherData"]["run"] == 'a "run"'
    events: list[dict[str, Any]] = document["traceEvents"]
    return events


def in_ns(time_us: float) -> int:
    return round(time_us * 1000)


@settings(max_examples=60)
@given(recorded())
def test_a_trace_is_valid_and_its_slices_are_the_gpu_time_of_the_ledger(run: Recorded) -> None:
    ledger = ledger_of(run)
    held = 0
    lines: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    named = set()
    for event in events_of(ledger):
        assert event["ph"] in "MXisfC"
        assert {"ph", "name", "ts", "pid", "tid"} <= set(event)
        if event["ph"] == "X":
            assert event["dur"] > 0
            start = in_ns(event["ts"])
            lines[event["pid"], event["tid"]].append((start, start + in_ns(event["dur"])))
            job = run.jobs[event["args"]["job"]]
            assert event["args"]["tenant"] == job.tenant
            assert event["args"].get("share", 1.0) == job.gpu_milli / 1000
            held += in_ns(event["dur"]) * job.gpu_milli * bool(job.gpus)
        elif event["ph"] == "M" and event["name"] == "thread_name":
            named.add((event["pid"], event["tid"]))
        elif event["ph"] == "C":
            assert all(isinstance(value, int | float) for value in event["args"].values())
    assert set(lines) <= named
    assert len({tid for _, tid in named}) == len(named)
    for spans in lines.values():
        spans.sort()
        assert all(first[1] <= second[0] for first, second in pairwise(spans))
    assert held == exact_dot(ledger.held, ledger.width)


@settings(max_examples=60)
@given(recorded())
def test_slots_are_the_gpus_that_the_tape_gives(run: Recorded) -> None:
    ledger = ledger_of(run)
    held = slots(ledger)
    found: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for hold, node, gpu in zip(held.hold.tolist(), held.node.tolist(), held.gpu.tolist(), strict=True):
        assert (node, gpu) not in found[hold]
        found[hold].add((node, gpu))
    for hold in range(len(ledger.hold_row)):
        job = run.jobs[int(ledger.hold_job[hold])]
        lasted = ledger.hold_end[hold] > ledger.hold_start[hold]
        assert len(found[hold]) == (max(1, job.gpus) if lasted else 0)
    for place in range(len(ledger.place_hold)):
        node, mask = int(ledger.place_node[place]), int(ledger.place_mask[place])
        hold = int(ledger.place_hold[place])
        if found[hold]:
            assert {gpu for where, gpu in found[hold] if where == node and mask >> gpu & 1} == {
                gpu for gpu in range(mask.bit_length()) if mask >> gpu & 1
            }
    whole = ledger.gpu_milli[ledger.hold_job[held.hold]] == 1000
    assert not held.lane[whole & (ledger.gpus[ledger.hold_job[held.hold]] > 0)].any()


def test_a_move_is_an_instant_and_an_arrow_from_the_old_slice_into_the_new_one() -> None:
    # the short jobs leave two nodes half full behind: one of the long ones moves to the other
    world = World(uniform(2, 4), seconds_of((0, 10, 2), (0, 1000, 2), (0, 1000, 2), (0, 10, 2)))
    run = drive(build("fifo+migrate-free"), world)
    moves = run.rows(Kind.MIGRATE)
    ledger = Ledger(run.tape, run.jobs, world.cluster)
    events = events_of(ledger)
    starts, ends = ([event for event in events if event["ph"] == phase] for phase in "sf")
    assert len(starts) == len(ends) == len(moves) > 0
    slices = [event for event in events if event["ph"] == "X"]

    def around(event: dict[str, Any]) -> list[dict[str, Any]]:
        at = in_ns(event["ts"])
        return [
            each
            for each in slices
            if (each["pid"], each["tid"]) == (event["pid"], event["tid"])
            and in_ns(each["ts"]) <= at < in_ns(each["ts"]) + in_ns(each["dur"])
        ]

    for start, end, move in zip(starts, ends, moves, strict=True):
        assert start["id"] == end["id"] == move.lease
        (old,), (new,) = around(start), around(end)
        assert old["args"]["job"] == new["args"]["job"] == move.subject
        assert (old["args"]["ended"], new["args"]["wait_s"]) == ("moved", 0.0)
    assert sum(event["ph"] == "i" and event["name"].endswith("moved") for event in events) == len(moves)


def test_failures_are_instants_on_their_node_and_counters_follow_the_run() -> None:
    world = World(
        uniform(2, 2),
        seconds_of((0, 400, 2), (0, 400, 2), (1, 10, 1)),
        lambda: Faults(2, 1, FailureModel(300 * SECOND, 20 * SECOND)),
    )
    run = drive("fifo", world)
    events = events_of(Ledger(run.tape, run.jobs, world.cluster))
    failed = [event for event in events if event["ph"] == "i" and event["name"] == "node failed"]
    assert [(event["pid"] - FIRST_NODE_PID, in_ns(event["ts"])) for event in failed] == [
        (row.subject, row.time) for row in run.rows(Kind.NODE_FAILED)
    ]
    assert failed
    queue = [(event["ts"], event["args"]["jobs"]) for event in events if event["name"] == "queue"]
    assert queue[:2] == [(0, 0.0), (1_000_000, 1.0)] or queue[0] == (1_000_000, 1.0)
    assert {"allocated", "fragmentation", "in service"} <= {e["name"] for e in events if e["ph"] == "C"}


def test_shares_of_one_gpu_lie_on_lanes_beside_each_other() -> None:
    jobs = workload(Job(0, i * SECOND, 10 * SECOND, gpu_milli=300, name=f"s{i}") for i in range(3))
    cluster = Cluster((Node("only", 1),))
    run = drive("fifo", World(cluster, jobs))
    ledger = Ledger(run.tape, jobs, cluster)
    assert slots(ledger).lane.tolist() == [0, 1, 2]
    names = [e["args"]["name"] for e in events_of(ledger) if e["name"] == "thread_name"]
    assert names == ["GPU 0", "GPU 0, 2", "GPU 0, 3"]


def test_a_counter_with_many_points_keeps_its_extremes() -> None:
    values = np.arange(10_000) % 100
    values[[1234, 5678]] = (777, -5)
    series = Series(np.arange(10_000, dtype=np.int64), values.astype(np.int64))
    kept = dict(thinned(series, 400))
    assert len(kept) <= 402
    assert (kept[1234], kept[5678]) == (777, -5)
    assert {0, 9999} <= set(kept)
    assert microseconds(1_234_567) == "1234.567"
    assert microseconds(2_000) == "2"


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@settings(max_examples=15)
@given(run=recorded())
def test_tables_come_back_as_they_were(kind: str, run: Recorded, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("tables")
    ledger = ledger_of(run)
    written = write_tables(tables(ledger, run.tape), folder, kind)
    for (name, table), file in zip(tables_of(ledger, run.tape).items(), written, strict=True):
        assert (file.path.name, file.rows) == (f"{name}.{kind}", len(table))
        if kind == "parquet":
            assert_frame_equal(pl.read_parquet(file.path), table)
        else:
            read = pl.read_csv(file.path, schema=table.schema)
            assert_frame_equal(read, table)
    assert sorted(path.name for path in folder.iterdir()) == sorted(file.path.name for file in written)


@settings(max_examples=30)
@given(recorded())
def test_the_tables_agree_with_the_ledger(run: Recorded) -> None:
    ledger = ledger_of(run)
    found = tables_of(ledger, run.tape)
    assert len(found["jobs"]) == int(ledger.arrived.sum())
    assert len(found["tape"]) == len(run.tape)
    assert found["tape"]["time_ns"].to_list() == run.tape.column("time").tolist()
    holds = found["holds"]
    hours = (holds["end_s"].fill_null(ledger.horizon / SECOND) - holds["start_s"]) * holds["width"] / 3600
    total = exact_dot(ledger.held, ledger.width) / 3.6e15
    assert hours.sum() == pytest.approx(total)
    assert found["nodes"]["gpu_hours"].sum() == pytest.approx(total)
    waited = holds.group_by("id").agg(pl.col("wait_s").sum()).sort("id")
    for job, wait_s in waited.iter_rows():
        if ledger.ended[job]:
            assert wait_s == pytest.approx(int(ledger.wait[job]) / SECOND)
    assert (holds["ended"] == "running").sum() == int((~ledger.hold_closed).sum())


def test_the_columns_of_the_tables_are_those_of_the_page() -> None:
    world = World(uniform(2, 4, nodes_per_group=[("rack", 1)]), seconds_of((0, 10, 4)))
    run = drive("fifo", world)
    made = tables_of(Ledger(run.tape, run.jobs, world.cluster), run.tape)
    page = (ROOT / "docs" / "guides" / "export.md").read_text(encoding="utf-8")
    for name, table in made.items():
        section = page.partition(f"### `{name}`")[2].partition("\n### ")[0]
        ((_, rows),) = tables_of_page(section)
        told = [column for row in rows for column in re.findall(r"`([\w*]+)`", row[0])]
        plain = [re.sub("^(level|fragmentation)_.*", r"\1_*", column) for column in table.columns]
        assert set(told) == set(plain), name


def test_waiting_behind_limits_is_a_table_where_there_are_any() -> None:
    rule = LimitRule("MaxGPUs", "gpus", 4000)
    world = World(replace(uniform(2, 4), limits=(rule,)), seconds_of((0, 3600, 4), (0, 3600, 4)))
    run = drive("fifo", world)
    made = tables_of(Ledger(run.tape, run.jobs, world.cluster), run.tape)
    assert list(made) == [*TABLES[:-1], "limits", TABLES[-1]]
    assert made["limits"].rows() == [("MaxGPUs", 1.0, 1.0)]
    page = (ROOT / "docs" / "guides" / "export.md").read_text(encoding="utf-8")
    ((_, rows),) = tables_of_page(page.partition("### `limits`")[2].partition("\n### ")[0])
    assert re.findall(r"`([\w*]+)`", "".join(row[0] for row in rows)) == made["limits"].columns


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    world = World(uniform(2, 4), seconds_of((0, 10, 4), (1, 5, 8), (2, 3, 2)))
    run = drive("srtf", world)
    ledger = Ledger(run.tape, run.jobs, world.cluster)
    for name in ("a.json.gz", "b.json.gz", "c.json"):
        write_perfetto(ledger, tmp_path / name)
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.json.gz").read_bytes()) == (tmp_path / "c.json").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json.gz", "b.json.gz", "c.json"]


def test_an_empty_tape_and_one_cut_short_are_exported(tmp_path: Path) -> None:
    world = World(uniform(2, 4), seconds_of((0, 10, 4), (1, 5, 8)))
    nothing = Tape(np.empty((0, 7), dtype=np.int64))
    assert not [e for e in events_of(Ledger(nothing, world.jobs, world.cluster)) if e["ph"] == "X"]
    cut = drive("fifo", world).tape.until(SECOND)
    ledger = Ledger(cut, world.jobs, world.cluster)
    slices = [event for event in events_of(ledger) if event["ph"] == "X"]
    assert {(event["dur"], event["args"]["ended"]) for event in slices} == {(1_000_000, "running")}
    write_tables(tables(ledger, cut), tmp_path, "csv")
    assert pl.read_csv(tmp_path / "holds.csv")["end_s"].null_count() == 1


# --- files that are in the way --------------------------------------------------------------------------------


def test_what_is_there_is_not_overwritten_unless_asked(tmp_path: Path) -> None:
    (tmp_path / "there.json").write_text("mine")
    with pytest.raises(TapeError, match=r"there\.json: exists already; --force overwrites it"):
        check_file(tmp_path / "there.json", force=False)
    check_file(tmp_path / "there.json", force=True)
    with pytest.raises(TapeError, match="is a folder with something in it"):
        check_folder(tmp_path, force=False)
    check_folder(tmp_path, force=True)
    check_folder(tmp_path / "new" / "deep", force=False)
    assert (tmp_path / "new" / "deep").is_dir()
    with pytest.raises(TapeError, match="is a folder, not a file"):
        check_file(tmp_path, force=True)
    with pytest.raises(TapeError, match="is a file, not a folder"):
        check_folder(tmp_path / "there.json", force=True)
    with pytest.raises(TapeError, match="there is no folder"):
        check_file(tmp_path / "no" / "x.json", force=False)


def test_a_failure_half_way_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(uniform(2, 4), seconds_of((0, 10, 4)))
    run = drive("fifo", world)
    ledger = Ledger(run.tape, run.jobs, world.cluster)
    path = tmp_path / "x.json"
    path.write_text("mine")

    def broken(*_: object) -> Any:
        yield "{"
        raise KeyboardInterrupt

    monkeypatch.setattr("headway.jobs.show.export.tables.trace_events", broken)
    with pytest.raises(KeyboardInterrupt):
        write_perfetto(ledger, path)
    assert path.read_text() == "mine"
    assert [each.name for each in tmp_path.iterdir()] == ["x.json"]


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A small run."""
    document = {
        "trace": {"synthetic": {"jobs": 40, "load": 2.0}},
        "cluster": {"nodes": 2, "gpus_per_node": 8},
        "run": {"out": str(tmp_path / "run")},
        "policy": {"name": "fifo"},
    }
    play(toml.typed(document, Experiment, "test"))
    return str(tmp_path / "run")


def test_the_command_writes_all_three(folder: str, tmp_path: Path) -> None:
    trace, parquet, csv = tmp_path / "t.json.gz", tmp_path / "p", tmp_path / "c"
    arguments = ["export", folder, "--perfetto", str(trace), "--parquet", str(parquet), "--csv", str(csv)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert f"{parquet / 'jobs.parquet'}: 40 rows" in done.stdout
    assert json.loads(gzip.decompress(trace.read_bytes()))["otherData"] == {"run": "run"}
    assert len(list(csv.iterdir())) == len(list(parquet.iterdir())) == 10
    again = CliRunner().invoke(app, [*arguments, "--force"])
    assert again.exit_code == 0, again.output


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ([], "nothing to export: give --perfetto FILE.json.gz, --parquet FOLDER or --csv FOLDER"),
        (["--perfetto", "x.svg"], "--perfetto x.svg: the name must end in .json or .json.gz"),
        (["--parquet", "a", "--csv", "./a"], "--parquet and --csv name the same folder ./a: give each its own"),
        (["--csv", "."], ".: is a folder with something in it; --force overwrites the tables there"),
    ],
)
def test_wrong_flags_are_one_line(
    folder: str,
    flags: list[str],
    line: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "mine.txt").write_text("in the way")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["export", folder, *flags])
    assert ended.value.code == 2
    assert line in capsys.readouterr().err


def stopped_half_way(ledger: Ledger, tape: Tape, calendar: object = None) -> dict[str, Callable[[], pl.DataFrame]]:
    """Three tables, and Ctrl-C."""

    def stopped() -> pl.DataFrame:
        raise KeyboardInterrupt

    return dict.fromkeys(TABLES, stopped) | dict(islice(tables(ledger, tape).items(), 3))


@pytest.mark.parametrize("flag", ["--parquet", "--csv"])
def test_ctrl_c_leaves_no_half_of_the_tables_and_no_empty_folder(
    folder: str, flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr("headway.jobs.show.export.tables.tables", stopped_half_way)
    with pytest.raises(SystemExit) as ended:
        main(["export", folder, flag, str(tmp_path / "new" / "deep")])
    assert ended.value.code == 130
    assert capsys.readouterr().err.endswith("headway: stopped\n")
    assert sorted(tmp_path.rglob("*")) == before


def test_ctrl_c_leaves_older_tables_as_they_were(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "tables"
    place.mkdir()
    (place / "jobs.csv").write_text("mine")

    monkeypatch.setattr("headway.jobs.show.export.tables.tables", stopped_half_way)
    with pytest.raises(SystemExit):
        main(["export", folder, "--csv", str(place), "--force"])
    assert [path.name for path in place.iterdir()] == ["jobs.csv"]
    assert (place / "jobs.csv").read_text() == "mine"


def test_it_tells_how_far_it_is(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, float]] = []

    @contextmanager
    def bar(name: str) -> Any:
        assert name == "export"
        yield lambda what, share: told.append((what, share))

    monkeypatch.setattr("headway.runs.folder.exports.share_bar", bar)
    monkeypatch.setattr("headway.jobs.show.export.perfetto._TOLD_EVERY", 10)
    outputs = ["--perfetto", str(tmp_path / "t.json"), "--parquet", str(tmp_path / "p"), "--csv", str(tmp_path / "c")]
    with pytest.raises(SystemExit) as ended:
        main(["export", folder, *outputs])
    assert ended.value.code == 0
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert shares[0] == 0.0
    assert 0.9 < shares[-1] <= 1.0
    names = list(dict.fromkeys(what for what, _ in told))
    assert names == ["reading", "t.json", *(f"{name}.parquet" for name in TABLES), *(f"{name}.csv" for name in TABLES)]

"""Tables of a fleet's run: they come back as they were, agree with the ledger, and have the columns of the page."""

import re
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings, strategies as st
from polars.testing import assert_frame_equal

from headway.fleet.metrics.ledger import Ledger
from headway.fleet.model.request import NO_GROUPS, Groups
from headway.fleet.model.rows import Kind
from headway.fleet.show.export import TOKENS, tables
from headway.show.export import write_tables
from headway.units import SECOND
from tests.docs.pages import read, tables as tables_of_page
from tests.fleet.restless import Restless
from tests.fleet.worlds import Run, World, drive, worlds

TABLES = ("requests", "tasks", "batches", "workers", "rentals")
PARTS = ("run_s", "load_s", "wait_s", "controller_s", "transfer_s", "lost_s")


def tables_of(run: Run, until: int | None = None, groups: Groups = NO_GROUPS) -> dict[str, pl.DataFrame]:
    tape = run.tape if until is None else run.tape.until(until)
    made = tables(run.world.catalogue, run.world.fleet, run.world.requests, tape, groups)
    return {name: make() for name, make in made.items()}


@settings(max_examples=20)
@given(worlds(), st.integers(0, 3), st.floats(0, 1))
def test_the_tables_agree_with_the_ledger(world: World, seed: int, share: float) -> None:
    run = drive(Restless(seed), world)
    until = round(share * int(run.tape.column("time")[-1]))
    tape = run.tape.until(until)
    found, ledger = tables_of(run, until), Ledger(world.catalogue, world.fleet, world.requests, tape)
    requests, batches = found["requests"], found["batches"]
    assert tuple(found) == TABLES
    assert len(requests) == int(ledger.arrived.sum())
    outcomes = dict(requests.group_by("outcome").len().iter_rows())
    assert outcomes.get("answered", 0) == int(ledger.answered.sum())
    assert outcomes.get("dropped", 0) == int(ledger.dropped.sum())
    assert requests["latency_s"].sum() == pytest.approx(ledger.latency[ledger.answered].sum() / SECOND)
    answered = requests.filter(pl.col("outcome") == "answered")
    sums = answered.select(pl.sum_horizontal(PARTS).alias("whole"), "latency_s")
    assert sums["whole"].to_list() == pytest.approx(sums["latency_s"].to_list())
    assert batches["tasks"].to_list() == ledger.batch_size.tolist()
    held = ((ledger.batch_end - ledger.began) * ledger.slices).sum() / SECOND
    assert found["workers"]["held_slice_s"].sum() == pytest.approx(held)
    assert found["workers"]["batches"].sum() == len(batches)
    tasks = found["tasks"]
    assert tasks["batch"].is_not_null().sum() == ledger.count(Kind.TASK)
    assert tasks["lost_s"].is_not_null().sum() == ledger.count(Kind.LOST)
    timed = [each for each in world.requests if ledger.arrived[each.id] and each.deadline]
    assert requests["in_time"].is_not_null().sum() == len(timed)
    assert found["workers"]["rented_s"].to_list() == [ledger.horizon / SECOND] * len(world.fleet.workers)
    assert (found["rentals"]["end_s"].null_count(), len(found["rentals"])) == (len(world.fleet.workers),) * 2
    hits = ledger.answered & (ledger.deadline > 0) & (ledger.end <= ledger.deadline)
    assert requests["in_time"].sum() == int(hits.sum())


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@settings(max_examples=8)
@given(world=worlds(), seed=st.integers(0, 3))
def test_tables_come_back_as_they_were(
    kind: str, world: World, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run = drive(Restless(seed), world)
    folder = tmp_path_factory.mktemp("tables")
    written = write_tables(tables(world.catalogue, world.fleet, world.requests, run.tape), folder, kind)
    for (name, table), file in zip(tables_of(run).items(), written, strict=True):
        assert (file.path.name, file.rows) == (f"{name}.{kind}", len(table))
        read_back = pl.read_parquet(file.path) if kind == "parquet" else pl.read_csv(file.path, schema=table.schema)
        assert_frame_equal(read_back, table)
    assert sorted(path.name for path in folder.iterdir()) == sorted(file.path.name for file in written)


@settings(max_examples=1)
@given(worlds())
def test_the_columns_of_the_tables_are_those_of_the_page(world: World) -> None:
    page = read(Path("docs/guides/fleet-report.md"))
    groups = Groups(("gold",), ("search", "chat"))
    for name, table in tables_of(drive(Restless(0), world), groups=groups).items():
        section = page.partition(f"### `{name}`")[2].partition("\n##")[0]
        ((_, rows),) = tables_of_page(section)
        told = {column for row in rows for column in re.findall(r"`(\w+)`", row[0])}
        assert told - set(TOKENS) == set(table.columns), name
        assert all(f"{dtype}" != "Null" for dtype in table.dtypes), name

"""Tables of a kernel run: they agree with the tape and come back as they were; and its timeline for Perfetto."""

import json

import polars as pl
import pytest
from hypothesis import given, settings, strategies as st
from polars.testing import assert_frame_equal

from headway.gpu.model.device import Device
from headway.gpu.model.program import Client
from headway.gpu.model.rows import Kind
from headway.gpu.show.export import tables, trace_events
from headway.show.export import write_tables
from headway.units import SECOND
from tests.gpu.worlds import drive, worlds

World = tuple[tuple[Client, ...], Device]
COLUMNS = {
    "requests": ["client", "request", "began_s", "ended_s", "latency_s"],
    "kernels": [
        *("client", "launch", "kernel", "launched_s", "started_s", "ended_s", "alone_s", "gated_s", "reason"),
    ],
    "delays": ["client", "launch", "by", "kernel", "delay_s"],
}
POLICIES = st.sampled_from(["mps", "strict", "headway"])


@settings(max_examples=25)
@given(worlds(), POLICIES, st.floats(0, 1))
def test_the_tables_agree_with_the_tape_wherever_it_is_cut(world: World, policy: str, share: float) -> None:
    clients, device = world
    run = drive(policy, clients, device)
    tape = run.tape.until(round(share * int(run.tape.column("time")[-1])))
    found = {name: made() for name, made in tables(clients, tape).items()}
    assert {name: table.columns for name, table in found.items()} == COLUMNS
    requests, kernels, delays = found.values()
    rows = list(tape)
    ended = [row for row in rows if row.kind == Kind.REQUEST_ENDED]
    assert requests["latency_s"].sum() == pytest.approx(sum(row.time - row.value for row in ended) / SECOND)
    for index, client in enumerate(clients):
        own = kernels.filter(pl.col("client") == client.name)
        went = [row for row in rows if row.kind in (Kind.LAUNCHED, Kind.LET_GO) and row.subject == index]
        finished = [row for row in rows if row.kind == Kind.FINISHED and row.subject == index]
        assert own["launch"].to_list() == list(range(len(went)))
        assert own["launched_s"].to_list() == pytest.approx([row.time / SECOND for row in went])
        assert own["kernel"].to_list() == [client.program.kernels[row.place].name for row in went]
        assert own["ended_s"].drop_nulls().to_list() == pytest.approx([row.time / SECOND for row in finished])
        assert own["started_s"].drop_nulls().to_list() == pytest.approx([row.value / SECOND for row in finished])
        assert own["alone_s"].head(len(finished)).to_list() == pytest.approx([row.detail / SECOND for row in finished])
    held = [row for row in rows if row.kind == Kind.HELD_UP]
    assert delays["delay_s"].sum() == pytest.approx(sum(row.value for row in held) / SECOND)
    assert sorted(delays["by"].to_list()) == sorted(clients[row.detail].name for row in held)


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@settings(max_examples=8)
@given(world=worlds(), policy=POLICIES)
def test_tables_come_back_as_they_were(
    kind: str, world: World, policy: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    clients, device = world
    made = tables(clients, drive(policy, clients, device).tape)
    folder = tmp_path_factory.mktemp("tables")
    written = write_tables(made, folder, kind, lambda _what, _share: None)
    for (name, table), file in zip(made.items(), written, strict=True):
        whole = table()
        assert (file.path.name, file.rows) == (f"{name}.{kind}", len(whole))
        assert all(f"{dtype}" != "Null" for dtype in whole.dtypes), name
        read_back = pl.read_parquet(file.path) if kind == "parquet" else pl.read_csv(file.path, schema=whole.schema)
        assert_frame_equal(read_back, whole)


@settings(max_examples=15)
@given(worlds(), POLICIES, st.floats(0, 1))
def test_the_timeline_has_every_kernel_that_ended(world: World, policy: str, share: float) -> None:
    clients, device = world
    run = drive(policy, clients, device)
    tape = run.tape.until(round(share * int(run.tape.column("time")[-1])))
    document = json.loads("".join(trace_events(clients, tape, 'a "title"')))
    assert document["otherData"]["run"] == 'a "title"'
    events = document["traceEvents"]
    names = [event["args"]["name"] for event in events if event["ph"] == "M" and event["name"] == "process_name"]
    assert names == [client.name for client in clients]
    lanes = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in events
        if event["ph"] == "M" and event["name"] == "thread_name"
    }
    on_gpu = [event for event in events if event["ph"] == "X" and lanes[event["pid"], event["tid"]].startswith("GPU")]
    assert len(on_gpu) == sum(1 for row in tape if row.kind == Kind.FINISHED)
    assert all(event["dur"] >= 0 for event in events if event["ph"] == "X")

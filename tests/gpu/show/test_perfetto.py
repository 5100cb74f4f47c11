"""Timelines of kernels: valid, every launch and kernel on it once, and two programs on one axis."""

import gzip
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from headway.errors import ProfileError
from headway.gpu.programs.trace import KernelTrace
from headway.gpu.show import timeline as kernel_timeline
from headway.gpu.show.perfetto import Client, Gated, reason_name, trace_events
from headway.show.trace_events import microseconds
from tests.gpu.profiling.recordings import recorded, text_of

EVIL = '</script> "k" \\ \u2028'
KERNELS = {1: (1, text_of("alpha")), 2: (1, text_of("beta"))}


def trace_from(rows: list[tuple[int, int, int]]) -> KernelTrace:
    """Rows of the time since the launch before, the time in the queue and the duration."""
    gaps, queued, took = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    launch = np.cumsum(gaps) - gaps[0]
    count = len(rows)
    return KernelTrace(
        launch_ns=launch,
        start_ns=launch + queued,
        end_ns=launch + queued + took,
        kernel=np.array([EVIL] * count, np.str_),
        blocks=np.full(count, 64, np.int32),
        per_sm=np.full(count, 2, np.int32),
        kind=np.array([1 + at % 3 for at in range(count)], np.int8),
        wait_ns=np.array([int(start) + 7 if at % 4 == 3 else 0 for at, start in enumerate(launch + queued)], np.int64),
    )


def events_of(*clients: Client) -> list[dict[str, Any]]:
    document = json.loads("".join(trace_events(clients, 'a "run"')))
    assert document["otherData"]["run"] == 'a "run"'
    found: list[dict[str, Any]] = document["traceEvents"]
    return found


def in_ns(time_us: float) -> int:
    return round(time_us * 1000)


rows = st.lists(
    st.tuples(st.integers(0, 5_000), st.integers(0, 9_000), st.integers(0, 20_000)), min_size=1, max_size=30
)


@given(rows, rows, st.integers(0, 10**9))
def test_every_launch_and_its_kernel_are_drawn_once_and_no_slice_cuts_another(
    one: list[tuple[int, int, int]], two: list[tuple[int, int, int]], later: int
) -> None:
    clients = [
        Client("api", trace_from(one)),
        Client("batch", trace_from(two), later, [Gated(3, 9, 9), Gated(5, 20, 7)]),
    ]
    events = events_of(*clients)
    slices = [event for event in events if event["ph"] == "X"]
    for pid, client in enumerate(clients, start=1):
        trace = client.trace
        drawn = sorted(
            (in_ns(event["ts"]) - client.since_ns, in_ns(event["dur"]))
            for event in slices
            if event["pid"] == pid and event["cat"] in ("kernel", "graph", "copy")
        )
        spans = zip(trace.start_ns.tolist(), (trace.end_ns - trace.start_ns).tolist(), strict=True)
        assert drawn == sorted(spans)
        launches = [event for event in slices if event["pid"] == pid and event["cat"] == "launch"]
        assert len(launches) == len(trace) == sum(event["ph"] == "s" for event in events if event["pid"] == pid)
    lanes: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for event in slices:
        if event["cat"] != "launch":  # two launches of one nanosecond lie on one another
            span = (in_ns(event["ts"]), in_ns(event["ts"]) + in_ns(event["dur"]))
            lanes.setdefault((event["pid"], event["tid"]), []).append(span)
    for spans_of_lane in lanes.values():
        ordered = sorted(spans_of_lane)
        assert all(before[1] <= after[0] for before, after in pairwise(ordered))


def test_threads_are_named_and_gated_stretches_say_why() -> None:
    events = events_of(Client("batch", trace_from([(0, 10, 50), (20, 0, 50)]), 0, [Gated(0, 1_500, 9)]))
    names = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert names == {"batch", "launches", "GPU", "GPU, 2", "held back"}
    (gate,) = [event for event in events if event.get("cat") == "gate"]
    assert (gate["name"], gate["ts"], gate["dur"]) == ("gap", 0, 1.5)
    assert reason_name(99) == "reason 99"


def test_times_are_exact() -> None:
    assert [microseconds(time) for time in (0, 1_000, 1_234_567, -1_500)] == ["0", "1", "1234.567", "-1.500"]


def test_recorded_programs_lie_on_one_axis(tmp_path: Path) -> None:
    first = recorded([(1, 1_000, 1)], [(1_500, 1_600, 1, "alpha")], KERNELS, name="api")
    second = recorded([(2, 4_000, 1)], [(4_200, 4_900, 1, "beta")], KERNELS, program="batch")
    clients = kernel_timeline.clients_of([first, second])
    assert [(client.name, client.since_ns) for client in clients] == [("api (7)", 0), ("batch (7)", 3_000)]
    for name in ("t.json", "t.json.gz"):
        path = kernel_timeline.write_recorded(tmp_path / name, [first, second])
        content = gzip.decompress(path.read_bytes()) if name.endswith(".gz") else path.read_bytes()
        kernels = [event for event in json.loads(content)["traceEvents"] if event.get("cat") == "kernel"]
        assert [(event["ts"], event["dur"]) for event in kernels] == [(0.5, 0.1), (3.2, 0.7)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.json", "t.json.gz"]


def test_a_timeline_that_cannot_be_written_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"must end in \.json or \.json\.gz"):
        kernel_timeline.environment(tmp_path / "t.txt")
    with pytest.raises(ProfileError, match="there is no folder"):
        kernel_timeline.environment(tmp_path / "no" / "t.json")
    assert kernel_timeline.environment(tmp_path / "t.json") == {"HEADWAY_TRACE": str(tmp_path / ".t.json.trace")}
    with pytest.raises(ProfileError, match="nothing was recorded"):
        kernel_timeline.write(tmp_path / "t.json")

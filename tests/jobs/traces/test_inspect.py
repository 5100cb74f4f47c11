"""What a trace is said to hold is what it holds: by hand for small ones, against plain walks for drawn ones."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from headway.fleet.traces.trace import RequestTrace
from headway.jobs.model.job import Job, Outcome, workload
from headway.jobs.traces import Dropped, Trace, load_scale, offered_load, philly_like
from headway.jobs.traces.inspect import MOST_ROWS, MOST_STEPS, edges_of, formats, inspect, inspect_requests
from headway.jobs.traces.registry import READERS
from headway.units import DAY, HOUR, MINUTE, SECOND

FIRST = ["format", "rows", "jobs", "dropped", "span_s", "gpus_max"]


def _trace(*jobs: Job, dropped: tuple[Dropped, ...] = (), notes: tuple[str, ...] = ()) -> Trace:
    return Trace(workload(jobs), "headway", len(jobs) + len(dropped), dropped, notes)


def _job(at: int, submit_s: float, work_s: float, gpus: int = 1, **more: object) -> Job:
    return replace(Job(at, round(submit_s * SECOND), round(work_s * SECOND), gpus), **more)  # type: ignore[arg-type]


def _kinds(trace: Trace, gpus: int = 0) -> dict[str, int]:
    return {each["kind"]: each["jobs"] for each in inspect(trace, gpus)["oddities"]}


def test_a_small_trace_by_hand() -> None:
    trace = _trace(
        _job(0, 0, 100, 2, tenant="a", estimate=200 * SECOND),
        _job(1, 50, 200, 8, tenant="b", outcome=Outcome.FAILS, outcome_after=100 * SECOND),
        _job(2, 100, 50, 0, tenant="b", cpu_milli=4000),
        _job(3, 200, 36, 1, tenant="b", gpu_milli=500),
    )
    found = inspect(trace, gpus=4)
    assert {key: found[key] for key in FIRST} == {
        "format": "headway", "rows": 4, "jobs": 4, "dropped": 0, "span_s": 200.0, "gpus_max": 8,
    }  # fmt: skip
    assert found["gpu_hours"] == pytest.approx((200 + 800 + 18) / 3600)
    assert found["cpu_hours"] == pytest.approx(200 / 3600)
    assert found["cpu_only"] == 1
    assert [(each["gpus"], each["jobs"]) for each in found["widths"]] == [(0, 1), (0.5, 1), (2, 1), (8, 1)]
    assert sum(each["gpu_hours_share"] for each in found["widths"]) == pytest.approx(1)
    assert (found["duration_p50_s"], found["duration_max_s"]) == (75, 100)
    assert found["wanted_gpus_peak"] == 10
    assert found["wanted_gpus_mean"] == pytest.approx((50 * 2 + 50 * 10 + 50 * 8) / 200)
    assert found["load"] == pytest.approx(1018 / 200 / 4) == offered_load(trace.jobs, 4)
    assert found["over_share"] == pytest.approx(0.5)
    assert found["tenants"]["count"] == 2
    assert [each["name"] for each in found["tenants"]["top"]] == ["b", "a"]
    assert found["users"] == {"count": 0, "top": []}
    assert {key: each["jobs"] for key, each in found["outcomes"].items()} == {"finishes": 3, "fails": 1, "cancelled": 0}
    assert found["estimates"]["jobs"] == 1
    assert found["estimates"]["ratio_p50"] == 2


def test_without_gpus_nothing_is_said_of_a_cluster() -> None:
    assert not {"gpus", "load", "over_share"} & set(inspect(_trace(_job(0, 0, 1))))


def test_a_single_job_and_jobs_at_one_instant_have_no_load_over_time() -> None:
    for jobs in ([_job(0, 0, 60, 4)], [_job(0, 0, 60, 4), _job(1, 0, 60, 4)]):
        found = inspect(_trace(*jobs), gpus=8)
        assert (found["span_s"], found["offered_gpus"], found["load"], found["wanted_gpus"]) == (0, None, None, [])
        assert found["wanted_gpus_peak"] == 4 * len(jobs)


def test_rows_that_were_dropped_are_grouped_by_rule_the_commonest_first() -> None:
    bad = tuple(Dropped(line, "work_s", "x", "is not a number") for line in range(2, 2000))
    found = inspect(_trace(_job(0, 0, 1), dropped=(Dropped(1, "gpus", "0", "must be at least 1"), *bad)))
    assert (found["rows"], found["jobs"], found["dropped"]) == (2000, 1, 1999)
    assert [(rule["column"], rule["rows"]) for rule in found["dropped_by_rule"]] == [("work_s", 1998), ("gpus", 1)]
    assert found["dropped_by_rule"][0]["examples"] == [{"line": line, "value": "x"} for line in (2, 3, 4)]
    assert len(found["dropped_rows"]) == MOST_ROWS
    assert found["dropped_rows"][0] == {"line": 1, "column": "gpus", "value": "0", "rule": "must be at least 1"}


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(0, 500), st.integers(1, 300), st.integers(0, 9), st.integers(0, 3)),
        min_size=1,
        max_size=30,
    ),
    st.integers(1, 20),
)
def test_what_is_wanted_equals_a_plain_walk(asked: list[tuple[int, int, int, int]], gpus: int) -> None:
    jobs = [_job(0, submit, work, width, cpu_milli=1, user=f"u{user}") for submit, work, width, user in asked]
    first = min(job.submit for job in jobs)
    trace = _trace(*(replace(job, submit=job.submit - first) for job in jobs))
    found = inspect(trace, gpus)
    span = trace.jobs[-1].submit // SECOND
    level = [
        sum(job.gpus for job in trace.jobs if job.submit <= at * SECOND < job.submit + job.work)
        for at in range(span + 1)
    ]
    assert found["wanted_gpus_peak"] == max(level)
    assert found["users"]["count"] == len({job.user for job in trace.jobs})
    assert sum(found["submissions"]) == (len(jobs) if span else 0)
    if span:
        assert found["wanted_gpus_mean"] == pytest.approx(sum(level[:span]) / span)
        assert found["over_share"] == pytest.approx(sum(each > gpus for each in level[:span]) / span)
        edges = edges_of(span).tolist()
        means = [np.mean(level[int(a) : int(b)]) for a, b in pairwise(edges)]
        assert found["wanted_gpus"] == pytest.approx(means, abs=1e-3)


@given(st.floats(1e-6, 1e10))
def test_a_span_is_shown_in_few_steps_that_cover_it(span: float) -> None:
    edges = edges_of(span)
    assert edges[0] == 0
    assert edges[-1] == span
    assert (np.diff(edges) > 0).all()
    assert edges.size - 1 <= max(MOST_STEPS, span / (365 * 86400) + 1)


def test_a_record_is_json_and_the_same_for_the_same_trace() -> None:
    trace = Trace(philly_like(500, seed=3), "drawn", 500)
    assert json.dumps(inspect(trace, 64), allow_nan=False) == json.dumps(inspect(trace, 64), allow_nan=False)
    assert list(inspect(trace))[:4] == FIRST[:4]


def test_more_load_shows_as_more_load() -> None:
    jobs = philly_like(500, seed=3)
    slow, fast = (inspect(Trace(load_scale(jobs, factor), "drawn", 500), 64)["load"] for factor in (1, 2))
    assert fast == pytest.approx(2 * slow, rel=1e-6)


def test_durations_that_were_cut_are_noticed() -> None:
    jobs = [_job(at, 7 * at, 100 + at) for at in range(50)] + [_job(50 + at, 400, 3600) for at in range(20)]
    assert _kinds(_trace(*jobs))["cut"] == 20
    assert "cut" not in _kinds(_trace(*jobs[:50]))
    usual = [_job(at, 7 * at, 300 if at % 2 else 100 + at) for at in range(60)] + [_job(60, 500, 9999)]
    assert _kinds(_trace(*usual))["same-duration"] == 30


def test_gaps_far_above_the_usual_are_noticed() -> None:
    steady = [_job(at, 60 * at, 10 + at) for at in range(200)]
    later = [replace(job, submit=job.submit + 3 * DAY) for job in steady[100:]]
    found = inspect(_trace(*steady[:100], *later))["oddities"]
    assert [each["jobs"] for each in found if each["kind"] == "jump"] == [100]
    assert any("3d 0h after 1h 39m" in each["line"] for each in found)
    assert "jump" not in _kinds(_trace(*steady))
    assert "jump" not in _kinds(Trace(philly_like(3000, seed=1, gpus=64), "drawn", 3000))


def test_other_oddities_are_counted() -> None:
    jobs = [_job(at, 0, 0.5 if at < 2 else 50 + at, 12 if at == 3 else 1) for at in range(12)]
    jobs += [_job(12, 100, 900, 1, estimate=HOUR), _job(13, 100, 900, 1, estimate=MINUTE)]
    found = _kinds(_trace(*jobs), gpus=10)
    assert found["moment"] == 2
    assert found["burst"] == 12
    assert found["copy"] == 2
    assert found["no-estimate"] == 12
    assert found["short-estimate"] == 1
    assert found["uneven"] == found["too-wide"] == 1
    assert found["outlasting"] == 2


def test_requests_by_hand() -> None:
    arrival = np.array([0, 1, 1, 4], dtype=np.int64) * SECOND
    tokens = np.array([10, 20, 30, 40], dtype=np.int64), np.array([1, 2, 0, 0], dtype=np.int64)
    blocks = ((1, 2), (1, 3), (1, 2, 3), (9,))
    trace = RequestTrace(arrival, *tokens, blocks, "mooncake", 5, (Dropped(3, "timestamp", "x", "is not a number"),))
    found = inspect_requests(trace)
    assert [found[key] for key in (*FIRST, "requests")] == ["mooncake", 5, 0, 1, 4.0, 0, 4]
    assert (found["input_tokens_mean"], found["output_tokens_max"]) == (25, 2)
    assert (found["requests_per_second_mean"], found["requests_per_second_peak"]) == (1, 2)
    assert (found["step_s"], found["submissions"]) == (1, [1, 2, 0, 1])
    assert (found["blocks"], found["blocks_seen_before"]) == (8, 4)
    assert [(each["kind"], each["jobs"]) for each in found["oddities"]] == [("no-output", 2)]
    assert json.dumps(found, allow_nan=False)


def test_every_format_is_described_in_one_line() -> None:
    known = formats()
    assert {reader.NAME for reader in READERS} <= {each["name"] for each in known}
    assert all(each["description"] and "\n" not in each["description"] for each in known)

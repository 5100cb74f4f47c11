"""An inspection as text: every part of it is there, charts fit, and no trace is too strange to be told."""

from hypothesis import given, settings, strategies as st

from headway.jobs.model.job import Job, workload
from headway.jobs.show.terminal.trace import CHART_COLUMNS, CHART_ROWS, chart, lines
from headway.jobs.traces import Dropped, Trace, philly_like
from headway.jobs.traces.inspect import inspect
from headway.units import HOUR, SECOND

WIDEST = CHART_COLUMNS + 14


def test_every_part_is_told() -> None:
    jobs = philly_like(2000, seed=1, gpus=128)
    dropped = tuple(Dropped(line, "gpus", "x", "is not a number") for line in range(5, 10))
    told = lines(inspect(Trace(jobs, "headway", 2005, dropped, ("3 blank lines skipped",)), 128), "jobs.csv")
    text = "\n".join(told)
    assert told[0] == "jobs.csv: headway"
    assert "2,005: 2,000 jobs, 5 dropped" in text
    assert "on 128 GPUs" in text
    for part in ("GPU-hours", "GPUs a job", "GPUs wanted", "durations", "tenants", "users", "outcomes", "estimates"):
        assert part in text
    assert "  - 3 blank lines skipped" in told
    assert told[-1] == "  - 5 × gpus is not a number (line 5: 'x', line 6: 'x', line 7: 'x', …)"
    assert all(len(line) <= WIDEST for line in told if "┤" in line or "│" in line or "└" in line)


def test_widths_between_powers_of_two_stand_together() -> None:
    widths = (0, 1, 2, 3, 5, 6, 8, 9, 100)
    jobs = workload(Job(at, at, HOUR, gpus, cpu_milli=1) for at, gpus in enumerate(widths))
    shared = Job(0, 0, HOUR, 1, gpu_milli=300)
    told = "\n".join(lines(inspect(Trace((*jobs, shared), "headway", 9)), "jobs.csv"))
    for label in ("none (CPU only)", "part of one", "1 ", "2 ", "3 ", "5 to 7 ", "8 ", "9 to 15 ", "65 to 127 "):
        assert f"  {label:>16}".rstrip() in told


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=CHART_COLUMNS))
def test_a_chart_is_as_wide_as_its_values_and_its_largest_reaches_the_top(values: list[float]) -> None:
    rows = list(chart(values))
    assert len(rows) == CHART_ROWS
    blocks = [row[12:] for row in rows]
    assert max(map(len, blocks)) <= len(values) + 1
    top = max(values)
    assert (rows[0].count("█") >= 1) == (top > 0)
    assert sum(1 for value in values if value > 0) == len([c for c in rows[-1][13:] if c not in " "])


@settings(max_examples=40)
@given(
    st.lists(
        st.builds(
            lambda submit, work, gpus, tenant, estimate: Job(
                0, submit * SECOND, work, gpus, tenant=tenant, estimate=estimate, cpu_milli=1
            ),
            st.integers(0, 10**6),
            st.integers(1, 10**18),
            st.integers(0, 5000),
            st.text(max_size=50),
            st.integers(0, 10**15),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_any_trace_can_be_told(jobs: list[Job]) -> None:
    told = lines(inspect(Trace(workload(jobs), "headway", len(jobs)), 8), "jobs.csv")
    assert all("\n" not in line for line in told)
    assert not any("nan" in line or "inf" in line for line in told if not line.startswith("  tenants"))


def test_a_trace_without_jobs_can_be_told() -> None:
    told = lines(inspect(Trace((), "headway", 3)), "jobs.csv")
    assert told[1] == "  rows          3: 0 jobs, 0 dropped"

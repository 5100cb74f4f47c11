"""The table of a comparison: columns go before cells are cut, and nothing is less than nothing."""

from types import SimpleNamespace
from typing import Any

import pytest

from headway.jobs.show.page import sections
from headway.jobs.show.terminal import comparison as tables
from headway.show.terminal import PlainConsole, width_of

ORDER = ("jobs/s", "lost GPU-h", "tail", "makespan", "fragm.", "moves", "preempt.", "jobs", "p50", "GPU use")


def row(policy: str, mean: float) -> dict[str, Any]:
    times = dict.fromkeys(("jct_p50_s", "jct_p99_s", "wait_mean_s", "makespan_s", "tail_s"), 5000.0)
    shares = dict.fromkeys(("gpu_utilisation_while_arriving", "fragmentation_mean"), 0.5)
    counts = dict.fromkeys(("unfinished", "preemptions", "migrations", "lost_gpu_hours", "jobs_per_s"), 0)
    return {"policy": policy, "jobs": 20_000, "jct_mean_s": mean, **times, **shares, **counts}


@pytest.mark.parametrize("width", range(20, 160, 7))
def test_columns_are_left_out_in_order_and_no_cell_is_cut(width: int) -> None:
    rows = [row("fifo", 50_000.0), row("multifactor+easy", 40_000.0)]
    table, left_out = tables.fitting(rows, width)
    names = [str(column.header) for column in table.columns]
    whole = [str(column.header) for column in tables.comparison(rows).columns]
    assert names == [name for name in whole if name not in ORDER[:left_out]]
    assert width_of(table) <= width or left_out == len(ORDER)
    if left_out:
        one_more = tables.comparison(rows, leave_out=ORDER[: left_out - 1])
        assert width_of(one_more) > width
    console = PlainConsole(width=width_of(table), height=25)
    with console.capture() as printed:
        console.print(table)
    assert "…" not in printed.get()
    assert "multifactor+easy" in printed.get()
    assert len(printed.get().splitlines()) == 3


def test_a_change_that_rounds_to_nothing_has_no_sign() -> None:
    rows = [row("a", 100_000.0), row("b", 99_999.0), row("c", 100_001.0), row("d", 90_000.0)]
    cells = list(next(c for c in tables.comparison(rows).columns if c.header == "vs first").cells)
    assert cells == ["", "0.0 %", "0.0 %", "-10.0 %"]


def test_use_is_that_of_the_time_in_which_jobs_arrive_and_the_tail_stands_apart() -> None:
    rows = [{**row("fifo", 50_000.0), "gpu_utilisation": 0.131, "gpu_utilisation_while_arriving": 0.86, "tail_s": 60.0}]
    table = tables.comparison(rows)
    cells = {str(column.header): str(next(iter(column.cells))) for column in table.columns}
    assert (cells["GPU use"], cells["tail"]) == ("86.0 %", "1m 00s")
    assert tables.legend(rows, table) == (
        "GPU use: while jobs arrive, from the first submission to the last; tail: from there to the last completion"
    )
    assert tables.legend(rows, tables.comparison(rows, leave_out=["GPU use"])) == ""
    at_once = [{**rows[0], "tail_s": rows[0]["makespan_s"]}]
    assert tables.legend(at_once, table) == "GPU use: over the makespan, all jobs arriving at once"


def test_results_of_an_earlier_version_show_no_use_rather_than_another_one() -> None:
    earlier = {key: value for key, value in row("fifo", 50_000.0).items() if "arriving" not in key and key != "tail_s"}
    table = tables.comparison([{**earlier, "gpu_utilisation": 0.131}])
    cells = {str(column.header): str(next(iter(column.cells))) for column in table.columns}
    assert (cells["GPU use"], cells["tail"]) == ("–", "–")


def behind(limit: str, job_hours: float) -> dict[str, Any]:
    return {"limit": limit, "job_hours": job_hours, "share": job_hours / 100}


def test_throttles_of_arrays_are_one_limit_and_the_longest_waits_come_first() -> None:
    rows = [
        {**row("fifo", 1.0), "limits": [behind("JobArrayTaskLimit@array:17", 3.0), behind("MaxGPUs@qos:long", 4.0)]},
        {**row("srtf", 1.0), "limits": [behind(f"JobArrayTaskLimit@array:{each}", 5.0) for each in (17, 18)]},
    ]
    (table,) = tables.grouped(rows, "limit")
    names, *runs = ([str(cell).split()[0] for cell in column.cells] for column in table.columns)
    assert names == ["JobArrayTaskLimit,", "MaxGPUs@qos:long"]
    assert runs == [["3.00", "4.00"], ["10.00", "0.00"]]
    compared: Any = SimpleNamespace(runs=[SimpleNamespace(label=each["policy"], result=each) for each in rows])
    shown = sections.by_limit(compared)
    assert "array:" not in shown
    assert "10.0\N{NO-BREAK SPACE}% of all waiting" in shown


def test_costs_by_type_of_gpu_end_with_their_sum() -> None:
    kinds = [{"gpu_type": kind, "gpu_hours": 2.0, "cost": 3.0, "energy_kwh": None} for kind in ("a100", "h100")]
    priced = {**row("fifo", 1.0), "costs": kinds, "cost": 6.0}
    assert [list(column.cells)[-1] for column in tables.costs([priced]).columns][1:] == ["all", "4.0", "6.00", "–"]
    compared: Any = SimpleNamespace(runs=[SimpleNamespace(label="fifo", result=priced)])
    assert "<td>all</td><td>4.0</td><td>6.00</td>" in sections.costs(compared)
    one: Any = SimpleNamespace(runs=[SimpleNamespace(label="fifo", result={"costs": kinds[:1]})])
    assert "<td>all</td>" not in sections.costs(one)


@pytest.mark.parametrize(
    ("received", "rho", "told"),
    [
        (
            (0.5, 0.52),
            (0.004, 0.003),
            "GPU time that tenants received (over their weight), 1 being equal for all: a 0.500",
        ),
        ((0.5, 0.501), (0.3, 0.8), "ρ of jobs, 1 being equal for all: a 0.300, b 0.800."),
        ((0.5, 0.501), (0.004, 0.003), ""),
        ((0.5,), (0.004,), "(over their weight), 1 being equal for all: 0.500."),
    ],
)
def test_jains_index_is_shown_where_it_tells_runs_apart(
    received: tuple[float, ...], rho: tuple[float, ...], told: str
) -> None:
    summaries = [SimpleNamespace(jain_tenants=each, jain_jobs=other) for each, other in zip(received, rho, strict=True)]
    runs = [SimpleNamespace(label=label, summary=summary) for label, summary in zip("ab", summaries, strict=False)]
    compared: Any = SimpleNamespace(runs=runs)
    shown = sections.jain_note(compared, True)
    assert told in shown
    assert bool(shown) == bool(told)

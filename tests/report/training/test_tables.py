"""The table of a comparison: columns go before cells are cut, and nothing is less than nothing."""

from typing import Any

import pytest

from headway.report.terminal import PlainConsole, width_of
from headway.report.training import tables

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

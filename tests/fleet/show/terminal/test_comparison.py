"""The table of fleets' runs for a terminal: columns go before cells are cut, and those that say nothing go first."""

from typing import Any

import pytest
from rich.table import Table

from headway.fleet.show.terminal import brief, comparison as tables
from headway.show.terminal import PlainConsole, width_of


def row(policy: str, **more: Any) -> dict[str, Any]:
    """A run as results have it."""
    shares = dict.fromkeys(("cache_hit_rate", "gpu_utilisation"), 0.5)
    times = {
        "slowdown_mean": 1.5,
        "slowdown_p50": 1.0,
        "slowdown_p95": 3.0,
        "latency_p50_s": 0.5,
        "latency_p99_s": 12.0,
    }
    counts = {
        "requests": 1000,
        "dropped": 0,
        "unfinished": 0,
        "lost_tasks": 0,
        "cold_starts": 0,
        "bytes_fetched": 10**10,
    }
    rest = {"slo_hit_rate": None, "cost_per_request_usd": 0.00025, "workers_used": 5, "batch_mean": 1.0}
    graph = {"graph": "a [b]c", "requests": 10, "slowdown_mean": 1.0, "latency_p99_s": 1.0, "slo_hit_rate": None}
    return {"policy": policy, **shares, **times, **counts, **rest, "tasks_per_s": 4000.0, "graphs": [graph], **more}


def heads(table: Table) -> list[str]:
    return [str(column.header) for column in table.columns]


def printed(table: Table) -> str:
    console = PlainConsole(width=width_of(table), height=25)
    with console.capture() as text:
        console.print(table)
    return text.get()


@pytest.mark.parametrize("width", range(20, 190, 17))
def test_columns_are_left_out_until_the_table_fits_and_no_cell_is_cut(width: int) -> None:
    rows = [row("hash"), row("compass(adjust=off)", slo_hit_rate=0.9)]
    table, left_out = tables.fitting(rows, width)
    whole = heads(tables.comparison(rows))
    assert len(heads(table)) == len(whole) - left_out
    assert [name for name in whole if name in heads(table)] == heads(table)
    kept = {"policy", "slow-down", "p99", "in time", "dropped", "$/1000"}
    assert width_of(table) <= width or kept >= set(heads(table))
    if left_out:
        assert width_of(tables.fitting(rows, 10_000)[0]) > width
    text = printed(table)
    assert "…" not in text
    assert "compass(adjust=off)" in text
    assert len(text.splitlines()) == 3


def test_what_nobody_has_or_everybody_has_nothing_of_is_no_column() -> None:
    plain = heads(tables.comparison([row("a"), row("b")]))
    assert not {"in time", "dropped", "unfinished", "lost tasks", "cold starts", "batch", "vs first"} & set(plain)
    more = row("b", dropped=3, batch_mean=2.0, lost_tasks=1, slo_hit_rate=0.5, unfinished=2, cold_starts=9)
    shown = heads(tables.comparison([row("a"), more]))
    assert {"in time", "dropped", "unfinished", "lost tasks", "cold starts", "batch"} <= set(shown)


def test_drops_of_all_requests_stand_beside_what_is_in_time_though_there_are_none() -> None:
    rows = [row("a", slo_hit_rate=1.0, measured=900, dropped=128), row("b", slo_hit_rate=1.0, measured=900)]
    table = tables.comparison(rows)
    cells = {str(column.header): [str(cell) for cell in column.cells] for column in table.columns}
    assert cells["dropped"] == ["128 of 1,000", "0 of 1,000"]
    assert cells["measured"] == ["900", "900"]
    narrow, left_out = tables.fitting(rows, 60)
    assert left_out
    assert "dropped" in heads(narrow)
    graph = {"graph": "g", "requests": 20, "measured": 18, "dropped": 2, "slo_hit_rate": 1.0}
    text = printed(tables.parts("graph", [graph]))
    assert "2 of 20" in text
    assert "measured" in text


def test_changes_name_their_baseline_and_what_rounds_to_nothing_has_no_sign() -> None:
    changes = [None, -0.00004, 0.5]
    rows = [
        row(name, slowdown_change=change, cost_change=change, baseline="a")
        for name, change in zip("abc", changes, strict=True)
    ]
    table = tables.comparison(rows)
    cells = [str(cell) for cell in next(c for c in table.columns if str(c.header) == "vs first").cells]
    assert cells == ["", "0.0 %", "+50.0 %"]
    for each in rows:
        each["baseline"] = "b"
    assert {"vs b", "$ vs b"} <= set(heads(tables.comparison(rows)))


def test_the_best_are_set_off_and_a_run_without_answers_is_no_problem() -> None:
    nothing = dict.fromkeys(("slowdown_mean", "slowdown_p50", "latency_p99_s", "cost_per_request_usd"))
    rows = [
        row("a", slo_hit_rate=0.5),
        row("b", **nothing, slo_hit_rate=0.9),
        row("c", slowdown_mean=1.2, slo_hit_rate=0.1),
    ]
    table = tables.comparison(rows)
    styles = {str(c.header): [cell.style for cell in c.cells if not isinstance(cell, str)] for c in table.columns}
    assert styles["slow-down"] == ["", "", "bold green"]
    assert styles["in time"] == ["", "bold green", ""]
    assert "b" in printed(tables.comparison([rows[1]]))


def test_names_are_text_whatever_is_in_them() -> None:
    text = printed(tables.comparison([row("x", variant="[bold]a[/x]\nb" + "c" * 100), row("y", variant="y")]))
    assert "[bold]a[/x] b" in text
    assert len(text.splitlines()) == 3
    graphs = printed(tables.parts("graph", row("x")["graphs"]))
    assert "a [b]c" in graphs
    assert "in time" not in graphs


def test_large_and_small_numbers_stay_short() -> None:
    written = tables.FORMATS
    assert written["slowdown_mean"](12345.6) == "12,346×"
    assert written["latency_p50_s"](0.0123) == "12 ms"
    assert written["latency_p50_s"](4321.0) == "4,321.0 s"
    assert written["cost_per_request_usd"](0.00025) == "$0.2500"
    assert written["cost_per_request_usd"](0.5) == "$500.00"
    assert {written[key](None) for key in written} == {""}


@pytest.mark.parametrize(("level", "head"), [(0.9, "90 %"), (0.999, "99.9 %"), (None, "95 %")])
def test_the_interval_has_its_confidence_level_as_its_heading(level: float | None, head: str) -> None:
    ranged = row("a", slowdown_mean_low=1.0, slowdown_mean_high=2.0, confidence=level)
    assert head in [str(column.header) for column in tables.comparison([ranged]).columns]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.0, "0 ms"), (0.00005, "50 µs"), (0.0034, "3.4 ms"), (0.0304, "30 ms"), (2.2, "2,200 ms"), (12.0, "12.0 s")],
)
def test_short_times_have_a_unit_in_which_they_are_not_0(seconds: float, shown: str) -> None:
    assert tables.seconds_told(seconds) == shown
    assert shown in printed(tables.comparison([row("a", latency_p50_s=seconds)]))


@pytest.mark.parametrize(
    ("each", "shown"),
    [(0.0, "$0.0000"), (9.8e-9, "$0.0000098"), (6e-6, "$0.0060"), (0.5, "$500.00")],
)
def test_small_costs_have_two_digits(each: float, shown: str) -> None:
    assert shown in printed(tables.comparison([row("a", cost_per_request_usd=each)]))


def test_a_run_in_fifteen_lines_has_the_names_of_the_tables() -> None:
    graphs = [{"graph": name, "requests": count, "slowdown_mean": 1.5} for name, count in (("few", 1), ("many", 9))]
    told = brief.lines(row("headway", measured=900, completed=1000, slo_hit_rate=0.987, graphs=graphs))
    assert len(told) <= brief.MOST_LINES
    assert told[:5] == [
        "run: headway",
        "1,000 requests: 900 measured, 1,000 completed",
        "slow-down: mean 1.50×, p50 1.00×, p95 3.00×",
        "latency: p50 500 ms, p99 12.0 s",
        "in time: 98.7 %",
    ]
    assert told[-1] == "mean slow-down by graph: many 1.50×, few 1.50×"
    assert not [line for line in told if "_" in line]

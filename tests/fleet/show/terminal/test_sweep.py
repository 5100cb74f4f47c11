"""The table of a sweep of fleets with deadlines: hits and cost with intervals, and who is best."""

from typing import Any

from headway.fleet.show.terminal.sweep import pivot, remarks
from headway.show.terminal import PlainConsole, width_of


def row(start: str, policy: str, hits: float | None, usd: float, **more: Any) -> dict[str, Any]:
    values = {"serving.start": start, "policy.name": policy}
    return {"values": values, "slo_hit_rate": hits, "cost_per_request_usd": usd, "dropped": 3.0, **more}


ROWS = [
    row("warm", "esg", 0.99, 6e-5),
    row("warm", "headway", 0.999, 5e-5),
    row("cold", "esg", 0.5, 6e-5),
    row("cold", "headway", 0.4, 5e-5),
]


def lines(rows: list[dict[str, Any]]) -> list[str]:
    table = pivot(rows, "policy.name")
    assert table is not None
    console = PlainConsole(width=width_of(table), height=25)
    with console.capture() as text:
        console.print(table)
    return text.get().splitlines()


def test_each_combination_has_its_best() -> None:
    head, *rest = lines(ROWS)
    assert head.split() == ["start", "policy", "in", "time", "$/1000", "dropped", "best"]
    assert [line.split() for line in rest] == [
        ["warm", "esg", "99.00", "%", "0.0600", "3"],
        ["warm", "headway", "99.90", "%", "0.0500", "3", "best"],
        ["cold", "esg", "50.00", "%", "0.0600", "3", "best"],
        ["cold", "headway", "40.00", "%", "0.0500", "3"],
    ]


def test_intervals_are_told_and_a_share_stays_a_share() -> None:
    ranges = {"slo_hit_rate_low": 0.98, "slo_hit_rate_high": 1.02, "confidence": 0.95}
    sure = row("cold", "esg", 0.99, 6e-5, cost_per_request_usd_low=5e-5, cost_per_request_usd_high=7e-5, **ranges)
    head, line, *_ = lines([sure, *ROWS])
    assert "in time [95 % interval]" in head
    assert "99.00 % [98.00, 100.00]" in line
    assert "0.0600 [0.0500, 0.0700]" in line


def test_a_remark_counts_who_is_best() -> None:
    (line,) = remarks(ROWS)
    assert line.startswith("best of 2 combinations: headway in 1, esg in 1; most in time (within 0.2 points)")


def test_without_deadlines_or_other_keys_the_usual_list_is_shown() -> None:
    late = [row("warm", "esg", None, 6e-5)]
    assert pivot(late, "policy.name") is None
    assert remarks(late) == []
    alone = [{**each, "values": {"policy.name": each["values"]["policy.name"]}} for each in ROWS[:2]]
    assert pivot(alone, "policy.name") is None
    assert pivot(ROWS, "") is None
    assert remarks([]) == []

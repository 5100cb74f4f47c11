"""Make the terminal tables of a fleet's what-if: the run before and after, by graph, who gains and who loses."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from headway.fleet.show.terminal.comparison import FORMATS
from headway.show.formatting import NOTHING, clipped, dollars, duration, percent, signed
from headway.show.terminal import framed

Row = Mapping[str, Any]
_LINES = (
    ("workers", "workers"),
    ("in time", "slo_hit_rate"),
    ("dropped", "dropped"),
    ("slow-down mean", "slowdown_mean"),
    ("slow-down p95", "slowdown_p95"),
    ("latency mean", "latency_mean_s"),
    ("latency p99", "latency_p99_s"),
    ("first token mean", "ttft_mean_s"),
    ("first token p99", "ttft_p99_s"),
    ("first token in time", "ttft_hit_rate"),
    ("per token mean", "tpot_mean_s"),
    ("per token p99", "tpot_p99_s"),
    ("per token in time", "tpot_hit_rate"),
    ("tokens/s", "output_tokens_per_s"),
    ("prompt tokens cached", "prompt_tokens_cached"),
    ("cache hits", "cache_hit_rate"),
    ("process starts", "cold_starts"),
    ("GPU use", "gpu_utilisation"),
    ("$/1000 requests", "cost_per_request_usd"),
    ("workers rented, mean", "workers_mean"),
    ("rent, $", "cost_rent_usd"),
)
_ALWAYS = (
    *("slowdown_mean", "latency_mean_s", "latency_p99_s", "ttft_mean_s", "ttft_p99_s", "tpot_mean_s"),
    *("output_tokens_per_s", "cost_per_request_usd", "cost_rent_usd"),
)
"""What has a line even when it stays as it was, where the runs have it."""
_SHARES = (
    *("slo_hit_rate", "ttft_hit_rate", "tpot_hit_rate", "prompt_tokens_cached", "cache_hit_rate", "gpu_utilisation"),
)


def tables(difference: Row) -> list[Table]:
    """Return the whole, graphs where there are several, requests that gain and requests that lose."""
    made = [_whole(difference)]
    if len(difference["graphs"]) > 1:
        made.append(_graphs(difference["graphs"]))
    for key, title in (("gain", "requests that gain most"), ("lose", "requests that lose most")):
        if difference[key]:
            made.append(_requests(difference[key], title))
    return made


def _whole(difference: Row) -> Table:
    table = framed([""], ["before", "after", "change"])
    before, after = difference["before"], difference["after"]
    for name, key in _LINES:
        if key == "workers_mean" and all(side["workers"] == side[key] for side in (before, after)):
            continue  # all were rented all the time
        if key in before and (key in _ALWAYS or before[key] != after[key]):
            table.add_row(name, _said(key, before[key]), _said(key, after[key]), _change(difference, key))
    return table


def _change(difference: Row, key: str) -> str:
    before, after = difference["before"][key], difference["after"][key]
    if key in _SHARES:  # a share of a share would be read as points
        return NOTHING if None in (before, after) else f"{signed(after - before)} points"
    share = difference["change"][key]
    return NOTHING if share is None else f"{signed(share)} %"


def _said(key: str, value: float | None) -> str:
    if value is None:
        return NOTHING
    if key in _SHARES:
        return percent(value)
    if key in ("output_tokens_per_s", "workers_mean"):
        return f"{value:,.4g}"
    if key.endswith("_s"):
        return FORMATS[key](value) if key.startswith("tpot") else duration(value)
    if key == "cost_per_request_usd":
        return dollars(1000 * value, 4)
    return f"{value:,.2f}×" if key.startswith("slowdown") else f"{value:,.4g}"


def _graphs(rows: Sequence[Row]) -> Table:
    keys = ("slo_hit_rate", "slowdown_mean", "latency_p99_s")
    shown = [key for key in keys if any(row[f"{key}_before"] is not None for row in rows)]
    heads = {"slo_hit_rate": "in time", "slowdown_mean": "slow-down", "latency_p99_s": "latency p99"}
    table = framed(["graph"], ["requests", *(text for key in shown for text in (heads[key], "after"))])
    for row in rows:
        cells = [_said(key, row[f"{key}_{side}"]) for key in shown for side in ("before", "after")]
        table.add_row(clipped(row["graph"]), f"{row['requests']:,}", *cells)
    return table


def _requests(rows: Sequence[Row], title: str) -> Table:
    table = framed(["request", "graph"], ["latency", "after"], title)
    for row in rows[:5]:
        latencies = (duration(row["latency_before_s"]), duration(row["latency_after_s"]))
        table.add_row(str(row["request"]), clipped(row["graph"]), *latencies)
    return table

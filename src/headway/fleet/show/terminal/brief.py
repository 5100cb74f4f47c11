"""Write a run of a fleet in at most fifteen lines, to paste into a mail: numbers under the names that tables have."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headway.fleet.show.terminal.comparison import FORMATS, with_texts
from headway.show.formatting import clipped
from headway.units import counted

Row = Mapping[str, Any]
MOST_LINES = 15
_MOST_NAMED = 4
_Part = tuple[str, str]
"""What a number is called on its line, and its key."""
_LINES: tuple[tuple[str, tuple[_Part, ...]], ...] = (
    ("slow-down", (("mean", "slowdown_mean"), ("p50", "slowdown_p50"), ("p95", "slowdown_p95"))),
    ("latency", (("p50", "latency_p50_s"), ("p99", "latency_p99_s"))),
    ("in time", (("", "slo_hit_rate"),)),
    ("first token", (("mean", "ttft_mean_s"), ("p99", "ttft_p99_s"), ("in time", "ttft_hit_rate"))),
    ("per token", (("mean", "tpot_mean_s"), ("p99", "tpot_p99_s"), ("in time", "tpot_hit_rate"))),
    ("cost of 1,000 requests", (("", "cost_per_request_usd"), ("rent of all workers", "cost_rent_usd"))),
    ("models", (("cache hits", "cache_hit_rate"), ("fetched", "bytes_fetched"), ("cold starts", "cold_starts"))),
    ("workers", (("used", "workers_used"), ("mean rented", "workers_mean"), ("GPU use", "gpu_utilisation"))),
)
_GROUPS = {"graphs": "graph", "classes": "class", "tenants": "tenant"}


def lines(row: Row) -> list[str]:
    """Return at most fifteen lines."""
    if not row:
        return ["no results: the run was killed before its end; headway report shows what is there"]
    return list(_lines(with_texts(row)))[:MOST_LINES]


def _lines(row: Row) -> Iterator[str]:
    yield f"run: {row.get('variant') or clipped(str(row['policy']), 90)}"
    counts = [f"{row[key]:,.0f} {key}" for key in ("measured", "completed", "dropped", "unfinished") if row.get(key)]
    yield f"{counted(round(row['requests']), 'request')}: {', '.join(counts)}"
    for name, parts in _LINES:
        told = [f"{called} {text}".lstrip() for called, key in parts if (text := _text(row, key))]
        if told:
            yield f"{name}: {', '.join(told)}"
    for key, group in _GROUPS.items():
        if len(row.get(key) or ()) > 1:
            yield _by_group(group, row[key])


def _text(row: Row, key: str) -> str:
    """Return a number as tables write it; empty where there is none."""
    return FORMATS[key](row[key]) if row.get(key) is not None else ""


def _by_group(group: str, members: Sequence[Row]) -> str:
    """Return the mean slow-downs of those with most requests."""
    most = sorted(members, key=lambda each: -each["requests"])[:_MOST_NAMED]
    told = [f"{clipped(str(each[group]), 30)} {_text(each, 'slowdown_mean') or '–'}" for each in most]
    more = f", and {len(members) - len(most)} more" if len(members) > len(most) else ""
    return f"mean slow-down by {group}: {', '.join(told)}{more}"

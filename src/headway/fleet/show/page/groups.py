"""Make the part of a page about classes and tenants: a table of each, a line a group and run."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from headway.fleet.show.terminal.comparison import FORMATS, MOST_TENANTS, with_texts
from headway.show import sections
from headway.show.formatting import plain

_COLUMNS = (
    ("requests", "requests"),
    ("in time, of measured", "slo_hit_rate"),
    ("dropped, of all", "dropped_of_all"),
    ("latency, p50", "latency_p50_s"),
    ("p99", "latency_p99_s"),
    ("slow-down, mean", "slowdown_mean"),
    ("$ for 1,000", "cost_per_request_usd"),
)


def tables(names: Sequence[str], runs: Sequence[Mapping[str, Any]]) -> str:
    """Return the tables of all runs as HTML; empty where none has classes or several tenants. ``names`` are HTML."""
    return "".join(_table(names, runs, key, kind) for key, kind in (("class", "classes"), ("tenant", "tenants")))


def _table(names: Sequence[str], runs: Sequence[Mapping[str, Any]], key: str, kind: str) -> str:
    groups = [{str(group[key]): with_texts(group) for group in run.get(kind, ())} for run in runs]
    asked: dict[str, float] = {}
    for run in groups:
        for name, group in run.items():
            asked[name] = max(asked.get(name, 0), group["requests"])
    if key == "tenant":
        asked = dict(sorted(asked.items(), key=lambda each: -each[1])[:MOST_TENANTS])
    if not asked:
        return ""
    found = [(name, at, run[name]) for name in asked for at, run in enumerate(groups) if name in run]
    shown = [column for column in _COLUMNS if any(group.get(column[1]) is not None for _, _, group in found)]
    several = ["run"] if len(runs) > 1 else []
    lines = [
        sections.row(plain(name), [*([names[at]] if several else []), *(_cell(group, number) for _, number in shown)])
        for name, at, group in found
    ]
    return sections.table([key, *several, *(head for head, _ in shown)], lines)


def _cell(group: Mapping[str, Any], key: str) -> str:
    return escape(FORMATS[key](group.get(key))) or "–"

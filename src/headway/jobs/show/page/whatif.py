"""Make the page of a what-if: who gains and who loses, in all and by group; and its table for other programs."""

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

import polars as pl

from headway.jobs.metrics.groups import GROUPS, TITLES
from headway.jobs.show.page.trust import verdict_of_row
from headway.show.figures import Figure, labels, layout_of, line_style
from headway.show.formatting import change, count, durations, percent, plain
from headway.show.page import Question, assembled
from headway.show.sections import figure, hero, key, row, table
from headway.show.time_unit import in_unit, time_unit

Row = Mapping[str, Any]
SIDES = ("before", "after")
_TITLES = {**TITLES, "tenant": "account"}
_LINES = (
    ("mean time to completion", "jct_mean_s"),
    ("median", "jct_p50_s"),
    ("99th percentile", "jct_p99_s"),
    ("mean wait", "wait_mean_s"),
    ("99th percentile of waits", "wait_p99_s"),
)
_COUNTS = (("GPUs", "gpus"), ("preemptions", "preemptions"), ("moves", "migrations"), ("evictions", "evictions"))
_MOST_SHOWN = 30
_OPTIONS = re.compile(r"\([^()]*\)")
_QUESTIONS: tuple[Question, ...] = (
    ("whole", "What changes in all?", "In all"),
    ("groups", "Who gains, and who loses?", "By group"),
    ("jobs", "Which jobs gain and lose most?", "Jobs"),
)


def build(result: Row, title: str = "") -> str:
    """Return the whole page, from what ``whatif --json`` prints."""
    figures = {f"wait-{key_}": _dots(result[key_], group) for group, key_ in _told(result)}
    judged = verdict_of_row(result, "On the run that was continued: ")
    told = hero(_answer(result), _lead(result), _facts(result), beside=judged)
    return assembled(
        title,
        "What if",
        told,
        _QUESTIONS,
        {"whole": _whole(result), "groups": _groups(result), "jobs": _jobs(result)},
        lines=[(name, line_style(index, 0, 2)) for index, name in enumerate(SIDES)],
        figures=figures,
    )


def _answer(result: Row) -> str:
    moved = result["change"]["wait_mean_s"]
    before, after = durations([result[side]["wait_mean_s"] for side in SIDES])
    if moved is None or not result["completed"]:
        return "No job completed both ways: there is nothing to compare."
    if not moved:
        return f"Nothing changes: jobs wait <b>{after}</b> on average, as before."
    return f"Jobs would wait <b>{after}</b> on average instead of {before}: {change(moved)}."


def _lead(result: Row) -> str:
    changes = "; ".join(result["changes"]) or "nothing changes"
    return (
        f"From {escape(result.get('at') or durations([result['at_s']])[0])} on: {escape(changes)}. "
        f"Of {count(result['jobs'], 'job')} that were not over by then or came later {result['better']:,} end sooner "
        f"after they arrive, {result['worse']:,} later."
    )


def _facts(result: Row) -> list[tuple[str, str]]:
    policies = list(dict.fromkeys((result["policy_before"], result["policy_after"])))
    return [
        ("Run", plain(str(result["run"]).rpartition("/")[2])),
        ("Policy", ", then ".join(plain(_OPTIONS.sub("(…)", each)) for each in policies)),
    ]


def _whole(result: Row) -> str:
    rows = []
    unit = time_unit(max(result[side]["jct_mean_s"] or 0.0 for side in SIDES))
    for name, each in _LINES:
        shown = [in_unit(result[side][each], *unit) for side in SIDES]
        rows.append(row(name, [*shown, change(result["change"][each]) + _interval(result, each)]))
    used = [percent(result[side]["gpu_utilisation"]) for side in SIDES]
    rows.append(row("GPU use from there on", [*used, change(result["change"]["gpu_utilisation"])]))
    for name, each in _COUNTS:
        values = [result[side][each] for side in SIDES]
        if any(values):
            rows.append(row(name, [*(f"{value:,}" for value in values), change(result["change"][each])]))
    return table(["", *SIDES, "change"], rows, "Before and after")


def _interval(result: Row, key_: str) -> str:
    """Return the interval of the change of the mean time to completion, the one that has one."""
    low, high = result["jct_change_low"], result["jct_change_high"]
    if key_ != "jct_mean_s" or low is None or high is None:
        return ""
    return f"<small>{percent(result['confidence'], 0)} interval: {change(low)} to {change(high)}</small>"


def _told(result: Row) -> Iterator[tuple[str, str]]:
    """Yield the groups that have several members, and their keys."""
    yield from ((group, key_) for group, key_ in GROUPS.items() if len(result.get(key_) or ()) > 1)


def _called(group: str) -> str:
    return _TITLES.get(group, group)


def _groups(result: Row) -> str:
    parts = [key([*SIDES], 0)]
    for group, key_ in _told(result):
        shown = _largest(result[key_])
        units = {time: _unit(shown, time) for time in ("wait", "jct")}
        rows = [_member(each, group, units) for each in shown]
        heads = [_called(group), "jobs", "wait before", "after", "change", "JCT before", "after", "change"]
        parts.append(f"<h3>By {_called(group)}</h3>")
        drawn = f"mean wait, {units['wait'][0]}"
        parts.append(figure(f"wait-{key_}", f"Mean wait by {_called(group)}, before and after", drawn))
        parts.append(table(heads, rows, f"Waits by {_called(group)}, before and after"))
    return "".join(parts) if len(parts) > 1 else ""


def _largest(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda each: -int(each["jobs"]))[:_MOST_SHOWN]


def _unit(rows: Sequence[Row], time: str) -> tuple[str, int]:
    """Return one unit for the times of all members, in the picture and in the table."""
    return time_unit(max((each[f"{time}_{side}_s"] or 0 for each in rows for side in SIDES), default=0))


def _member(each: Row, group: str, units: Mapping[str, tuple[str, int]]) -> str:
    cells = [f"{each['jobs']:,}"]
    for time, unit in units.items():
        cells += [*(in_unit(each[f"{time}_{side}_s"], *unit) for side in SIDES), change(each[f"{time}_change"])]
    return row(plain(str(each[group]) or "(any)", 40), cells)


def _dots(rows: Sequence[Row], group: str) -> Figure:
    """Draw the mean wait of each member, a dot before and one after."""
    shown = _largest(rows)
    unit, size = _unit(shown, "wait")
    names = labels([str(each[group]) or "(any)" for each in shown])
    data = []
    for index, side in enumerate(SIDES):
        waits = [each[f"wait_{side}_s"] for each in shown]
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": side,
                "meta": index,
                "x": [None if wait is None else round(wait / size, 4) for wait in waits],
                "y": names,
                "marker": {
                    "size": 11,
                    "color": line_style(index, 0, 2)["color"],
                    "symbol": "circle-open" if index == 0 else "circle",
                },
                "hovertemplate": f"%{{y}}: %{{x:.3g}} {unit}<extra>%{{fullData.name}}</extra>",
            }
        )
    axis = {"type": "category", "autorange": "reversed", "automargin": True, "ticksuffix": "  "}
    layout = layout_of(80 + 26 * len(names), xaxis={"rangemode": "tozero"}, yaxis=axis)
    layout["margin"] |= {"l": 10, "t": 12}
    return {"data": data, "layout": layout}


def _jobs(result: Row) -> str:
    parts = []
    for side, title in (("gain", "Jobs that gain most"), ("lose", "Jobs that lose most")):
        rows = []
        unit = time_unit(max((each[f"jct_{when}_s"] or 0.0 for each in result[side] for when in SIDES), default=0.0))
        for each in result[side]:
            times = [in_unit(each[f"jct_{when}_s"], *unit) for when in SIDES]
            after = "never runs" if each["never_runs"] else times[1]
            rows.append(
                row(plain(str(each["job"]), 40), [plain(each["tenant"], 30), f"{each['gpus']:g}", times[0], after])
            )
        if rows:
            heads = ["job", "account", "GPUs", "JCT before", "after"]
            parts.append(f"<h3>{title}</h3>{table(heads, rows, title)}")
    return "".join(parts)


def sheet(result: Row) -> pl.DataFrame:
    """Return all groups as one table: kind of group, name, jobs, waits and times to completion before and after."""
    rows = [
        {"group": group, "name": str(each[group]), **{name: each[name] for name in each if name != group}}
        for group, key_ in GROUPS.items()
        for each in result.get(key_) or ()
    ]
    whole = {f"{time}_{side}_s": result[side][f"{time}_mean_s"] for time in ("jct", "wait") for side in SIDES}
    whole |= {f"{time}_change": result["change"][f"{time}_mean_s"] for time in ("jct", "wait")}
    whole |= {key: result[key] for key in ("jct_change_low", "jct_change_high")}
    counts = {"jobs": result["jobs"], "completed": result["completed"], "left_out": result["left_out"]}
    return pl.DataFrame([{"group": "all", "name": "", **counts, **whole}, *rows], infer_schema_length=None)

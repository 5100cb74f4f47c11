"""Make the HTML sections of a report on training jobs. They refer to figures by name; the page draws these."""

from collections.abc import Mapping, Sequence
from html import escape
from shlex import quote
from typing import Any

import polars as pl

from headway.errors import printable
from headway.jobs.metrics.cost import with_sum
from headway.jobs.metrics.groups import GROUPS, TITLES, by_group
from headway.jobs.metrics.summary import Summary
from headway.jobs.metrics.waits.by_cause import WaitCauses
from headway.jobs.metrics.waits.by_limit import folded
from headway.jobs.model.job_names import TASK
from headway.jobs.show.formatting import size_labels
from headway.jobs.show.page import headline, trust
from headway.jobs.show.page.figures import MOST_BARS
from headway.jobs.show.page.measured import FAILED, Comparison, Measured
from headway.show.figures import Figure
from headway.show.formatting import NOTHING, change, count, duration, durations, hours, number, percent, plain
from headway.show.sections import figure, for_run, legend, row, table
from headway.show.time_unit import time_unit
from headway.units import format_duration, seconds

LONGEST_WAITS = 50
_LONGEST_NAME = 400
"""Characters after which a full name is cut."""
_APART = 0.01
"""Indexes of runs that are nearer tell nothing."""
MOST_TENANTS = 20
"""Rows of the tenants' table that are shown at first; the rest can be unfolded."""


def comparison(compared: Comparison) -> str:
    """Return all runs side by side; the best mean JCT and wait are marked."""
    several = len(compared.runs) > 1
    heads = ["run", "jobs", "JCT mean", *(["against baseline"] if several else []), "p50", "p99", "wait mean"]
    divided = any(run.allocation for run in compared.runs)
    heads += ["makespan", "GPU use", *(["CPUs", "memory"] if divided else [])]
    heads += ["fragm.", "preempt.", "moves", "lost GPU-h"]
    longest = max((run.numbers.jct_s.mean or 0.0 for run in compared.runs), default=0.0)
    waiting = max((run.numbers.wait_s.mean or 0.0 for run in compared.runs), default=0.0)
    rows = _past_rows(trust.past_of(compared), heads, longest, waiting)
    for index, run in enumerate(compared.runs):
        summary = run.numbers
        tail = "" if summary.tail_s is None else f"<small>tail {format_duration(seconds(summary.tail_s))}</small>"
        cells = [
            _jobs_cell(summary),
            _with_interval(summary.jct_s.mean, run.jct_interval, longest, _is_best(compared, index, "jct_s")),
            *([_change_cell(compared, index)] if several else []),
            _in_unit_of(summary.jct_s.p50, longest),
            _in_unit_of(summary.jct_s.p99, longest),
            _with_interval(summary.wait_s.mean, run.wait_interval, waiting, _is_best(compared, index, "wait_s")),
            format_duration(seconds(summary.makespan_s)) + tail,
            percent(summary.gpu_utilisation_while_arriving),
            *([percent(summary.cpu_utilisation_while_arriving)] if divided else []),
            *([percent(summary.memory_utilisation_while_arriving)] if divided else []),
            percent(summary.fragmentation_mean),
            number(summary.preemptions),
            number(summary.migrations),
            f"{summary.lost_gpu_hours:,.1f}",
        ]
        tag = " <small>baseline</small>" if several and index == compared.base else ""
        policy = f"<small>{plain(run.policy)}</small>" if run.policy not in (run.label, run.name) else ""
        rows.append(row(f"<span{headline.in_full(run)}>{plain(run.label, 80)}</span>{tag}{policy}", cells))
    full_names = [
        f"<li><b>{plain(run.label, 80)}</b> is {plain(run.name, _LONGEST_NAME)}</li>"
        for run in compared.runs
        if run.name
    ]
    in_full = f'<ul class="note whole">{"".join(full_names)}</ul>' if full_names else ""
    return table(heads, rows, "All runs side by side") + in_full + costs(compared)


def _past_rows(past: Mapping[str, Any] | None, heads: Sequence[str], longest: float, waiting: float) -> list[str]:
    """Return the row of what really happened, where the log tells it; what it does not tell is left empty."""
    if past is None:
        return []
    told = {
        "jobs": number(past["jobs"]),
        "JCT mean": _in_unit_of(past["jct_mean_s"], longest),
        "p50": _in_unit_of(past["jct_p50_s"], longest),
        "p99": _in_unit_of(past["jct_p99_s"], longest),
        "wait mean": _in_unit_of(past["wait_mean_s"], waiting),
        "GPU use": percent(past["gpu_utilisation_while_arriving"]),
    }
    return [row("recorded <small>past</small>", [told.get(head, "") for head in heads[1:]])]


def costs(compared: Comparison) -> str:
    """Return what the GPUs that were held cost, by type, where prices or watts are given."""
    if not any(run.result.get("costs") for run in compared.runs):
        return ""
    rows = []
    for run in compared.runs:
        for each in with_sum(run.result):
            cost, energy = each["cost"], each["energy_kwh"]
            cells = [plain(each["gpu_type"], 20), hours(each["gpu_hours"])]
            cells += [NOTHING if cost is None else f"{cost:,.2f}", NOTHING if energy is None else f"{energy:,.1f}"]
            rows.append(row(plain(run.label, 80), cells))
    return "<h3>What the GPUs that were held cost</h3>" + table(
        ["run", "GPU type", "GPU-hours", "cost", "energy, kWh"], rows, "Cost and energy by type of GPU"
    )


def by_groups(compared: Comparison) -> str:
    """Return mean waits by partition, QOS, user and GPU type, one column a run, the recorded past before them."""
    past = trust.past_of(compared)
    names = [plain(run.label, 30) for run in compared.runs]
    told = []
    for group, key in GROUPS.items():
        frames = [by_group(run.ledger, group, run.table) for run in compared.runs]
        members = [dict(zip(each[group].to_list(), each.iter_rows(named=True), strict=True)) for each in frames]
        listed = sorted({name for each in members for name in each}, key=lambda name: _by_hours(members, name))
        if group == "tenant" or len(listed) < 2:
            continue
        was = {str(each[group]): each["wait_mean_s"] for each in (past or {}).get(key, ())}
        title = TITLES.get(group, group)
        heads = [title, "jobs", "GPU-hours", *(["recorded"] if past else []), *names]
        waits = [
            [*([was.get(name or "(any)")] if past else []), *(_of(each, name, "wait_mean_s") for each in members)]
            for name in listed
        ]
        rows = [_member(name, members, cells) for name, cells in zip(listed, _in_one_unit(waits), strict=True)]
        shown = table(heads, rows[:MOST_TENANTS], f"Mean wait by {title}")
        if len(rows) > MOST_TENANTS:
            rest = table(heads, rows[MOST_TENANTS:], f"The others, mean wait by {title}")
            shown += f"<details><summary>{len(rows) - MOST_TENANTS:,} more</summary>{rest}</details>"
        told.append(f"<h3>Mean wait by {title}</h3>{shown}")
    return "".join(told)


def _by_hours(members: Sequence[Mapping[str, Any]], name: str) -> tuple[float, str]:
    return -max(each[name]["gpu_hours"] for each in members if name in each), name


def _of(members: Mapping[str, Any], name: str, column: str) -> float | None:
    return members[name][column] if name in members else None


def _in_one_unit(rows: Sequence[Sequence[float | None]]) -> list[list[str]]:
    """Return the times of a table in the unit of its longest, so that rows compare at a glance too."""
    cells = iter(durations([each for times in rows for each in times]))
    return [[next(cells) for _ in times] for times in rows]


def _member(name: str, members: Sequence[Mapping[str, Any]], times: Sequence[str]) -> str:
    here = [each[name] for each in members if name in each]
    held = max(each["gpu_hours"] for each in here)
    return row(plain(name or "(any)", 40), [f"{max(each['jobs'] for each in here):,}", hours(held), *times])


def _jobs_cell(summary: Summary) -> str:
    """Return how many jobs: those that are measured, and those that have ended, where that is not all."""
    text = number(summary.measured_jobs)
    if summary.unfinished:
        text = f"{number(summary.measured_jobs - summary.unfinished)} <small>of {text}</small>"
    return text if summary.measured_jobs == summary.jobs else f"{text} <small>of {number(summary.jobs)}</small>"


def _is_best(compared: Comparison, index: int, field: str) -> bool:
    means = [getattr(run.numbers, field).mean for run in compared.runs]
    known = [mean for mean in means if mean is not None]
    return len(compared.runs) > 1 and means[index] is not None and means[index] == min(known)


def _in_unit_of(value: float | None, longest: float) -> str:
    """Return a time in the unit of the longest, so that a column compares at a glance."""
    if value is None:
        return NOTHING
    unit, size = time_unit(longest)
    return f"{value / size:,.2f}&nbsp;{unit}"


def _with_interval(value: float | None, interval: tuple[float, float] | None, longest: float, best: bool) -> str:
    text = _in_unit_of(value, longest)
    if best:
        text = f'<b class="best" title="the best of these runs">{text}</b>'
    if value is None or interval is None:
        return text
    _, size = time_unit(longest)
    return f"{text}<small>{max(0.0, interval[0]) / size:,.2f}–{interval[1] / size:,.2f}</small>"


def _change_cell(compared: Comparison, index: int) -> str:
    difference = compared.changes[index]
    if difference.value is None:
        return NOTHING
    interval = f"<small>{headline.signed(difference.interval)}</small>" if difference.interval else ""
    return f'<span title="{headline.verdict(difference)}">{change(difference.value)}</span>{interval}'


def waited(
    compared: Comparison, causes: Sequence[WaitCauses | None], problems: Sequence[str], drawn: Mapping[str, Figure]
) -> str:
    """Return waiting time by cause, tenant and size."""
    parts = [legend(drawn["causes-runs"])]
    if len(compared.runs) > 1 and any(of_run and of_run.rows for of_run in causes):
        parts.append(figure("causes-runs", "Job-hours waited in each run, by cause"))
    for index, of_run in enumerate(causes):
        if of_run is None:
            parts.append(for_run(index, f'<p class="note">{escape(problems[index])}</p>'))
        elif not of_run.rows:
            parts.append(for_run(index, '<p class="note">No job waited.</p>'))
        else:
            name = plain(compared.runs[index].label)
            tenant = figure(f"causes-tenant-{index}", "Job-hours waited, by tenant and cause", f"by tenant, {name}")
            size = figure(f"causes-size-{index}", "Job-hours waited, by size and cause", f"by size of job, {name}")
            note = f'<p class="note">{escape(of_run.note[0].upper() + of_run.note[1:])}.</p>'
            parts.append(for_run(index, f'<div class="pair">{tenant}{size}</div>{note}'))
    return "".join([*parts, by_limit(compared)])


def by_limit(compared: Comparison) -> str:
    """Return job-hours waited behind each limit, one column a run; nothing where no limit held a job back.

    Throttles of arrays are one row.
    """
    waits = [folded(run.result.get("limits") or ()) for run in compared.runs]
    most = {name: max(each[name]["job_hours"] for each in waits if name in each) for each in waits for name in each}
    if not most:
        return ""
    rows = [
        row(plain(name, 80), [_behind(each.get(name)) for each in waits])
        for name in sorted(most, key=lambda name: (-most[name], name))
    ]
    heads = ["limit", *(plain(run.label, 30) for run in compared.runs)]
    shown = table(heads, rows[:MOST_TENANTS], "Job-hours waited behind each limit")
    if len(rows) > MOST_TENANTS:
        rest = table(heads, rows[MOST_TENANTS:], "Job-hours waited behind the other limits")
        shown += f"<details><summary>{count(len(rows) - MOST_TENANTS, 'more limit')}</summary>{rest}</details>"
    return f"<h3>Job-hours waited behind limits</h3>{shown}"


def _behind(limit: Mapping[str, Any] | None) -> str:
    if limit is None:
        return NOTHING
    return f"{hours(limit['job_hours'])} <small>{percent(limit['share'])} of all waiting</small>"


def tenants(run: Measured) -> str:
    """Return who got what, one row a tenant."""
    heads = ["tenant", "jobs", "GPU-hours", "share", "JCT mean", "wait mean", "wait p99", "ρ mean", "lost GPU-h"]
    ordered = run.tenants.sort("gpu_hours", "tenant", descending=[True, False])
    times = [durations(ordered[column].to_list()) for column in ("jct_mean_s", "wait_mean_s", "wait_p99_s")]
    rows = [_tenant(record, cells) for record, *cells in zip(ordered.iter_rows(named=True), *times, strict=True)]
    shown = f"<h3>Tenants under {plain(run.label)}</h3>"
    shown += table(heads, rows[:MOST_TENANTS], f"Tenants under {run.label}")
    if len(rows) > MOST_TENANTS:
        rest = table(heads, rows[MOST_TENANTS:], f"The other tenants under {run.label}")
        shown += f"<details><summary>{count(len(rows) - MOST_TENANTS, 'more tenant')}</summary>{rest}</details>"
    return shown


def _tenant(record: Mapping[str, Any], times: Sequence[str]) -> str:
    rho = record["ftf_mean"]
    cells = [
        f"{record['jobs']:,}",
        hours(record["gpu_hours"]),
        percent(record["share"]),
        *times,
        NOTHING if rho is None else f"{rho:.2f}",
        hours(record["lost_gpu_hours"]),
    ]
    return row(plain(str(record["tenant"]), 40), cells)


def fairness(compared: Comparison) -> str:
    """Return shares of GPU time and finish-time fairness, by tenant; by size where there is one tenant only."""
    several = len(groups(compared, "tenant")) > 1
    what = "tenant" if several else "size of job"
    rho = figure("rho", f"Mean finish-time fairness by {what}", f"ρ by {what}")
    wait = figure("group-wait", f"Mean wait by {what}", f"mean wait by {what}")
    index = (
        '<p class="note">ρ is the time a job took over the time it would have taken on an equal part of the cluster: '
        f"above 1, worse off.{jain_note(compared, several)}</p>"
    )
    tables = "".join(for_run(i, tenants(run)) for i, run in enumerate(compared.runs)) if several else ""
    return f'<div class="pair">{rho}{wait}</div>{index}{by_groups(compared)}{tables}'


def jain_note(compared: Comparison, several: bool) -> str:
    """Return Jain's index of each run, where it tells runs apart: over what tenants received, else over the ρ of jobs.

    What tenants receive is the same under any policy that completes all jobs; few jobs with a very large ρ make the
    other one nearly 0 in all runs. One run has its index by itself.
    """
    received = [run.summary.jain_tenants for run in compared.runs] if several else []
    indexes = {
        "GPU time that tenants received (over their weight)": received,
        "ρ of jobs": [run.summary.jain_jobs for run in compared.runs],
    }
    for over, found in indexes.items():
        known = [each for each in found if each is not None]
        if known and (len(found) == 1 or max(known) - min(known) >= _APART):
            names = [f"{plain(run.label)} " if len(found) > 1 else "" for run in compared.runs]
            shown = [NOTHING if each is None else f"{each:.3f}" for each in found]
            by_run = ", ".join(name + index for name, index in zip(names, shown, strict=True))
            return f" Jain’s index over the {over}, 1 being equal for all: {by_run}."
    return ""


def groups(compared: Comparison, column: str) -> list[str]:
    """Return tenants, those with most GPU time first and as many as a figure has room for; or all sizes of jobs."""
    hours_of: dict[str, float] = {}
    for run in compared.runs:
        held = run.table.group_by(column).agg(pl.col("gpu_s").sum())
        for name, seconds_held in held.iter_rows():
            hours_of[name] = max(hours_of.get(name, 0.0), seconds_held)
    if column == "size":
        return [name for name in size_labels() if name in hours_of]
    return sorted(hours_of, key=lambda name: (-hours_of[name], name))[:MOST_BARS]


def lost(compared: Comparison, drawn: Figure) -> str:
    """Return GPU-hours by what took them."""
    failed = [f"{plain(run.label)} {hours(run.lost[FAILED])}" for run in compared.runs if run.lost[FAILED] > 0]
    failures = f'<p class="note">Attempts that failed by themselves took more GPU-hours: {", ".join(failed)}.</p>'
    failure_note = failures if failed else ""
    if not any(run.summary.lost_gpu_hours for run in compared.runs):
        return f'<p class="note">Nothing was lost to checkpoints, preemptions, moves or failed nodes.</p>{failure_note}'
    away = [(plain(run.label), 1 - run.summary.gpu_availability) for run in compared.runs]
    notes = [f"{name} {percent(share, 2)}" for name, share in away if share > 0.00005]
    down = (
        f'<p class="note">Besides, nodes were down or drained: {", ".join(notes)} of all GPU time.</p>' if notes else ""
    )
    return legend(drawn) + figure("lost", "GPU-hours lost in each run, by what took them") + failure_note + down


def longest(run: Measured) -> str:
    """Return the jobs that waited longest, and how to ask why; of the tasks of an array the one that did."""
    ordered = run.table.sort(["wait_s", "id"], descending=[True, False]).filter(pl.col("wait_s") > 0)
    array = pl.coalesce(pl.col("name").str.extract(TASK), pl.format("#{}", "id"))
    folded = ordered.with_columns(array.alias("array")).with_columns(pl.len().over("array").alias("tasks"))
    waiting = folded.unique("array", keep="first", maintain_order=True).head(LONGEST_WAITS)
    dates = run.stored.scene.past.calendar
    if not len(waiting):
        return '<p class="note">No job waited.</p>'
    rows = []
    for record in waiting.iter_rows(named=True):
        job = record["name"] or str(record["id"])
        cells = [
            plain(record["tenant"], 30),
            f"{record['width']:g}",
            duration(record["submit_s"]) if dates is None else dates.short(seconds(record["submit_s"])),
            f"<b>{duration(record['wait_s'])}</b>",
            duration(record["run_s"]),
            escape(record["outcome"]),
        ]
        if run.shown_folder:
            command = f"headway story {quote(run.shown_folder)} {quote(job)}"
            cells.append(f"<code>{escape(printable(command))}</code>")
        others = record["tasks"] - 1
        more = f" <small>and {count(others, 'more task')} of the array</small>" if others else ""
        rows.append(row(plain(job, 40) + more, cells))
    heads = [
        "job",
        "tenant",
        "GPUs",
        "submitted at",
        "waited",
        "ran",
        "outcome",
        *(["ask why"] if run.shown_folder else []),
    ]
    return table(heads, rows, f"The jobs that waited longest under {run.label}")

"""Make the terminal tables of a backtest: errors of simulated starts, in all and by group, and what they come from."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.table import Table

from headway.jobs.metrics.backtest.errors import GROUPS, Backtest, Errors
from headway.jobs.metrics.backtest.verdict import Verdict
from headway.jobs.metrics.groups import TITLES
from headway.show.formatting import percent
from headway.show.terminal import framed
from headway.units import counted, format_duration, seconds

_COLUMNS = ("jobs", "wait recorded", "simulated", "error median", "p90", "bias", "of all errors")
MOST_ROWS = 10
"""So many groups of a kind are shown, those with the largest errors; --json has all."""


def errors_table(title: str, groups: Sequence[Errors], first: str) -> Table:
    """Return one line a group; median and p90 are of absolute errors, the bias has a sign."""
    table = framed([first], _COLUMNS, title)
    for group in groups:
        times = (group.wait_recorded_mean_s, group.wait_simulated_mean_s, group.error_p50_s, group.error_p90_s)
        cells = (f"{group.jobs:,}", *(said(time) for time in times), signed(group.bias_s), percent(group.share, 0))
        table.add_row(group.group, *cells)
    return table


def said(time_s: float) -> str:
    """Return a time as people say it; below a minute with a tenth of a second."""
    return f"{time_s:.1f} s" if time_s < 60 else format_duration(seconds(round(time_s)))


def signed(time_s: float) -> str:
    """Return the same with its sign; what rounds to nothing has none."""
    text = said(abs(time_s))
    return text if text == "0.0 s" else f"{'+' if time_s > 0 else '-'}{text}"


def tables(backtests: Sequence[Backtest], names: Sequence[str]) -> Iterator[Table]:
    """Yield all tables: policies side by side under these names, then those of the first by each kind of group."""
    whole = [replace(backtest.whole, group=name) for name, backtest in zip(names, backtests, strict=True)]
    yield errors_table("", whole, "policy")
    first = backtests[0]
    whose = f", {names[0]}" if len(backtests) > 1 else ""
    for kind in GROUPS:
        groups, called = first.groups[kind], TITLES.get(kind, kind)
        if len(groups) > 1 or kind == "size":
            yield errors_table(f"by {called}{whose}{_which(groups)}", _largest(groups), called)


def _largest(groups: Sequence[Errors]) -> Sequence[Errors]:
    """Return the groups with the largest errors, in their own order; all where they are few."""
    kept = sorted(groups, key=lambda each: -each.share)[:MOST_ROWS]
    return [each for each in groups if each in kept]


def _which(groups: Sequence[Errors]) -> str:
    return f", the {MOST_ROWS} of {len(groups):,} with the largest errors" if len(groups) > MOST_ROWS else ""


def reasons_table(rows: Sequence[Mapping[str, Any]], samples: int) -> Table:
    """Return what waiting was for, as samples of the queue say."""
    table = framed(["reason"], ["job-hours", "share"], f"waiting by reason, {samples:,} samples of squeue")
    for row in rows[:MOST_ROWS]:
        table.add_row(row["reason"], f"{row['job_hours']:,.1f}", percent(row["share"], 0))
    return table


def missed(backtest: Backtest) -> list[str]:
    """Return a line about jobs that are compared with nothing, where there are such."""
    parts = [
        *([f"{backtest.only_recorded:,} started only in the record"] if backtest.only_recorded else []),
        *([f"{backtest.only_simulated:,} only in the simulation"] if backtest.only_simulated else []),
    ]
    return [f"({' and '.join(parts)}; {counted(backtest.jobs, 'job')} in all)"] if parts else []


def errors_line(backtest: Backtest) -> str:
    """Return one sentence on how far off starts are."""
    if not backtest.compared:
        return "no job started in both: there is nothing to believe"
    half, most = said(backtest.whole.error_p50_s), said(backtest.whole.error_p90_s)
    correlation = backtest.rank_correlation
    rank = "" if correlation is None else f"; the order of waits agrees to {correlation:.2f}"
    return (
        f"half of the {backtest.compared:,} jobs start within {half} of their recorded start, "
        f"nine of ten within {most}{rank}"
    )


def waits_line() -> str:
    """Say what a wait is here: simulate, compare and report count it otherwise."""
    return "(waits are until the first start; those of simulate, compare and report go on after a requeue)"


def verdict_lines(verdict: Verdict, has_reasons: bool) -> list[str]:
    """Return the verdict, and where the errors come from."""
    told = ["", f"verdict: {verdict.text}"]
    if verdict.sources:
        told.append("where the errors come from (a job may count under several):")
    for each in verdict.sources:
        told.append(
            f"  {percent(each.share, 0)} {each.by.replace('_', ' ')} {each.group} ({counted(each.jobs, 'job')}, "
            f"{signed(each.bias_s)} on average): {each.cause}; {each.remedy}"
        )
    if has_reasons:
        told.append(
            "(of the reasons of a job sacct keeps one, the last other than Priority and Resources: how long it waited "
            "for it is not recorded)"
        )
    return told

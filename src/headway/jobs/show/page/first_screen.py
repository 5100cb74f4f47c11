"""Make the first screen of a report: the answer, mean times as bars, four numbers, and what was run."""

from dataclasses import dataclass

import polars as pl

from headway.jobs.show.formatting import size_labels
from headway.jobs.show.page import headline, trust
from headway.jobs.show.page.measured import Comparison, Measured
from headway.show import sections
from headway.show.formatting import NOTHING, THIN, change, duration, hours, percent, plain
from headway.show.time_unit import in_unit, time_unit

_LONGEST = 40
"""Letters of the name of a run."""


def hero(compared: Comparison) -> str:
    """Return the answer, what it is about, and the mean times as bars."""
    pictures = _bars(compared) + _tiles(compared)
    told = (
        headline.answer(compared),
        " ".join(headline.details(compared)),
        headline.facts(compared),
        headline.warnings(compared),
    )
    return sections.hero(*told, pictures, trust.verdict_box(compared))


@dataclass(frozen=True, slots=True)
class Bar:
    """One line of the picture on the first screen."""

    who: str
    """As HTML."""
    mean: float | None
    wait: float
    interval: tuple[float, float] | None = None
    moved: str = ""
    role: str = ""
    """``base``, ``best``, or nothing."""


def _bars(compared: Comparison) -> str:
    """Return bars of the mean time to completion: of each run, or of each size of job in one run."""
    if len(compared.runs) > 1:
        lines = [*_of_past(compared), *(_of_run(compared, index) for index in range(len(compared.runs)))]
        what = "Mean time to completion"
    elif compared.baseline.seeds:
        lines, what = [_of_run(compared, 0)], "Mean time to completion"
    else:
        lines, what = [_of_run(compared, 0), *_of_sizes(compared.baseline)], "Mean time to completion, by size of job"
    seeds = max(len(run.seeds) for run in compared.runs)
    what = f"{what}, over {seeds} seeds" if seeds else what
    known = [line.mean for line in lines if line.mean is not None]
    if not known:
        return ""
    longest = max([*known, *(line.interval[1] for line in lines if line.interval), 1e-12])
    unit = time_unit(max(known))  # that of the table below
    told = [NOTHING if line.mean is None else in_unit(line.mean, *unit).replace(" ", THIN) for line in lines]
    rows = [_bar(line, 100 / longest, shown) for line, shown in zip(lines, told, strict=True)]
    level = f'<span class="swatch whisker">{percent(compared.baseline.level, 0)} interval</span>'
    return (
        f'<figure class="bars" aria-label="{what}, split into waiting and running"><figcaption><b>{what}</b>'
        '<span class="swatch wait">waiting</span><span class="swatch run">running</span>'
        f"{level if compared.baseline.level else ''}</figcaption>"
        f'<div class="rows">{"".join(rows)}</div></figure>'
    )


def _of_past(compared: Comparison) -> list[Bar]:
    """Return the bar of what really happened, where the log tells it."""
    past = trust.past_of(compared)
    return [] if past is None else [Bar("recorded <small>past</small>", past["jct_mean_s"], past["wait_mean_s"] or 0.0)]


def _of_run(compared: Comparison, index: int) -> Bar:
    run, several = compared.runs[index], len(compared.runs) > 1
    shown = compared.cut(_LONGEST)[index]
    summary = run.numbers
    role = "base" if several and index == compared.base else "best" if index == compared.best else ""
    tag = f" <small>{'baseline' if role == 'base' else 'best'}</small>" if role and several else ""
    moved, interval = compared.changes[index].value, compared.changes[index].interval
    told = f'<small title="{headline.signed(interval) if interval else ""}">{change(moved)}</small>'
    return Bar(
        f"<span{headline.in_full(run, shown)}>{plain(shown)}</span>{tag}" if several else "all jobs",
        summary.jct_s.mean,
        summary.wait_s.mean or 0.0,
        run.jct_interval,
        told if moved is not None else "",
        role,
    )


def _of_sizes(run: Measured) -> list[Bar]:
    """Return bars of completed jobs by size, the smallest first."""
    done = run.table.filter(pl.col("end_s").is_not_null() & pl.col("first_start_s").is_not_null())
    means = done.group_by("size").agg(pl.col("jct_s").mean(), pl.col("wait_s").mean(), pl.len())
    by_size = {size: (jct, wait, jobs) for size, jct, wait, jobs in means.iter_rows()}
    if len(by_size) < 2:
        return []
    return [
        Bar(
            f"{name} <small>{percent(by_size[name][2] / len(done), 0)} of jobs</small>",
            by_size[name][0],
            by_size[name][1],
        )
        for name in size_labels()
        if name in by_size
    ]


def _bar(line: Bar, scale: float, shown: str) -> str:
    if line.mean is None:
        none = '<span class="none">no job completed</span>'
        return f'<div class="row"><span class="who">{line.who}</span>{none}</div>'
    whisker = ""
    if line.interval:
        low, high = (max(0.0, end) * scale for end in line.interval)
        whisker = f'<i class="whisker" style="left:{low:.2f}%;width:{max(high - low, 0.2):.2f}%"></i>'
    return (
        f'<div class="row {line.role}"><span class="who">{line.who}</span><span class="track">'
        f'<i class="wait" style="width:{line.wait * scale:.2f}%"></i>'
        f'<i class="run" style="width:{(line.mean - line.wait) * scale:.2f}%"></i>{whisker}</span>'
        f'<span class="value">{shown}{line.moved}</span></div>'
    )


def _tiles(compared: Comparison) -> str:
    """Return four numbers of the best run, each beside the baseline's."""
    best, base = compared.runs[compared.best], compared.baseline
    new, old = best.numbers, base.numbers
    unit, size = time_unit(max(run.numbers.jct_s.mean or 0.0 for run in compared.runs))  # that of the table below
    new_p99, old_p99 = (in_unit(each.jct_s.p99, unit, size).replace(" ", THIN) for each in (new, old))
    tiles = [
        ("mean wait", duration(new.wait_s.mean), duration(old.wait_s.mean)),
        ("99th percentile of completion", new_p99, old_p99),
        (
            "GPUs in use" if headline.at_once(new) else "GPUs in use while jobs arrive",
            percent(new.gpu_utilisation_while_arriving, 0),
            percent(old.gpu_utilisation_while_arriving, 0),
        ),
        ("GPU-hours lost", hours(new.lost_gpu_hours), hours(old.lost_gpu_hours)),
    ]
    was = compared.cut(24)[compared.base]
    whose = f"<small{headline.in_full(base, was)}>{plain(was)}: "
    cells = "".join(
        f"<div><dd>{value}</dd><dt>{what}</dt>{'' if best is base else f'{whose}{before}</small>'}</div>"
        for what, value, before in tiles
    )
    return f'<dl class="tiles"><div class="of"{headline.in_full(best)}>{plain(best.label)}</div>{cells}</dl>'

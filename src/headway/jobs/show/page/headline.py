"""Write the first sentences of a report: the answer, what was run, and what to be careful about."""

import re
from collections import Counter
from collections.abc import Iterator
from html import escape
from pathlib import PurePath

from headway.errors import InputError
from headway.jobs.metrics.changes import Change
from headway.jobs.metrics.jobs import preemptions_were_free
from headway.jobs.metrics.summary import Summary
from headway.jobs.model.cluster import Cluster
from headway.jobs.show.page import trust
from headway.jobs.show.page.measured import Comparison, Measured
from headway.show.formatting import (
    THIN,
    change,
    count,
    duration,
    durations,
    hours,
    listed,
    number,
    percent,
    plain,
    three_digits,
)
from headway.show.names import shortened

_NOTICEABLE = 0.05
"""Changes smaller than this are not worth a sentence."""
_POINT = 0.01
"""Shares that differ by less are told once."""
_MOST_NAMED = 8
TOO_CLOSE = "too close to call"
_SHORT = 32
"""Letters of a name that is told in a sentence with the options of its parts."""
_OPTIONS = re.compile(r"\([^()]*\)")
_WHOLE = 400
"""Letters of a name that is told in full."""


def _times(share: float) -> str:
    """Return the size of a change, without its sign."""
    size = abs(100 * share)
    return f"{size:.0f}{THIN}%" if size >= 9.5 else f"{size:.1f}{THIN}%"


def name(run: Measured) -> str:
    """Return the name of a run, in bold."""
    short = _OPTIONS.sub("(…)", run.label) if len(run.label) > _SHORT else run.label
    return f"<b{in_full(run, short)}>{plain(short)}</b>"


def in_full(run: Measured, shown: str = "") -> str:
    """Return a title attribute with the full name of a run, where a shorter one is shown."""
    full = run.name or run.policy
    return "" if full == (shown or run.label) else f' title="{plain(full, _WHOLE)}"'


# --- the answer -----------------------------------------------------------------------------------------------


def answer(compared: Comparison) -> str:
    """Return one sentence, as HTML."""
    if len(compared.runs) == 1:
        return _of_one(compared.baseline)
    best, base = compared.runs[compared.best], compared.baseline
    if best.numbers.jct_s.mean is None:
        return "No job has completed in any of these runs yet."
    if not compared.same_jobs:
        return _different_jobs(compared)
    if best is base:
        return _baseline_is_best(compared)
    moved, interval = compared.claim.value, compared.claim.interval
    if moved is None:
        return f"Under {name(base)} no job has completed; under {name(best)} they take {_jct(best)} on average."
    if interval is not None and interval[1] >= 0:
        return (
            f"{name(best)} and {name(base)} finish jobs about equally soon: "
            f"a difference of {_times(moved)}, within its uncertainty."
        )
    return f"{name(best)} finishes jobs {_times(moved)} sooner than {name(base)} on average."


def _of_one(run: Measured) -> str:
    mean, wait = run.numbers.jct_s.mean, run.numbers.wait_s.mean
    if mean is None or wait is None:
        return f"Under {name(run)} no job has completed yet."
    if not run.numbers.wait_s.max:
        return f"Under {name(run)} no job waits; they take {duration(mean)} on average."
    if wait < 0.01 * mean:
        text = f"Under {name(run)} jobs hardly wait: they take {duration(mean)} on average"
        return f"{text}, {duration(wait)} of it waiting."
    return f"Under {name(run)} the average job takes {duration(mean)}, of which it waits {duration(wait)}."


def _baseline_is_best(compared: Comparison) -> str:
    others = [(change.value, index) for index, change in enumerate(compared.changes) if change.value is not None]
    if not others:
        return f"Only under {name(compared.baseline)} have jobs completed: {_jct(compared.baseline)} on average."
    closest, index = min(others)
    if closest == 0:
        return f"{name(compared.baseline)} and {name(compared.runs[index])} finish jobs equally soon."
    unsure = ", within its uncertainty" if verdict(compared.changes[index]) == TOO_CLOSE else ""
    return (
        f"No other policy finishes jobs sooner than {name(compared.baseline)}; "
        f"{name(compared.runs[index])} comes closest, {_times(closest)} later{unsure}."
    )


def _different_jobs(compared: Comparison) -> str:
    """Return the sentence for runs over different jobs: no winner is named."""
    known = [run for run in compared.runs if run.numbers.jct_s.mean is not None]
    low, high = (pick(known, key=lambda run: run.numbers.jct_s.mean or 0.0) for pick in (min, max))
    if low is high:
        return f"Jobs have completed only under {name(low)}: {_jct(low)} on average."
    text = f"{len(compared.runs)} runs over different jobs, which take between {_jct(low)} ({name(low)})"
    return f"{text} and {_jct(high)} ({name(high)}) on average."


def _jct(run: Measured) -> str:
    return duration(run.numbers.jct_s.mean)


def details(compared: Comparison) -> list[str]:
    """Return a few sentences more, as HTML: what it gains, what it costs."""
    best, base = compared.runs[compared.best], compared.baseline
    if best.numbers.jct_s.mean is None or not compared.same_jobs:
        return []
    if best is base:
        return [*_alone(best)]
    return [*_against(best, base), *_use(best, base), *_chosen(compared)]


def _chosen(compared: Comparison) -> Iterator[str]:
    """Yield the confidence in the difference, given that the best of several runs was picked after the fact."""
    if compared.claim.value is None or not compared.claim_level:
        return
    if compared.claim.interval is None:
        yield "There are too few jobs or runs to tell how sure that is."
    elif len(compared.runs) > 2:
        sure = percent(compared.claim_level, 1 if compared.claim_level < 0.999 else 2)
        yield f"It is the best of {len(compared.runs)} by this mean, so its difference is judged by a {sure} interval."
        if compared.rivals and compared.claim.interval[1] < 0:
            yield f"Too close to it to call: {listed([name(run) for run in compared.rivals])}."


def _alone(run: Measured) -> Iterator[str]:
    wait, summary = run.numbers.wait_s, run.numbers
    if wait.max:
        if wait.p90 == 0:
            yield "At least nine in ten jobs start at once."
        elif wait.p50 == 0:
            yield f"At least half of the jobs start at once; one in a hundred waits longer than {duration(wait.p99)}."
        else:
            text = f"Half of the jobs wait less than {duration(wait.p50)}"
            yield f"{text}, one in a hundred more than {duration(wait.p99)}."
    yield from _use_alone(summary)
    if summary.lost_gpu_hours >= 0.05:
        yield (
            f"{hours(summary.lost_gpu_hours)} GPU-hours are lost to checkpoints, preemptions, moves and failed nodes: "
            f"{percent(summary.lost_gpu_hours / max(summary.gpu_hours, 1e-9))} of all that were held."
        )


def at_once(summary: Summary) -> bool:
    """Return whether measured jobs arrived all at once: then there is no time in which they arrive."""
    return summary.tail_s == summary.makespan_s


def _use_alone(summary: Summary) -> Iterator[str]:
    """Yield how full the cluster was while jobs arrived, how many waited then, and how long the rest took."""
    used, waiting = summary.gpu_utilisation_while_arriving, summary.queue_mean_while_arriving or 0.0
    if used is None:
        return
    when = f"Over {duration(summary.makespan_s)}"
    if not at_once(summary):
        when = f"While jobs arrive, for {duration(_arriving(summary))},"
    queue = f"; on average {three_digits(waiting)} jobs wait, at most {number(summary.queue_max)}"
    yield f"{when} the GPUs are {percent(used, 0)} in use{queue if waiting >= 0.005 else ''}."
    if summary.tail_s and not at_once(summary):
        yield f"The last job ends {duration(summary.tail_s)} after the last arrival."


def _against(best: Measured, base: Measured) -> Iterator[str]:
    new, old = best.numbers, base.numbers
    yield (
        f"The average job waits {duration(new.wait_s.mean)} instead of {duration(old.wait_s.mean)}; "
        + _median(new.wait_s.p50, old.wait_s.p50)
    )
    if new.jct_s.p99 and old.jct_s.p99:
        tail = new.jct_s.p99 / old.jct_s.p99 - 1
        if tail > _NOTICEABLE:
            yield (
                f"The slowest pay for it: one in a hundred takes longer than {duration(new.jct_s.p99)}, "
                f"which was {duration(old.jct_s.p99)}."
            )
        elif tail < -_NOTICEABLE:
            yield f"The slowest gain too: the 99th percentile falls by {_times(tail)}."
    if new.preemptions or new.migrations:
        done = [
            count(times, one) for times, one in ((new.preemptions, "preemption"), (new.migrations, "move")) if times
        ]
        yield (
            f"It takes {listed(done)}; {hours(new.lost_gpu_hours)} GPU-hours are lost, "
            f"{hours(old.lost_gpu_hours) if old.lost_gpu_hours >= 0.05 else 'none'} under {name(base)}."
        )


def _median(new: float | None, old: float | None) -> str:
    if not new and not old:
        return "at least half of the jobs start at once in either case."
    if not new:
        return f"at least half of the jobs start at once, where the median waited {duration(old)}."
    return f"the median job {duration(new)} instead of {duration(old)}."


def _use(best: Measured, base: Measured) -> Iterator[str]:
    new, old = best.numbers, base.numbers
    used, before = new.gpu_utilisation_while_arriving, old.gpu_utilisation_while_arriving
    when = "" if at_once(new) else " while jobs arrive"
    moved = abs((used or 0.0) - (before or 0.0)) >= _POINT
    yield (f"GPUs are {percent(used, 0)} in use{when}{f', {percent(before, 0)} under {name(base)}' if moved else ''}.")
    if new.tail_s is None or old.tail_s is None:
        return
    last, earlier = duration(new.tail_s), duration(old.tail_s)
    after = f" after the {'start' if at_once(new) else 'last arrival'}"
    yield f"The last job ends {last}{after}{'' if last == earlier else f', {earlier} under {name(base)}'}."


# --- what was run ---------------------------------------------------------------------------------------------


def facts(compared: Comparison) -> list[tuple[str, str]]:
    """Return (name, value) of what was run, both as HTML."""
    runs = compared.runs
    policies = shortened([run.policy for run in runs])
    divided = [("Allocation", _each([plain(run.allocation) if run.allocation else "none" for run in runs]))]
    return [
        ("Trace", _each([_trace(run) for run in runs])),
        ("Jobs", _each([_jobs(run) for run in runs])),
        ("Cluster", _each([_cluster(run.stored.scene.cluster) for run in runs])),
        *_dates(compared),
        ("Jobs arrive for", _spans([_arriving(run.numbers) for run in runs])),
        ("Last ends", f"{_spans([run.numbers.tail_s or 0.0 for run in runs])} later"),
        ("Policy" if len(runs) == 1 else "Policies", _each([plain(each) for each in policies])),
        *(divided if any(run.allocation for run in runs) else ()),
        ("Seeds" if any(run.seeds for run in runs) else "Seed", _each([_seeds(run) for run in runs])),
    ]


def _dates(compared: Comparison) -> list[tuple[str, str]]:
    """Return when the run began and ended, as the site's clock has it."""
    dates = trust.calendar_of(compared)
    if dates is None:
        return []
    last = max(run.ledger.horizon for run in compared.runs)
    return [("Dates", f"{dates.short(0)} to {dates.short(last)} ({escape(dates.about())})")]


def _each(values: list[str]) -> str:
    """Return one value for all runs, or all of them."""
    distinct = list(dict.fromkeys(values))
    if len(distinct) > _MOST_NAMED:
        return f"{', '.join(distinct[:_MOST_NAMED])} and {len(distinct) - _MOST_NAMED} more"
    return ", ".join(distinct)


def _seeds(run: Measured) -> str:
    seeds = [int(row["seed"]) for row in run.seeds] or [run.stored.scene.experiment.run.seed]
    if len(seeds) > 2 and seeds == [*range(seeds[0], seeds[-1] + 1)]:
        return f"{seeds[0]} to {seeds[-1]}"
    return listed([str(seed) for seed in seeds])


def _jobs(run: Measured) -> str:
    whole = count(run.summary.jobs, "job")
    if run.window is None:
        return whole
    return f"{run.window.last - run.window.first:,} of {whole} measured"


def _arriving(summary: Summary) -> float:
    """Return the seconds from the first to the last arrival."""
    return summary.makespan_s - (summary.tail_s or 0.0)


def _spans(lengths: list[float]) -> str:
    """Return the shortest and the longest of some durations."""
    if duration(min(lengths)) == duration(max(lengths)):
        return duration(max(lengths))
    return " to ".join(durations([min(lengths), max(lengths)]))


def _trace(run: Measured) -> str:
    table = run.stored.scene.experiment.trace
    if table.synthetic is not None:
        limit = f"{plain(str(table.synthetic.longest))} at most"
        text = f"drawn like Philly at load {table.synthetic.load:g}, {limit} a job"
    elif table.synergy is not None:
        text = f"drawn like Synergy's at {escape(table.synergy.rate)}, {escape(table.synergy.split)}"
    else:
        file = PurePath(table.path.replace("\\", "/")).name
        text = f"{plain(file)} ({escape(table.format)})" if table.format else plain(file)
    faster = str(table.load)
    return text if faster in ("1", "1.0") else f"{text}, arrivals × {escape(faster)}"


def _cluster(cluster: Cluster) -> str:
    kinds = Counter((node.gpus, node.gpu_type) for node in cluster.nodes)
    parts = [
        f"{count(nodes, 'node')} "
        + ("without GPUs" if not gpus else f"× {gpus}" + ("" if kind == "gpu" else f" {plain(kind, 20)}"))
        for (gpus, kind), nodes in kinds.items()
    ]
    if len(parts) > _MOST_NAMED:  # by type alone
        types = Counter[str]()
        for (gpus, kind), nodes in kinds.items():
            types["without GPUs" if not gpus else kind] += nodes * max(gpus, 1)
        parts = [f"{number(each)} {plain(kind, 20)}" for kind, each in types.items()]
    return f"{count(cluster.gpus, 'GPU')}: {' + '.join(parts)}"


# --- what to be careful about ---------------------------------------------------------------------------------


def warnings(compared: Comparison) -> list[str]:
    """Return lines as HTML; what holds for all runs is said once."""
    said: dict[str, list[str]] = {}
    for run in compared.runs:
        for line in _warnings(run):
            said.setdefault(line, []).append(name(run))
    everywhere = len(compared.runs)
    told = [line if len(names) == everywhere else f"{listed(names)}: {line}" for line, names in said.items()]
    return [*_between(compared), *told]


def _between(compared: Comparison) -> Iterator[str]:
    if not compared.same_jobs:
        yield "These runs did not serve the same jobs: more than the policy differs, and changes have no interval."
    if not compared.same_cluster:
        yield "These runs did not have the same nodes."
    for run, moved in zip(compared.runs, compared.changes, strict=True):
        if moved.over and compared.same_jobs:
            yield f"The change of {name(run)} is over {escape(moved.over)}."


def _warnings(run: Measured) -> Iterator[str]:
    summary = run.numbers
    if summary.overload:
        # what follows the semicolon differs from run to run
        yield (
            f"Overload: {escape(summary.overload.partition(';')[0])}. "
            "Waits then say how long the trace is, not only how good the policy is."
        )
    if summary.growing:
        yield escape(summary.growing[0].upper() + summary.growing[1:]) + "."
    if not run.stored.complete:
        ended = int(run.ledger.ended.sum())
        yield f"Cut short: {number(ended)} of {count(len(run.ledger.jobs), 'job')} had ended; means leave out the rest."
    elif summary.unfinished:
        yield f"{count(summary.unfinished, 'job')} had not ended; means leave them out."
    if run.skipped:
        yield f"{count(run.skipped, 'job')} that could never run {'was' if run.skipped == 1 else 'were'} left out."
    if summary.preemptions and _preemptions_were_free(run):
        yield "Preemptions cost nothing here: no checkpoint or restore time was charged."


def _preemptions_were_free(run: Measured) -> bool:
    """Return whether preemptions cost nothing; not where the policy is gone and nothing is known of it."""
    try:
        return preemptions_were_free(run.ledger, run.stored.scene.costs())
    except InputError:
        return False


def verdict(moved: Change) -> str:
    """Return a change for people who do not see colours: better, worse, or too close to call."""
    if moved.value is None:
        return ""
    if moved.interval is not None and moved.interval[0] <= 0 <= moved.interval[1]:
        return TOO_CLOSE
    return "sooner" if moved.value < 0 else "later" if moved.value > 0 else "equal"


def signed(interval: tuple[float, float]) -> str:
    """Return an interval of changes."""
    return f"{change(interval[0])} to {change(interval[1])}"

"""Search rules of a site for a stated aim: every combination of some knobs on a first window, the best on a later one.

A combination is better than the present rules if the aim's mean over the same jobs is lower, the interval of that
change does not reach zero (of the change in seconds, where the aim falls to 0), what is to be kept rises by no more
than its tolerance, and no job is refused that ran. The best of them on the first window is played on the later one
beside the present rules, and has to be better there too.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from headway.core.tasks import Far
from headway.errors import ExperimentError, HeadwayError
from headway.formats import toml
from headway.formats.dates import is_date
from headway.jobs.ask.aims import Aim, aim_of
from headway.jobs.ask.backtest import judgement
from headway.jobs.ask.trials import Chosen, Played, Trial, compared, together
from headway.jobs.experiment.arrivals import Arrivals, arrivals, source
from headway.jobs.experiment.scene import JobsScene, checked, prepare
from headway.jobs.experiment.site_changes import about_no_gpus, about_nobody, knob, rules_of
from headway.jobs.metrics.changes import Change
from headway.jobs.metrics.ledger import Ledger
from headway.jobs.model.job import Job
from headway.jobs.show.terminal import tuning as shown
from headway.jobs.slurm.output.records import SiteRules
from headway.jobs.slurm.site.commands import commands
from headway.jobs.slurm.site.modify import Value, modified
from headway.jobs.tables.settings import Experiment
from headway.jobs.traces.trace import SLURM
from headway.jobs.traces.workloads.window import check_order
from headway.runs.answer import Answer
from headway.runs.blame import own_code
from headway.runs.domain import Progress, RunResult, with_table
from headway.runs.measured import seeded
from headway.runs.play import run
from headway.runs.settings.files import copied, typed
from headway.runs.sweep.pool import LocalPool
from headway.show.progress import Board
from headway.statistics.replications import Sample
from headway.units import counted, exact_duration, parse_duration

MOST = 1000
"""More combinations are refused."""
LEVEL = 0.95
_WHOLE = 2
"""The place of both windows together."""
_Trust = dict[str, Any]
"""The verdict on a run, and its caveats; empty where it is of no Slurm log."""


@dataclass(frozen=True, slots=True)
class Search:
    """What is asked for."""

    document: toml.Document
    knobs: Mapping[str, Sequence[Value]]
    aims: tuple[Aim, ...]
    windows: tuple[tuple[str, str], ...]
    """Begin and end of the window to search, of the one to test, and of both together."""
    site: SiteRules
    level: float
    processes: int = 1
    jobs: list[int] = field(default_factory=list)
    """How many were measured, by window."""
    idle: tuple[str, ...] = ()
    """Which knobs concern no job, a line each."""
    notes: tuple[str, ...] = ()
    """What values of knobs are taken for, where they are not followed as they are written."""
    trust: _Trust = field(default_factory=dict)
    """How far the simulation under the present rules is to be trusted, on both windows together: where a window ends,
    later jobs that held its own back in the record are not there."""

    def experiment(self, chosen: Chosen, window: int) -> Experiment:
        """Return the experiment under some rules on one of the windows."""
        document = copied(self.document)
        for key, value in chosen.items():
            toml.put(document, key, value)
        start, end = self.windows[window]
        made: Experiment = with_table(typed(document, "tune"), "trace", start=start, end=end)
        return made


def answer(
    document: toml.Document,
    knobs: Sequence[str],
    lower: str,
    keep: Sequence[str],
    test_from: str = "",
    processes: int = 1,
) -> Answer:
    """Search the knobs for the aim, test the best on a later window, and say which commands would set it."""
    aims = (aim_of(lower, "--lower"), *(aim_of(each, "--keep") for each in keep))
    search = replace(_search(document, knobs, aims, test_from), processes=processes)
    candidates = list(_candidates(search))
    trials = _tried(search, [{}, *candidates], 0)
    if trials is None or (_tried(search, [{}], _WHOLE) is None):
        return Answer(None, (), stopped=f"stopped in the search over {counted(len(candidates), 'combination')}")
    if trials[0].error:
        raise ExperimentError(f"under the present rules: {trials[0].error}")
    best = min((each for each in trials[1:] if each.better), key=lambda each: _rank(search, each), default=None)
    tested = [] if best is None else _tried(search, [{}, best.chosen], 1)
    if tested is None:
        return Answer(None, (), stopped="stopped while the best combination was tested; nothing of it is shown")
    return _answered(search, trials, tested)


def _rank(search: Search, trial: Trial) -> tuple[float, int]:
    """Return what trials are ordered by: the aim, and of equal ones how many knobs are turned."""
    return trial.means[0] or 0.0, len(_turned(search, trial.chosen))


# --- what is tried ----------------------------------------------------------------------------------------------------


def _search(document: toml.Document, knobs: Sequence[str], aims: tuple[Aim, ...], test_from: str) -> Search:
    """Return what is asked for, checked before anything runs."""
    values: dict[str, list[Value]] = {}
    for text in knobs:
        key, several = knob(text)
        if key in values:
            raise ExperimentError(f"--knob {text!r}: this knob is given twice")
        values[key] = several
    if not values:
        raise ExperimentError('no knob to turn: give --knob "qos long.MaxTRESPU=gres/gpu=16|24|32"')
    total = math.prod(map(len, values.values()))
    if total > MOST:
        raise ExperimentError(
            f"the knobs have {total:,} combinations; at most {MOST:,} are searched: give fewer values"
        )
    experiment: Experiment = typed(copied(document), "settings")
    if not experiment.trace.path:
        raise ExperimentError("tune needs a history: name a trace (headway jobs tune TRACE …)")
    windows = _windows(experiment, test_from)
    level = experiment.measure.confidence or LEVEL
    made = Search(document, values, aims, windows, SiteRules(), level)
    with own_code():
        scene = prepare(made.experiment({}, 0))
        reads = [checked(made.experiment({key: one}, 0))[1] for key, several in values.items() for one in several]
    for aim in aims:
        aim.check(scene.jobs)
    chosen = {key: several[0] for key, several in values.items()}
    told = (note for read in reads for note in (*read.brought, *about_no_gpus(read.rules, scene.cluster)))
    idle = tuple(about_nobody(scene.site, rules_of(chosen), scene.jobs))
    return replace(made, site=scene.site, idle=idle, notes=tuple(dict.fromkeys(told)))


def _windows(experiment: Experiment, test_from: str) -> tuple[tuple[str, str], ...]:
    """Return the window to search, the one to test (the last third of the jobs, unless a date is given), and both."""
    table = experiment.trace
    check_order(table.start, test_from)
    check_order(test_from, table.end)
    made = arrivals(*source(table, 0), table.load, table.estimates, table.models, experiment.run.seed)
    new = [job for job in made.jobs if job.name not in made.carried]
    since = parse_duration(table.start) if table.start and not is_date(table.start) else 0
    if not test_from:
        time = new[2 * len(new) // 3].submit
        test_from = exact_duration(since + time) if made.calendar is None else made.calendar.iso(time)
    else:
        _check_cut(made, new, test_from, since)
    return (table.start, test_from), (test_from, table.end), (table.start, table.end)


def _check_cut(made: Arrivals, new: Sequence[Job], test_from: str, since: int) -> None:
    """Refuse a time from which on there is no job to test on, or before which there is none to search on."""
    if is_date(test_from) and made.calendar is None:
        return  # said when the window is cut
    time = (
        made.calendar.time_of(test_from, "--test-from")
        if made.calendar is not None and is_date(test_from)
        else (parse_duration(test_from, what="--test-from") - since)
    )
    for edge, which, what, wrong in (
        (new[-1], "last", "test", time > new[-1].submit),
        (new[0], "first", "search", time <= new[0].submit),
    ):
        if wrong:
            when = exact_duration(since + edge.submit) if made.calendar is None else made.calendar.iso(edge.submit)
            raise ExperimentError(
                f"--test-from {test_from}: the {which} job is submitted at {when}: none is left to {what} on"
            )


def _candidates(search: Search) -> Iterator[dict[str, Value]]:
    """Yield the combinations that are not the present rules."""
    for values in itertools.product(*search.knobs.values()):
        chosen = dict(zip(search.knobs, values, strict=True))
        if modified(search.site, rules_of(chosen)).told:
            yield chosen


def _tried(search: Search, several: Sequence[Chosen], window: int) -> list[Trial] | None:
    """Play combinations, the present rules first, each for all its seeds; None where that was stopped."""
    tasks = [
        (number, seed, search.aims)
        for number, chosen in enumerate(several)
        for seed in seeded(search.experiment(chosen, window))
    ]
    played: dict[int, list[Played]] = {number: [] for number in range(len(several))}
    errors: dict[int, str] = {}
    with Board(len(tasks)) as board:
        names = [", ".join(map(str, several[number].values())) or "present" for number, _, _ in tasks]

        def told(task: int, far: Far | None) -> None:
            board.tell(task, names[task], far)

        pool = LocalPool(min(search.processes, len(tasks)))
        with closing(pool.run(tasks, play_one, told if board.shown else None)) as ends:
            for done in ends:
                number, experiment, _ = tasks[done.task]
                if done.stopped or (done.problem is None and done.result is None):
                    return None
                if done.problem is not None and not isinstance(done.problem, HeadwayError):
                    raise done.problem
                if done.problem is not None:
                    errors[number] = str(done.problem)
                else:
                    measured, samples, trust = done.result
                    played[number].append((experiment.run.seed, measured, samples))
                    if window == _WHOLE and not search.trust:
                        search.trust.update(trust)
                board.ended(done.task)
    if window != _WHOLE:
        search.jobs.append(max((measured for _, measured, _ in played[0]), default=0))
    samples = [together(played[number]) for number in played]
    return compared(several, samples, errors, search.aims, search.level)


def play_one(
    task: tuple[int, Experiment, tuple[Aim, ...]], progress: Progress | None
) -> tuple[int, tuple[Sample, ...], _Trust] | None:
    """Play one combination, in whatever process: jobs measured, each aim, and trust; None when it was stopped."""
    number, experiment, aims = task
    with own_code():
        result = run(experiment, progress)
    if result.stopped:
        return None
    window = result.scene.window()
    measured = len(result.scene.jobs) if window is None else window.last - window.first
    return measured, tuple(aim.sample(result) for aim in aims), _trust(result) if number == 0 else {}


def _trust(result: RunResult) -> _Trust:
    """Return how far to trust a run under the present rules."""
    scene: JobsScene = result.scene
    if scene.past.source != SLURM:
        return {}
    ledger = Ledger(result.tape, scene.jobs, scene.cluster)
    return {"verdict": judgement(ledger, scene, result.policy).record(), "caveats": scene.past.caveats}


# --- the answer -------------------------------------------------------------------------------------------------------


def _answered(search: Search, trials: Sequence[Trial], tested: Sequence[Trial]) -> Answer:
    found = bool(tested) and tested[1].better
    lines = _commands(search, tested[1].chosen) if found else []
    record = {
        "lower": str(search.aims[0]),
        "keep": [{"aim": str(aim), "tolerance": aim.tolerance} for aim in search.aims[1:]],
        "confidence": search.level,
        "searched": _window(search, 0),
        "tested": _window(search, 1) if tested else None,
        "combinations": [_record(search, each) for each in trials],
        "test": [_record(search, each) for each in tested],
        "found": found,
        "best": dict(tested[1].chosen) if tested else None,
        "commands": lines,
        "idle_knobs": list(search.idle),
        "notes": list(search.notes),
        **search.trust,
    }
    return Answer(record, shown.shown(record), shown.notes(record))


def _window(search: Search, window: int) -> dict[str, Any]:
    start, end = search.windows[window]
    return {"from": start, "to": end, "jobs": search.jobs[window]}


def _record(search: Search, trial: Trial) -> dict[str, Any]:
    changes = trial.changes or (Change(),) * len(trial.samples)
    return {
        "rules": {key.removeprefix("cluster.rules."): value for key, value in trial.chosen.items()},
        "aims": [
            {
                "aim": str(aim),
                "mean_s": value,
                "change": change.value,
                "change_interval": change.interval,
                "change_s": change.seconds,
                "change_interval_s": change.seconds_interval,
            }
            for aim, value, change in zip(search.aims, trial.means, changes, strict=False)
        ],
        "refused": trial.refused,
        "missed": list(trial.missed),
        "better": trial.better,
        "by_seconds": trial.by_seconds,
        "too_few_jobs": trial.unsure,
        "error": trial.error,
    }


def _commands(search: Search, chosen: Chosen) -> list[str]:
    """Return the commands that would set it; of knobs that stay as they are there is none."""
    return commands(search.site, rules_of(_turned(search, chosen)))


def _turned(search: Search, chosen: Chosen) -> Chosen:
    """Return the knobs that are not as they were."""
    return {key: value for key, value in chosen.items() if modified(search.site, rules_of({key: value})).told}

"""Replay a site's recorded jobs through a policy, and compare the starts with the recorded ones."""

from collections.abc import Mapping, Sequence
from os import PathLike, fspath

from headway import traces
from headway.errors import ExperimentError, TraceError
from headway.experiment.answer import Answer, spaced
from headway.experiment.domain import Progress, RunResult
from headway.experiment.files import typed
from headway.experiment.play import run
from headway.formats import toml
from headway.formats.slurm import site as slurm_site
from headway.formats.training.settings import Experiment
from headway.metrics.training.backtest import Backtest, backtest
from headway.metrics.training.ledger import Ledger
from headway.report.progress import progress_bar
from headway.report.training.backtest import missed, tables, verdict

SITE = "site"
WITHOUT_CONFIG = "multifactor+conservative"


def answer(document: toml.Document, policies: Sequence[str], config: str | PathLike[str] | None) -> Answer:
    """Replay the history of a document under each policy; ``site`` is the one that a slurm.conf describes."""
    site = slurm_site.read(fspath(config)) if config is not None else slurm_site.Site(WITHOUT_CONFIG)
    notes = list(site.notes)
    if config is None and SITE in policies:
        notes.append(f"without --config the site is taken for {WITHOUT_CONFIG} with default parameters")
    waits = recorded(typed(document, "settings"))
    backtests: list[Backtest] = []
    stopped = ""
    for spec in policies:
        toml.put(document, "policy.name", site.policy if spec == SITE else spec)
        with progress_bar(spec) as told:
            compared, result = replayed(typed(document, "settings"), waits, told)
        if result.stopped:
            stopped = f"{result.policy} was stopped; nothing of it is shown"
            break
        backtests.append(compared)
        notes = slurm_site.told(notes, result.scene.cluster)
        notes.extend(note for note in result.scene.notes if note not in notes)
    shown = (
        [*spaced(list(tables(backtests, policies[: len(backtests)]))), "", verdict(backtests[0])] if backtests else []
    )
    if backtests:
        shown += [*missed(backtests[0]), *([f"site: {backtests[0].policy}"] if policies[0] == SITE else [])]
    return Answer([each.record() for each in backtests], shown, [f"note: {note}" for note in notes], stopped=stopped)


def recorded(experiment: Experiment) -> Mapping[str, int]:
    """Return how long each job of the trace really waited for its first start, by its name, in nanoseconds."""
    table = experiment.trace
    if not table.path:
        raise ExperimentError("a backtest needs a history: name a trace (headway jobs backtest TRACE …)")
    if str(table.load) != "1" or table.estimates != "trace":
        raise ExperimentError("a backtest replays the history as it was: trace.load and trace.estimates cannot be set")
    trace = traces.load(
        table.path, table.format, columns=table.map, strict=table.strict, skip_bad_rows=table.skip_bad_rows
    )
    if not trace.starts:
        raise TraceError(f"trace {table.path}: says of no job when it started: there is nothing to compare with")
    return {job.name: trace.starts[job.name] - job.submit for job in trace.jobs if job.name in trace.starts}


def replayed(
    experiment: Experiment, waits: Mapping[str, int], progress: Progress | None = None
) -> tuple[Backtest, RunResult]:
    """Return the history replayed through a policy, and its distance from what was recorded."""
    result = run(experiment, progress)
    ledger = Ledger(result.tape, result.scene.jobs, result.scene.cluster)
    return backtest(ledger, waits, result.policy), result

"""Replay a site's recorded jobs through a policy, and compare the starts with the recorded ones."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path

from headway.errors import ExperimentError, TraceError
from headway.files import write_whole
from headway.formats import toml
from headway.jobs.experiment.arrivals import arrivals, is_as_recorded, source
from headway.jobs.experiment.scene import JobsScene
from headway.jobs.metrics.backtest.errors import Backtest, backtest
from headway.jobs.metrics.backtest.verdict import Verdict, unjudged, verdict_of
from headway.jobs.metrics.ledger import Ledger
from headway.jobs.rules.eligibility.audit import has_terms
from headway.jobs.rules.limits.limit import ANY
from headway.jobs.show.terminal.backtest import errors_line, missed, reasons_table, tables, verdict_lines, waits_line
from headway.jobs.slurm.output import queue_samples
from headway.jobs.slurm.output.queue_samples import Sampled
from headway.jobs.slurm.site import policy as slurm_site
from headway.jobs.slurm.site.followed import concerns
from headway.jobs.tables.settings import Experiment
from headway.runs.answer import Answer, spaced
from headway.runs.domain import Progress, RunResult
from headway.runs.folder.exports import check_sheet
from headway.runs.play import run
from headway.runs.settings.files import typed
from headway.show.progress import progress_bar
from headway.units import counted

SITE = "site"
WITHOUT_CONFIG = "multifactor+conservative"


def answer(
    document: toml.Document,
    policies: Sequence[str],
    config: str | PathLike[str] | None,
    csv: str = "",
    squeue: str = "",
) -> Answer:
    """Replay the history of a document under each policy; ``site`` is the one that a slurm.conf describes.

    The verdict is about the first. With ``csv`` its table of jobs is written there; ``squeue`` is a file of samples
    of the queue, which tell what jobs waited for.
    """
    if csv:
        check_sheet(csv)
    site = slurm_site.read(fspath(config)) if config is not None else slurm_site.Site(WITHOUT_CONFIG)
    sampled = queue_samples.read(Path(squeue)) if squeue else None
    notes = list(site.notes)
    if config is None and SITE in policies:
        notes.append(f"without --config the site is taken for {WITHOUT_CONFIG} by default: --config slurm.conf tells")
    if sampled is not None and sampled.skipped:
        notes.append(f"{squeue}: {counted(sampled.skipped, 'line')} skipped: no samples")
    waits = recorded(typed(document, "settings"))  # refuses what is no history before anything runs
    backtests: list[Backtest] = []
    stopped = ""
    for spec in policies:
        toml.put(document, "policy.name", site.policy if spec == SITE else spec)  # notes on it were taken above
        with progress_bar(spec) as told:
            compared, result = replayed(typed(document, "settings"), told, sampled)
            compared = replace(compared, given=compared.given | {"settings"}) if config is not None else compared
        if result.stopped:
            stopped = f"{result.policy} was stopped; nothing of it is shown"
            break
        backtests.append(compared)
        scene = result.scene
        notes = slurm_site.told(notes, scene.cluster, scene.site)
        found = map(str, concerns(site.unread, scene.jobs, waits, scene.cluster.tenants))
        notes.extend(note for note in found if note not in notes)
        notes.extend(note for note in scene.notes if note not in notes)
    if not backtests:
        return Answer([], [], [f"note: {note}" for note in notes], stopped=stopped)
    return _answered(backtests, policies, notes, sampled, csv, stopped)


def _answered(
    backtests: Sequence[Backtest],
    policies: Sequence[str],
    notes: Sequence[str],
    sampled: Sampled | None,
    csv: str,
    stopped: str,
) -> Answer:
    first = backtests[0]
    shown = [*spaced(list(tables(backtests, policies[: len(backtests)]))), ""]
    shown += [] if sampled is None else [reasons_table(sampled.shares, sampled.samples), ""]
    shown += [errors_line(first), waits_line(), *missed(first)]
    shown += verdict_lines(verdict_of(first), sampled is None and len(first.groups["reason"]) > 1)
    shown += [f"site: {first.policy}"] if policies[0] == SITE else []
    more = {} if sampled is None else {"waiting_by_reason": sampled.shares}
    records = [
        {**each.record(), "verdict": verdict_of(each).record(), "caveats": list(notes), **more} for each in backtests
    ]
    said = [f"note: {note}" for note in notes]
    if csv:
        write_whole(Path(csv), first.table.write_csv(), ExperimentError, f"--csv {csv}")
        said.append(f"{csv}: {counted(first.table.height, 'job')} under {policies[0]}")
    return Answer(records, shown, said, stopped=stopped)


def recorded(experiment: Experiment) -> Mapping[str, int]:
    """Return how long each job of the trace really waited for its first start, by its name, in nanoseconds."""
    table = experiment.trace
    if not table.path:
        raise ExperimentError("a backtest needs a history: name a trace (headway jobs backtest TRACE …)")
    if not is_as_recorded(table.load) or table.estimates != "trace":
        raise ExperimentError("a backtest replays the history as it was: trace.load and trace.estimates cannot be set")
    made = arrivals(*source(table, 0), table.load, table.estimates, table.models, experiment.run.seed)
    if not made.waits:
        raise TraceError(f"trace {table.path}: says of no job when it started: there is nothing to compare with")
    return made.waits


def replayed(
    experiment: Experiment, progress: Progress | None = None, sampled: Sampled | None = None
) -> tuple[Backtest, RunResult]:
    """Return the history replayed through a policy, and its distance from what was recorded."""
    result = run(experiment, progress)
    ledger = Ledger(result.tape, result.scene.jobs, result.scene.cluster)
    return of_run(ledger, result.scene, result.policy, sampled), result


def of_run(ledger: Ledger, scene: JobsScene, policy: str, sampled: Sampled | None = None) -> Backtest:
    """Return how far the measured jobs of a run are from their recorded past; sampled reasons come before recorded."""
    past = scene.past
    waits = {job.name: wait for job, wait in zip(scene.jobs, past.waits, strict=False) if wait >= 0}
    reasons = {job.name: reason for job, reason in zip(scene.jobs, past.reasons, strict=False) if reason}
    reasons |= {} if sampled is None else sampled.reasons
    compared = backtest(ledger, waits, policy, scene.window(), reasons, past.calendar)
    limits = frozenset(rule.name.partition(" by LimitFactor")[0] for rule in scene.cluster.limits)
    return replace(compared, given=given_rules(scene), limits=limits)


def judgement(ledger: Ledger, scene: JobsScene, policy: str) -> Verdict:
    """Return how far to trust a run: that of its own past where the policy is the site's, else that nobody knows."""
    if not scene.past.has_starts:
        return unjudged("the log says of no job when it started, or the load was changed")
    if scene.past.changed:
        return unjudged(
            "rules of the site were changed for this run, and its past was under others; the same run without the "
            "change tells how far the simulation of the site is to be trusted"
        )
    if not scene.past.site:
        return unjudged(
            "it was not played under the site's own policy; headway jobs backtest with --config slurm.conf tells, "
            "or slurm:slurm.conf among the policies"
        )
    return verdict_of(of_run(ledger, scene, policy))


def given_rules(scene: JobsScene) -> frozenset[str]:
    """Return which rules of the site its files, or the experiment, told: of ``remedies.RULES``."""
    site = scene.site
    pairs = [pair for rule in scene.cluster.limits for pair in rule.where]
    limited = {value.partition(":")[0] if key == ANY else key for key, value in pairs}
    told = {
        "qos": site.qos or "qos" in limited,
        "association": site.associations or limited & {"account", "tenant", "user"},
        "partition": site.partitions,
        "usage": site.shares,
        "reservation": site.told("reservations"),
        "event": site.told("aways"),
        "transaction": site.told("changes"),
        "nodes": len({node.gpu_type for node in scene.cluster.nodes}) > 1,
        "settings": site.settings or scene.past.site,
        "throttle": has_terms(scene.jobs, "throttle"),
        "dependency": has_terms(scene.jobs, "after"),
        "eligible": scene.past.eligible,
        "licence": any(rule.licence for rule in scene.cluster.limits),
    }
    return frozenset(name for name, known in told.items() if known)

"""Play a stored run of a fleet again under changes, with the same requests, and say what changes.

Unlike a run of jobs it is played from its beginning: requests last seconds, and what a change of the fleet does shows
from the first one on. All changes are settings of the experiment, so the new run is one that can be kept, audited,
replayed and asked again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from headway.core.tape import Tape
from headway.errors import ExperimentError
from headway.fleet.experiment import initial
from headway.fleet.experiment.scene import FleetScene, with_decision_time, with_plans
from headway.fleet.metrics.difference import Side, difference
from headway.fleet.model.request import Request
from headway.fleet.scenarios import file as scenario_file
from headway.fleet.scenarios.file import Built
from headway.fleet.scenarios.limits import deadlines
from headway.fleet.scenarios.tables.settings import MOST_WORKERS, ServingExperiment, check, warmup_share
from headway.fleet.show.terminal.whatif import tables
from headway.fleet.traces.draw import chosen
from headway.jobs.tables.cluster import within
from headway.plugins import anchored
from headway.runs.answer import Answer, spaced
from headway.runs.domain import Progress, RunResult, StoredRun, with_table
from headway.runs.folder.folder import check_folder, claimed
from headway.runs.measured import numbers
from headway.runs.play import play
from headway.runs.registry import domain
from headway.runs.settings.changes import (
    check_writable,
    failures_of,
    given_changes,
    listed,
    overridden,
    said,
    with_failures,
    write_difference,
)
from headway.units import counted, format_duration

SETTABLE = (
    *("policy.name", "failures.", "workload.slo", "serving.workers", "serving.memory", "serving.start"),
    *("serving.control", "serving.push_interval", "serving.fidelity", "serving.profile", "serving.interference"),
    *("serving.programs.", "serving.controller", "serving.autoscale", "serving.startup", "serving.gpu_memory"),
)
LOADS = (Fraction(1, 1000), Fraction(1000))


@dataclass(frozen=True, slots=True)
class Plan:
    """A scene with the changes, and what they are."""

    scene: FleetScene
    told: tuple[str, ...]
    """What changes, a line each."""


def plan(scene: FleetScene, changes: Mapping[str, Any]) -> Plan:
    """Return the scene of a run with changes applied; the same requests, at other times where the load changes."""
    told: list[str] = []
    load = _load(changes.get("load"), told)
    experiment = check(_at_load(scene, _experiment(scene, changes, told), load))
    if experiment == scene.experiment:
        built = scene.built
    else:
        built = scenario_file.load(experiment)
        wanted = experiment.serving.workers
        if wanted is not None and len(built.fleet.workers) != wanted:
            raise ExperimentError(f"workers {wanted}: the scenario's own program makes {len(built.fleet.workers)}")
    requests = _requests(scene, experiment, built, load)
    if experiment != scene.experiment:
        built = initial.scaled(experiment, built, requests)
    made = replace(scene, experiment=experiment, built=built, requests=requests)
    made.policy().check_requests(requests, built.catalogue.graphs)  # what is wrong is said before anything runs
    made.faults()
    if experiment != scene.experiment:  # else the plans of the run hold, wherever they were searched
        made = with_plans(made)
    return Plan(with_decision_time(made), tuple(told))


def _experiment(scene: FleetScene, changes: Mapping[str, Any], told: list[str]) -> ServingExperiment:
    """Return the tables with what the flags change, and what was set key by key."""
    was = now = scene.experiment
    if "policy" in changes:
        now = with_table(now, "policy", name=anchored(str(changes["policy"]).strip()))
        before, after = scene.policy_name(), domain("fleet").policy_name(now)
        if before == after:
            now = was
        else:
            told.append(f"policy {after} instead of {before}")
    now = _with_workers(scene, now, changes, told)
    for name, table in (("memory", "serving"), ("start", "serving"), ("slo", "workload")):
        value: Any = changes.get(name)
        if value is None:
            continue
        value = _factor("--memory", value) if name == "memory" else str(value).strip()
        old = getattr(getattr(now, table), name)
        if value == old:
            continue
        now = with_table(now, table, **{name: value})
        words = {
            "memory": f"{value} times the scenario's GPU memory",
            "start": f"a {value} start",
            "slo": f"deadlines of {value}",
        }
        told.append(f"{words[name]} instead of {said(old)}" if old else words[name])
    now = with_failures(now, failures_of(changes.get("failures")), told, "workers")
    return overridden(now, listed(changes.get("set")), SETTABLE, told, "while the requests stay the same")


def _with_workers(
    scene: FleetScene, now: ServingExperiment, changes: Mapping[str, Any], told: list[str]
) -> ServingExperiment:
    """Return the tables with more or fewer workers; kinds keep their proportions."""
    have = count = len(scene.built.fleet.workers)
    for name, sign in (("add_workers", 1), ("remove_workers", -1)):
        if name in changes:
            flag = f"--{name.replace('_', '-')}"
            more = _whole(flag, changes[name])
            if sign < 0 and more >= count:
                raise ExperimentError(
                    f"{flag} {more}: the fleet has {counted(count, 'worker')}; at least one has to stay"
                )
            count += sign * more
    if count == have:
        return now
    within("workers", count, 1, MOST_WORKERS)
    told.append(f"{counted(count, 'worker')} instead of {have}")
    return with_table(now, "serving", workers=count)


def _whole(flag: str, value: Any) -> int:
    text = str(value).strip()
    if not text.isdecimal() or len(text) > len(str(MOST_WORKERS)) or not int(text):
        raise ExperimentError(f"{flag} {text[:40]!r} is not understood: write how many workers, like {flag} 1")
    return int(text)


def _factor(flag: str, value: Any) -> float:
    try:
        return float(str(value))
    except ValueError:
        raise ExperimentError(f"{flag} {str(value)[:40]!r} is not a number: write a factor, like {flag} 0.5") from None


def _load(value: Any, told: list[str]) -> Fraction:
    """Return how many times as fast requests arrive."""
    if value is None:
        return Fraction(1)
    try:
        load = Fraction(str(value).strip())
    except (ValueError, ZeroDivisionError):
        raise ExperimentError(f"--load {str(value)[:40]!r} is not a number: write a factor, like --load 2") from None
    if not LOADS[0] <= load <= LOADS[1]:
        raise ExperimentError(f"--load {str(value)[:40]}: must lie in 0.001 to 1000")
    if load != 1:
        told.append(f"requests arrive {str(value).strip()} times as fast")
    return load


def _at_load(scene: FleetScene, experiment: ServingExperiment, load: Fraction) -> ServingExperiment:
    """Return the tables with the rate of requests that arrive so many times as fast.

    A load of the fleet as it was becomes a rate too: of another fleet it would be another one.
    """
    by_load = experiment != scene.experiment and experiment.workload.load is not None
    if load == 1 and not by_load:
        return experiment
    rate = chosen(scene.experiment, scene.built, scene.requests).rate
    if rate is None:
        return experiment
    return with_table(experiment, "workload", rate=rate * float(load), load=None)


def _requests(scene: FleetScene, experiment: ServingExperiment, built: Built, load: Fraction) -> tuple[Request, ...]:
    """Return the same requests: at other times where the load changes, with other deadlines where these do.

    One that came in at a worker which is gone comes in at another one.
    """
    workers = len(built.fleet.workers)
    same_slo = experiment.workload.slo == scene.experiment.workload.slo
    if load == 1 and same_slo and workers >= len(scene.built.fleet.workers):
        return scene.requests
    limits = () if same_slo else deadlines(experiment, built)
    made = []
    for request in scene.requests:
        arrival = int(request.arrival / load)
        limit = max(0, request.deadline - request.arrival)
        if limits:
            limit = limits[min(request.class_id, len(limits) - 1)][request.graph]
        deadline = arrival + limit if limit else 0
        made.append(request._replace(arrival=arrival, deadline=deadline, ingress=request.ingress % workers))
    return tuple(made)


# --- the answer -----------------------------------------------------------------------------------------------------


def ask(
    stored: StoredRun,
    at: str,
    given: Mapping[str, Any],
    folder: Path | None = None,
    progress: Progress | None = None,
) -> Answer:
    """Play a run again under changes, and say what changes; with a folder, keep the new run there."""
    changes = given_changes(domain("fleet"), given)
    if at:
        raise ExperimentError(f"--at {at}: a run of a fleet is played again from its beginning; leave --at out")
    if folder is not None:
        check_folder(folder)
        check_writable(folder)
    planned = plan(stored.scene, changes)
    with claimed(folder):
        before = stored.tape
        if not stored.complete:
            unchanged = play(stored.scene, None, progress)
            if unchanged.stopped:
                return _stopped(unchanged, None)
            before = unchanged.tape
        scene = planned.scene
        experiment = with_table(scene.experiment, "run", out="" if folder is None else str(folder))
        after = play(replace(scene, experiment=experiment), folder, progress)
        if after.stopped:
            return _stopped(after, folder)
        result = _result(stored, planned, before, after)
        if folder is not None:
            numbers(after)  # and into the folder with them
            write_difference(folder, result)
    told = "; ".join(planned.told) or "nothing changes"
    sooner = f"{result['better']:,} of {counted(result['completed'], 'request')} answered both ways end sooner"
    shown = [f"From the beginning: {told}", f"{sooner}, {result['worse']:,} later", "", *spaced(tables(result))]
    kept = [] if folder is None else [f"{folder}: the whole run"]
    return Answer(result, shown, [*_notes(stored, planned, before, after), *kept])


def _stopped(result: RunResult, folder: Path | None) -> Answer:
    kept = "nothing is kept" if folder is None else f"the tape is in {folder}"
    return Answer(None, (), stopped=f"stopped at {format_duration(result.reached)}; {kept}")


def _notes(stored: StoredRun, planned: Plan, before: Tape, after: RunResult) -> list[str]:
    notes = []
    if not planned.told:
        same = "the same" if after.tape.digest == before.digest else "NOT the same"
        notes.append(f"note: nothing was to change: the tape is {same}, row for row")
    if not stored.complete:
        notes.append("note: the run was cut short; what it is compared with is the whole of it, played again")
    if planned.scene.experiment.failures != stored.scene.experiment.failures:
        notes.append("note: failures are drawn: the difference is that of one draw")
    return notes


def _result(stored: StoredRun, planned: Plan, before: Tape, after: RunResult) -> dict[str, Any]:
    scene: FleetScene = stored.scene
    warmup = warmup_share(scene.experiment)
    sides = [
        Side(each.built.catalogue, each.built.fleet, each.requests, tape, each.latency(), warmup)
        for each, tape in ((scene, before), (planned.scene, after.tape))
    ]
    return {
        "run": str(stored.folder),
        "at_s": 0.0,
        "policy_before": scene.policy_name(),
        "policy_after": after.policy,
        "changes": list(planned.told),
        **difference(*sides),
        "digest": after.tape.digest,
    }

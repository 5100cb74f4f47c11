"""Runs of a fleet from the command line: the same commands, for scenarios of requests instead of traces of jobs."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import typer

from headway import experiment
from headway.cli import STOPPED, console
from headway.cli.blame import blamed
from headway.cli.flags import BOTH_FLAGS, FLAGS, SERVING_FLAGS, measure_settings, split_failures, split_policies
from headway.cli.pages import Place
from headway.cli.progress import Board
from headway.cli.runs import apart, note_order
from headway.errors import ExperimentError, TapeError, unknown_name
from headway.experiment import serving as wiring
from headway.experiment.folder import check_output, unproven
from headway.experiment.pool import LocalPool
from headway.experiment.serving_measured import (
    ServingOutcome,
    against,
    baseline_of,
    measured,
    replicated,
    seeded,
)
from headway.files import write_whole
from headway.formats import toml
from headway.formats.plugins import as_named
from headway.formats.serving_settings import ServingExperiment
from headway.report import serving_tables
from headway.report.export import Written, write_pieces
from headway.report.serving_export import write_tables
from headway.report.serving_page import Shown, build
from headway.report.serving_perfetto import trace_events
from headway.report.serving_story import story as tell
from headway.report.terminal import width_of
from headway.serving.audit import audit as audit_tape
from headway.serving.replay import first_difference, replay_on

Named = tuple[str, ServingExperiment]
_NOT_SERVING = {*FLAGS, "by", "picture", "measure_jobs"} - {*BOTH_FLAGS}


# --- commands ---------------------------------------------------------------------------------------------------


def simulate(flags: Mapping[str, Any]) -> None:
    """``headway simulate --scenario …``."""
    document = document_of(flags)
    play_out([("", toml.typed(document, ServingExperiment, "flags"))], flags, single=True)


def compare(flags: Mapping[str, Any]) -> None:
    """``headway compare --scenario …``."""
    document = document_of(flags)
    experiments = []
    for spec in split_policies(str(flags["policies"]), "hash,compass,headway"):
        toml.put(document, "policy.name", spec)
        experiments.append(("", toml.typed(document, ServingExperiment, "flags")))
    apart_ones = apart(experiments, [each.policy.name for _, each in experiments])
    play_out(apart_ones, flags, int(flags["processes"]), baseline=baseline_of(experiments))


def is_serving_file(path: str) -> bool:
    """Whether an experiment file is about a fleet."""
    return "serving" in toml.read(Path(path))


def run_file(path: str, flags: Mapping[str, Any]) -> None:
    """``headway run EXPERIMENT.toml`` with a table ``[serving]``."""
    document = toml.read(Path(path))
    for assignment in flags.get("overrides") or ():
        toml.override(document, assignment)
    for key, value in measure_settings(flags):
        toml.put(document, key, value)
    if flags.get("out") is not None:
        toml.put(document, "run.out", flags["out"])
    experiments = list(variants(document, path))
    single = len(experiments) == 1
    against_which = 0 if single else baseline_of(experiments)
    play_out(apart(experiments), flags, int(flags["processes"]), single=single, baseline=against_which)


def variants(document: toml.Document, where: str) -> Iterator[Named]:
    """A document as experiments: itself, or itself with the keys that each variant sets."""
    whole = toml.typed(document, ServingExperiment, where)
    if not whole.variants:
        yield "", whole
    for variant in whole.variants:
        changed: toml.Document = msgspec.convert(msgspec.to_builtins(document), dict[str, Any])
        del changed["variants"]
        for key, value in toml.leaves(variant.set):
            toml.put(changed, key, value)
        yield variant.name, toml.typed(changed, ServingExperiment, f"{where}, variant {variant.name!r}")


def document_of(flags: Mapping[str, Any]) -> toml.Document:
    """The document that flags stand for; ``--set`` comes last and wins."""
    refused = [flag for flag in _NOT_SERVING if flags.get(flag) not in (None, False)]
    if refused:
        raise ExperimentError(
            f"{_dashed(sorted(refused)[0])} is about jobs of a trace: it means nothing with --scenario"
        )
    document: toml.Document = {}
    for flag, key in {**SERVING_FLAGS, **BOTH_FLAGS}.items():
        if flags.get(flag) == "":
            raise ExperimentError(f"{_dashed(flag)} is empty: give it a value, or leave it out")
        if flags.get(flag) is not None:
            toml.put(document, key, flags[flag])
    for key, value in measure_settings(flags):
        toml.put(document, key, value)
    if flags.get("failures") is not None:
        for name, value in split_failures(str(flags["failures"]), ("mtbf", "repair", "every")).items():
            toml.put(document, f"failures.{name}", value)
    for assignment in flags.get("overrides") or ():
        toml.override(document, assignment)
    return document


def refuse_serving_flags(flags: Mapping[str, Any]) -> None:
    """What only a fleet has means nothing for jobs of a trace."""
    for flag in SERVING_FLAGS:
        if flags.get(flag) is not None:
            raise ExperimentError(f"{_dashed(flag)} needs --scenario: it is about requests to a fleet")


def _dashed(flag: str) -> str:
    return f"--{flag.replace('_', '-')}"


# --- what comes of some runs --------------------------------------------------------------------------------------


def play_out(
    experiments: Sequence[Named],
    flags: Mapping[str, Any],
    processes: int = 1,
    *,
    single: bool = False,
    baseline: int = 0,
) -> None:
    """Run all of them and show what came out; a run that was stopped ends the program with 130."""
    report = flags.get("report")
    if report is not None and Path(report).suffix.lower() not in (".html", ".htm"):
        raise ExperimentError(f"--report {report}: the name must end in .html")
    if report is not None:
        check_output(Path(report), "--report", tuple(Path(each.run.out) for _, each in experiments if each.run.out))
    with TemporaryDirectory(prefix="headway-", ignore_cleanup_errors=True) as place:
        kept = all(each.run.out for _, each in experiments)
        if report is not None and not kept:
            moved = [(label, _into(each, place)) for label, each in experiments]
            experiments = apart(moved, [label or each.policy.name for label, each in moved])
        ended, stopped = _ended(experiments, processes)
        rows = [outcome.row for outcome in ended] if single or baseline >= len(ended) else against(ended, baseline)
        if flags.get("as_json") and (rows or not single):
            console.print_json(rows[0] if single else rows)
        elif rows:
            show(rows)
        for note in dict.fromkeys(note for outcome in ended for note in outcome.notes):
            console.note(f"note: {note}")
        if kept and len(experiments) > 1 and ended:
            note_order(experiments)
        if report is not None and not stopped:
            write_report(
                [Path(one.run.out) for _, each in experiments for one in seeded(each)[:1]],
                Path(report),
                baseline,
                trust=True,
                flag="--report",
            )
    if stopped:
        console.note(stopped)
        sys.exit(STOPPED)


def _into(each: ServingExperiment, place: str) -> ServingExperiment:
    return msgspec.structs.replace(each, run=msgspec.structs.replace(each.run, out=place))


def show(rows: Sequence[Mapping[str, Any]]) -> None:
    """The tables: of all runs, and of the graphs of one."""
    narrow = sys.stdout.isatty()
    fitted = serving_tables.fitting(rows, console.out().width) if narrow else (serving_tables.comparison(rows), 0)
    table, left_out = fitted
    console.out(width_of(table)).print(table)
    if left_out:
        columns = "1 column does" if left_out == 1 else f"{left_out} columns do"
        console.note(f"note: {columns} not fit: a wider terminal or --json shows {'it' if left_out == 1 else 'them'}")
    if len(rows) == 1 and len(rows[0].get("graphs", ())) > 1:
        console.out().print("", serving_tables.graphs(rows[0]))


def _task(task: Named, progress: experiment.Progress | None = None) -> ServingOutcome:
    try:
        return measured(task[1], task[0], progress)
    except BaseException as problem:
        if (line := blamed(problem)) is None:
            raise
        raise ExperimentError(line) from problem  # here: no traceback comes back from another process


def _ended(experiments: Sequence[Named], processes: int) -> tuple[list[ServingOutcome], str]:
    """The outcome of each experiment, all its seeds together, in their order; and how far one got that was stopped."""
    runs = [(number, label, each) for number, (label, one) in enumerate(experiments) for each in seeded(one)]
    found: list[list[tuple[int, ServingOutcome]]] = [[] for _ in experiments]
    stopped = ""
    names = [f"{label or each.policy.name}, seed {each.run.seed}" for _, label, each in runs]
    with Board(len(runs)) as board:
        for index, outcome in _played([(label, each) for _, label, each in runs], names, board, processes):
            if outcome.stopped:
                stopped = outcome.stopped
                break
            found[runs[index][0]].append((index, outcome))
    whole = []
    for (_, one), outcomes in zip(experiments, found, strict=True):
        if len(outcomes) < len(seeded(one)):
            break
        whole.append(replicated(one, [outcome for _, outcome in sorted(outcomes, key=lambda pair: pair[0])]))
    return whole, stopped


def _played(
    tasks: Sequence[Named], names: Sequence[str], board: Board, processes: int
) -> Iterator[tuple[int, ServingOutcome]]:
    if processes <= 1 or len(tasks) == 1:
        for number, task in enumerate(tasks):
            outcome = _task(task, board.teller(number, names[number]))
            board.ended(number)
            yield number, outcome
        return
    pool = LocalPool(min(processes, len(tasks)))
    told = (lambda task, far: board.tell(task, names[task], far)) if board.shown else None
    with closing(pool.run(tasks, _task, told)) as ends:
        for done in ends:
            board.ended(done.task)
            if done.problem is not None:
                raise done.problem
            if done.stopped:
                yield done.task, ServingOutcome({}, (), f"{names[done.task]} was stopped before it began")
            else:
                yield done.task, done.result


# --- one run that was kept ----------------------------------------------------------------------------------------


def opened(folder: str | Path, checked: str = "", *, trust: bool = False) -> wiring.StoredServing:
    """A run of which there is something to look at."""
    found = wiring.open_run(folder, trust=trust)
    if not len(found.tape):
        raise TapeError(f"run folder {folder}: the tape holds no step yet")
    if checked and not found.complete:
        console.note(f"note: the run was cut short after {len(found.tape):,} rows; {checked}")
    return found


def audit(folder: str, trust: bool) -> None:
    """``headway audit`` of a fleet's run."""
    found = opened(folder, "what is there was checked", trust=trust)
    built = found.scene.built
    findings = audit_tape(built.catalogue, built.fleet, found.scene.requests, found.tape, complete=found.complete)
    for finding in findings[:20]:
        console.note(str(finding))
    if findings:
        console.note(f"{len(findings):,} findings in {len(found.tape):,} rows")
        raise typer.Exit(1)
    line = f"nothing found in {len(found.tape):,} rows, digest {found.tape.digest}"
    console.say(line)


def replay(folder: str, trust: bool) -> None:
    """``headway replay`` of a fleet's run."""
    found = opened(folder, "what is there was checked", trust=trust)
    state, policy = found.scene.state(), found.scene.policy()
    policy.bind(state)
    with unproven(found.folder, found.result):
        again = replay_on(state, found.scene.requests, found.tape, policy, complete=found.complete)
    if (difference := first_difference(found.tape, again)) is not None:
        console.note(f"different: {difference}")
        raise typer.Exit(1)
    console.say(f"identical: {len(again):,} rows, digest {again.digest}")


def story(folder: str, request: str, as_json: bool, trust: bool) -> None:
    """``headway story`` of a request."""
    found = opened(folder, trust=trust)
    count = len(found.scene.requests)
    if not request.isdecimal() or int(request) >= count:
        raise TapeError(f"request {request!r} is not in this run: its {count:,} requests go from 0 to {count - 1}")
    scene = found.scene
    with unproven(found.folder, found.result):
        told = tell(scene.built.catalogue, scene.built.fleet, scene.requests, found.tape, int(request))
    if as_json:
        console.print_json(told.record())
    else:
        console.say(*told.lines())


def write_report(
    folders: Sequence[Path], target: Path, baseline: int = 0, title: str = "", *, trust: bool = False, flag: str = "-o"
) -> None:
    """One page of some runs."""
    shown = []
    for folder in folders:
        found = opened(folder, trust=trust)
        if not found.result:
            raise TapeError(f"run folder {folder}: the run was killed before it had numbers; story and export read it")
        scene = found.scene
        shown.append(Shown(found.result, scene.built.catalogue, scene.built.fleet, scene.requests, found.tape))
    write_whole(target, build(shown, baseline, title), ExperimentError, f"{flag} {target}")
    console.note(f"report: {target}")


def position(places: Sequence[Place], baseline: str | None, trust: bool = False) -> int:
    """Which of some runs the others are measured against, by its folder's name or its policy; the first if not said."""
    if baseline is None:
        return 0
    names = [place.folder.name for place in places]
    for index, place in enumerate(places):
        named = wiring.open_run(place.folder, trust=trust).scene.experiment.policy.name
        if baseline in (place.folder.name, place.shown, as_named(named)):
            return index
    raise ExperimentError(unknown_name("baseline", baseline, names))


def export(folder: str, trace: Path | None, targets: Mapping[str, Path], trust: bool) -> list[Written]:
    """``headway export`` of a fleet's run."""
    found = opened(folder, "what is there is exported", trust=trust)
    scene = found.scene
    what = (scene.built.catalogue, scene.built.fleet, scene.requests, found.tape)
    made = []
    with unproven(found.folder, found.result):
        if trace is not None:
            made.append(write_pieces(trace, trace_events(*what, title=found.folder.name)))
        for kind, tables in targets.items():
            made += write_tables(*what, tables, kind)
    return made

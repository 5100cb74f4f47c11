"""Running one or several experiments from the command line: folders, seeds, processes, progress."""

import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from headway import experiment
from headway.cli.blame import blamed
from headway.cli.progress import Board
from headway.errors import ExperimentError, TapeError
from headway.experiment.folder import check_folder
from headway.experiment.measured import Outcome, measured, replicated, seeded
from headway.experiment.pool import LocalPool
from headway.experiment.sweep import Record
from headway.files import write_whole
from headway.formats import toml
from headway.formats.serving_settings import ServingExperiment
from headway.formats.settings import Experiment
from headway.live.tasks import Done, Far
from headway.metrics.compare import batches

AnyExperiment = TypeVar("AnyExperiment", Experiment, ServingExperiment)
INDEX_NAME = "runs.json"
"""Beside the folders of runs that were made together: their names in the order that was asked for."""


def measure(each: Experiment, label: str = "", progress: experiment.Progress | None = None) -> Outcome:
    """Run an experiment and take its numbers; with a folder they are stored there too."""
    try:
        return measured(each, label, progress)
    except BaseException as problem:
        if (line := blamed(problem)) is None:
            raise
        raise ExperimentError(line) from problem  # here: no traceback comes back from another process


def measure_task(task: tuple[str, Experiment], progress: experiment.Progress | None = None) -> Outcome:
    """The same for a pool of processes."""
    label, each = task
    return measure(each, label, progress)


def run_cell(each: Experiment, progress: experiment.Progress | None) -> Record | None:
    """One cell of a sweep, in whatever process; None when it was stopped before its end."""
    outcome = measure(each, "", progress)
    if outcome.stopped:
        return None
    assert outcome.sample is not None  # it is one run
    kept = {"batches": batches(outcome.sample), "measured": outcome.sample.digest}
    return {"row": outcome.row, **kept, "notes": list(outcome.notes), "error": ""}


def under_each(document: toml.Document, specs: Sequence[str]) -> list[tuple[str, Experiment]]:
    """The same experiment under each policy, each with its own folder."""
    experiments = []
    for spec in specs:
        toml.put(document, "policy.name", spec)
        experiments.append(("", toml.typed(document, Experiment, "flags")))
    return apart(experiments, [e.policy.name for _, e in experiments])


def apart(experiments: list[tuple[str, AnyExperiment]], names: Sequence[str] = ()) -> list[tuple[str, AnyExperiment]]:
    """Runs that would share a folder get one each below it."""
    out = experiments[0][1].run.out
    if len(experiments) == 1 or not out:
        return experiments
    check_folder(Path(out))
    apart = []
    taken: set[str] = set()
    for index, (label, each) in enumerate(experiments):
        name = re.sub(r"[^\w.+=-]+", "_", label or names[index]).strip("._") or "run"
        name = name if name not in taken else f"{name}-{index + 1}"
        taken.add(name)
        folder = str(Path(out) / name)
        apart.append((label, msgspec.structs.replace(each, run=msgspec.structs.replace(each.run, out=folder))))
    return apart


def note_order(experiments: Sequence[tuple[str, AnyExperiment]]) -> None:
    """Say beside the folders of several runs in which order they were asked for; a report keeps it."""
    folders = [Path(each.run.out) for _, each in experiments if each.run.out]
    if len(folders) > 1:
        with suppress(TapeError):  # without it a report goes by their names
            index = msgspec.json.encode({"runs": [folder.name for folder in folders]})
            write_whole(folders[0].parent / INDEX_NAME, msgspec.json.format(index) + b"\n")


def noted_order(folder: Path) -> list[str]:
    """The names of runs as they were asked for; empty where nothing is said about it."""
    try:
        index = msgspec.json.decode((folder / INDEX_NAME).read_bytes(), type=dict[str, list[str]])
    except (OSError, msgspec.DecodeError):
        return []
    return index.get("runs", [])


def play(experiments: Sequence[tuple[str, Experiment]], processes: int = 1) -> Iterator[Outcome]:
    """The outcome of each experiment, all its seeds together, in their order; the last one may have been stopped."""
    runs = [(number, label, each) for number, (label, one) in enumerate(experiments) for each in seeded(one)]
    if len(runs) > len(experiments):
        runs.sort(key=lambda run: run[2].run.seed)  # a workload that is drawn serves all policies
    left = [sum(run[0] == number for run in runs) for number in range(len(experiments))]
    ended: list[list[tuple[int, Outcome]]] = [[] for _ in experiments]
    following = 0
    with closing(_played([(label, each) for _, label, each in runs], processes)) as outcomes:
        for run, outcome in outcomes:
            number = runs[run][0]
            ended[number].append((run, outcome))
            left[number] -= 1
            if outcome.stopped:
                yield outcome
                return
            while following < len(experiments) and not left[following]:
                in_order = [each for _, each in sorted(ended[following], key=lambda pair: pair[0])]
                yield replicated(experiments[following][1], in_order)
                following += 1


def _played(tasks: list[tuple[str, Experiment]], processes: int) -> Generator[tuple[int, Outcome], None, None]:
    """Each run as it ends; of those that were stopped only the first that got anywhere."""
    names = [label or each.policy.name for label, each in tasks]
    if any(each.measure.seeds > 1 for _, each in tasks):
        names = [f"{name}, seed {each.run.seed}" for name, (_, each) in zip(names, tasks, strict=True)]
    with Board(len(tasks)) as board:
        if processes <= 1 or len(tasks) == 1:
            for number, task in enumerate(tasks):
                outcome = measure_task(task, board.teller(number, names[number]))
                board.ended(number)
                yield number, outcome
            return

        def told(task: int, far: Far | None) -> None:
            board.tell(task, names[task], far)

        pool = LocalPool(min(processes, len(tasks)))
        stopped: list[tuple[int, Outcome]] = []
        with closing(pool.run(tasks, measure_task, told if board.shown else None)) as ends:
            for done in ends:
                board.ended(done.task)
                outcome = _outcome(done, names)
                if outcome.stopped:
                    stopped.append((done.task, outcome))
                else:
                    yield done.task, outcome
        yield from stopped[:1]


def _outcome(done: Done, names: Sequence[str]) -> Outcome:
    if done.problem is not None:
        raise done.problem
    if done.stopped:
        return Outcome({}, (), f"{names[done.task]} was stopped before it began")
    outcome: Outcome = done.result
    return outcome

"""Run several experiments: folders, seeds, processes and progress; then compare their rows with a baseline."""

import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path

import msgspec

from headway.core.tasks import Done, Far
from headway.runs.blame import own_code
from headway.runs.domain import Outcome, Progress
from headway.runs.folder.folder import check_folder
from headway.runs.measured import measured, replicated, seeded, with_run
from headway.runs.settings.files import Named
from headway.runs.sweep.measurements import Known, with_measured
from headway.runs.sweep.pool import LocalPool
from headway.show.progress import Board

INDEX_NAME = "runs.json"
"""Beside the folders of runs that were made together: their names in the order that was asked for."""


def measure(task: Named, progress: Progress | None = None) -> Outcome:
    """Run an experiment and take its numbers; what a user's own code raises is one line."""
    label, experiment = task
    with own_code():  # here: no traceback comes back from another process
        return measured(experiment, label, progress)


def with_own_folders(experiments: Sequence[Named]) -> list[Named]:
    """Give runs that would share a folder one each below it."""
    out = experiments[0][1].run.out
    if len(experiments) == 1 or not out:
        return list(experiments)
    check_folder(Path(out))
    named: list[Named] = []
    taken: set[str] = set()
    for index, (label, each) in enumerate(experiments):
        name = re.sub(r"[^\w.+=-]+", "_", label or each.policy.name).strip("._") or "run"
        name = name if name not in taken else f"{name}-{index + 1}"
        taken.add(name)
        named.append((label, with_run(each, out=str(Path(out) / name))))
    return named


def play(experiments: Sequence[Named], processes: int = 1) -> Iterator[Outcome]:
    """Yield the outcome of each experiment, all its seeds together, in order; the last one may have been stopped."""
    runs = []
    known: Known = {}
    for number, (label, one) in enumerate(experiments):
        seeds = seeded(one)
        if len(seeds) > 1:
            seeds = seeded(with_measured(one, known))
            if one.run.out:
                check_folder(Path(one.run.out))
        runs += [(number, label, each) for each in seeds]
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


def _played(tasks: list[Named], processes: int) -> Generator[tuple[int, Outcome], None, None]:
    """Yield each run as it ends; of those that were stopped only the first that got anywhere."""
    names = [label or each.policy.name for label, each in tasks]
    if any(each.measure.seeds > 1 for _, each in tasks):
        names = [f"{name}, seed {each.run.seed}" for name, (_, each) in zip(names, tasks, strict=True)]
    with Board(len(tasks)) as board:
        if processes <= 1 or len(tasks) == 1:
            for number, task in enumerate(tasks):
                outcome = measure(task, board.teller(number, names[number]))
                board.ended(number)
                yield number, outcome
            return

        def told(task: int, far: Far | None) -> None:
            board.tell(task, names[task], far)

        pool = LocalPool(min(processes, len(tasks)))
        stopped: list[tuple[int, Outcome]] = []
        with closing(pool.run(tasks, measure, told if board.shown else None)) as ends:
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


# --- which runs belong together ---------------------------------------------------------------------------------


def write_order(experiments: Sequence[Named]) -> None:
    """Write beside the folders of several runs in which order they were asked for; a report keeps it."""
    folders = [Path(each.run.out) for _, each in experiments if each.run.out]
    if len(folders) > 1:
        with suppress(OSError):  # without it a report goes by their names
            index = msgspec.json.encode({"runs": [folder.name for folder in folders]})
            (folders[0].parent / INDEX_NAME).write_bytes(msgspec.json.format(index) + b"\n")


def read_order(folder: Path) -> list[str]:
    """Return the names of runs as they were asked for; empty where nothing is said about it."""
    try:
        index = msgspec.json.decode((folder / INDEX_NAME).read_bytes(), type=dict[str, list[str]])
    except (OSError, msgspec.DecodeError):
        return []
    return index.get("runs", [])

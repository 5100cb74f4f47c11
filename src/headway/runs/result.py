"""Hold the results of runs for Python users: numbers, tables, figures, and the questions that can be asked."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from shutil import copytree, rmtree
from tempfile import mkdtemp
from typing import Any
from weakref import finalize

from headway.core.replay import first_difference
from headway.errors import ExperimentError, NoSuchRunError, TapeError, unknown_name
from headway.files import write_whole
from headway.formats import toml
from headway.plugins import GIVEN
from headway.runs.answer import Answer, Early
from headway.runs.blame import own_code
from headway.runs.distance import distance
from headway.runs.domain import Outcome, Row, StoredRun, View
from headway.runs.folder.exports import Target, export
from headway.runs.folder.folder import (
    EXPERIMENT_NAME,
    claimed,
    explains_corrupt_tape,
    is_complete,
    open_run,
    read,
    whole_or_nothing,
)
from headway.runs.folder.pages import Place, check_target, opened, page_of, shown_as
from headway.runs.measured import against, baseline_of, seeded, with_run
from headway.runs.registry import domain_of
from headway.runs.settings.files import Named
from headway.runs.settings.python_input import moment, path as located, policy_name, whole
from headway.runs.several import play, with_own_folders, write_order
from headway.show import frames
from headway.show.names import shortened
from headway.show.progress import share_bar
from headway.units import counted

_MOST_NAMED = 3
"""Folders of runs, in a line."""


def silent(_line: str) -> None:
    """Tell nobody."""


class Kept:
    """A folder that is removed once nobody holds this any more."""

    def __init__(self) -> None:
        self.folder = Path(mkdtemp(prefix="headway-"))
        finalize(self, rmtree, self.folder, ignore_errors=True)


class Tabled(ABC):
    """What a run and a comparison have alike: tables by name, figures and a page; a comparison's hold all its runs."""

    baseline: int = 0
    """The run that others are measured against, by its position."""
    _trust: bool = True

    @property
    @abstractmethod
    def view(self) -> View:
        """Return what can be shown of its scale."""

    @property
    @abstractmethod
    def places(self) -> Sequence[Place]:
        """Return the folders of each run, where they are kept."""

    @abstractmethod
    def table(self, name: str) -> Any:
        """Return a table as a polars frame; that of a comparison has a column for the policy."""

    def jobs(self) -> Any:
        """Return one row a job."""
        return self.table("jobs")

    def tenants(self) -> Any:
        """Return one row a tenant."""
        return self.table("tenants")

    def timeline(self) -> Any:
        """Return what was in use and waiting, over time."""
        return self.table("timeline")

    def requests(self) -> Any:
        """Return one row a request."""
        return self.table("requests")

    def figure(self, name: str) -> Any:
        """Return one of the figures of its page, for plotly."""
        made = self._figures()
        if name not in made:
            raise ExperimentError(unknown_name("figure", name, made))
        return frames.figure(made[name]())

    def report(self, path: str | Path, title: str = "") -> Path:
        """Make a page of it."""
        target = located(path, "path")
        check_target(target, False)
        with share_bar("report") as tell:
            text = page_of(self.places, tell, silent, baseline=self.baseline, title=title, trust=self._trust)
            write_whole(target, text, ExperimentError, f"-o {target}")
        return target

    def _figures(self) -> Mapping[str, Callable[[], dict[str, Any]]]:
        shown = opened(self.places, lambda _what, _share: None, silent, trust=self._trust)
        return self.view.figures(shown, self.baseline)


class Run(Tabled):
    """One run that is over: what it says, and what can be asked of it."""

    def __init__(
        self,
        stored: StoredRun,
        *,
        trust: bool = False,
        row: Row | None = None,
        notes: Sequence[str] = (),
        seeds: Sequence[Path] = (),
        kept: object = None,
    ) -> None:
        self.stored = stored
        self.folder = stored.folder
        """Where it lies."""
        self.row: Row = stored.result if row is None else row
        """Its numbers, over all seeds where it has several; empty for a run that was killed."""
        self.notes = list(notes)
        """What a reader of its numbers should know."""
        self._trust = trust
        self._seeds = tuple(seeds)
        self._kept = kept
        """Keeps a folder that goes with the object."""

    @property
    def places(self) -> Sequence[Place]:
        """Return its folder, and those of its seeds."""
        return (Place(self.folder, "", self._seeds),)

    @property
    def view(self) -> View:
        """Return what can be shown of its scale."""
        return domain_of(self.stored.scene.experiment).view

    def story(self, subject: Any, *, whole: bool = False) -> Answer:
        """Tell what happened to one job, request or program; ``whole``: every stretch of a long wait of a job."""
        with own_code(), explains_corrupt_tape(self.folder, self.stored.result):
            told = self.view.story(self.stored, str(subject))
        return Answer(told.record(), getattr(told, "all_lines", told.lines)() if whole else told.lines())

    def distance(self, other: "Run | None" = None) -> Answer:
        """Say how far another run of the same workload is from this one; without another a live run's simulation."""
        with own_code():
            return distance(self.stored, None if other is None else other.stored)

    def explain(self, subject: Any = None, at: Any = None, draws: int | None = None, *, early: Early = None) -> Answer:
        """Say why a job does not run at a time and when to expect its start, or why a request of a fleet was late.

        A time is text, ``2h``, or a number of seconds. Of a fleet without a request: what made late requests late.
        ``early`` is told the first lines, causes and remedies, before the expected start is worked out.
        """
        at = None if at is None else moment(at)
        if draws:
            whole(draws, "draws")
        with own_code():
            told = self.view.explain(self.stored, "" if subject is None else str(subject), at, draws, early)
        return Answer(told.record(), list(told.lines()))

    def whatif(self, at: Any = "", *, folder: str | Path | None = None, **changes: Any) -> Answer:
        """Continue a run of jobs from a moment of it under changes, or play a run of a fleet again; say who gains.

        The moment is text, ``2h`` or ``50%``, or a number of seconds; a fleet needs none.
        """
        place = None if folder is None else located(folder, "folder")
        if "policy" in changes:
            changes["policy"] = policy_name(changes["policy"])
        if isinstance(own := changes.get("set"), Mapping):
            changes["set"] = [f"{key}={value}" for key, value in own.items()]
        with own_code():
            answer = self.view.whatif(self.stored, moment(at), place, changes)
        if answer.stopped:
            raise KeyboardInterrupt(answer.stopped)
        return answer

    def audit(self) -> list[Any]:
        """Check the tape against every rule with a second set of books; return what is wrong."""
        return list(self.stored.scene.audit(self.stored.tape, complete=self.stored.complete))

    def replay(self) -> str | None:
        """Ask the policy again, event by event; return where it decides otherwise, None where it never does."""
        scene = self.stored.scene
        with own_code(), explains_corrupt_tape(self.folder, self.stored.result):
            again = scene.replay(self.stored.tape, complete=self.stored.complete)
        return first_difference(self.stored.tape, again, *scene.row_words())

    def tables(self) -> list[str]:
        """Return the names of its tables."""
        return list(self.view.tables(self.stored))

    def table(self, name: str) -> Any:
        """Return one of its tables as a polars frame."""
        made = self.view.tables(self.stored)
        if name not in made:
            raise ExperimentError(unknown_name("table", name, made))
        return made[name]()

    def export(
        self, *, perfetto: Target = None, parquet: Target = None, csv: Target = None, force: bool = False
    ) -> list[Any]:
        """Write it for other programs: a trace for Perfetto into a file, its tables into folders; return the files."""
        return export(self.stored, perfetto, parquet, csv, force=force)

    def save(self, folder: str | Path) -> "Run":
        """Copy it to a folder of its own, and return it from there; of several seeds the first."""
        target = located(folder, "folder")
        with claimed(target), whole_or_nothing(target):
            copytree(self.folder, target, dirs_exist_ok=True)
            document = toml.read(target / EXPERIMENT_NAME)
            toml.put(document, "run.out", str(target))
            write_whole(target / EXPERIMENT_NAME, toml.write(document))
        return Run(open_run(target, trust=self._trust), trust=self._trust, notes=self.notes)

    def __repr__(self) -> str:
        return _text(self.view, [self.row], self.notes)

    def _repr_html_(self) -> str:
        return frames.html(repr(self))


class Comparison(Tabled):
    """Several runs over the same work: their rows against a baseline, and each of them."""

    def __init__(
        self,
        experiments: Sequence[Named],
        outcomes: Sequence[Outcome],
        *,
        baseline: int = 0,
        single: bool = False,
        stopped: str = "",
        kept: object = None,
    ) -> None:
        self.experiments, self.outcomes, self.baseline = list(experiments), list(outcomes), baseline
        self.single, self.stopped = single, stopped
        self._kept = kept

    @property
    def view(self) -> View:
        """Return what can be shown of their scale."""
        return domain_of(self.experiments[0][1]).view

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """Return the numbers of each run; of several, with their change against the baseline."""
        if self.single or self.baseline >= len(self.outcomes):
            return [outcome.row for outcome in self.outcomes]
        return against(self.outcomes, self.baseline, self.view)

    @property
    def names(self) -> list[str]:
        """Return what each run is called in short."""
        return shortened([str(row.get("variant") or row["policy"]) for row in self.rows])

    @cached_property
    def places(self) -> list[Place]:
        """Return the folders of each run, where they are kept."""
        runs = self.experiments
        if not all(each.run.out for _, each in runs):
            raise ExperimentError("these runs were not kept: give out=FOLDER, or --out")
        root = Path(runs[0][1].run.out) if len(runs) == 1 else Path(runs[0][1].run.out).parent
        seeds = [[Path(each.run.out) for each in seeded(one)] for _, one in runs]
        return [
            Place(each[0], "" if self._kept else shown_as(root, each[0]), tuple(each) if len(each) > 1 else ())
            for each in seeds
        ]

    @cached_property
    def runs(self) -> list[Run]:
        """Return each run; of several seeds the first."""
        return [
            Run(
                open_run(place.folder, trust=True),
                trust=True,
                row=outcome.row,
                notes=outcome.notes,
                seeds=place.seeds,
                kept=self._kept,
            )
            for place, outcome in zip(self.places, self.outcomes, strict=True)
        ]

    def notes(self) -> list[str]:
        """Return what there is to say about the runs, each thing once."""
        notes: dict[str, list[str]] = {}
        for name, outcome in zip(self.names, self.outcomes, strict=True):
            for note in outcome.notes:
                notes.setdefault(note, []).append(name)
        return [*_told_once(notes, len(self.outcomes)), *self.view.remarks(self.rows)]

    def table(self, name: str) -> Any:
        """Return one of the tables of all runs as a polars frame, with a column for the policy."""
        return frames.stacked({label: run.table(name) for label, run in zip(self.names, self.runs, strict=True)})

    def frame(self) -> Any:
        """Return the numbers as a polars frame, one row a run."""
        return frames.of_rows(self.rows)

    def __getitem__(self, which: int | str) -> Run:
        """Return a run by its position, or by its name: in short, in full, or as it was asked for."""
        if isinstance(which, int):
            if not -len(self) <= which < len(self):
                raise NoSuchRunError(f"run {which}: there are {counted(len(self), 'run')}, counted from 0")
            return self.runs[which]
        asked = [each.policy.name.removeprefix(GIVEN) for _, each in self.experiments]
        for names in (self.names, [str(row["policy"]) for row in self.rows], asked):
            if which in names:
                return self.runs[names.index(which)]
        raise ExperimentError(unknown_name("run", str(which), self.names))

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return _text(self.view, self.rows, self.notes())

    def _repr_html_(self) -> str:
        drawn = next(iter(self._figures().values()), None)
        return frames.html(repr(self), None if drawn is None else frames.figure(drawn()))


def played(experiments: Sequence[Named], processes: int = 1, *, single: bool = False, keep: bool = False) -> Comparison:
    """Play some experiments. ``keep``: their tapes are needed afterwards, in a folder that goes with the result."""
    with own_code():
        for _, each in () if single else experiments:
            domain_of(each).policy_name(each)  # one that cannot be made is refused before the first is played
    baseline = 0 if single else baseline_of(experiments)
    kept = None
    if keep and not all(each.run.out for _, each in experiments):
        kept = Kept()
        place = str(kept.folder / "runs")
        experiments = [(label, with_run(each, out=place)) for label, each in experiments]
    runs = with_own_folders(experiments)
    ended: list[Outcome] = []
    stopped = ""
    try:
        for outcome in play(runs, processes):
            if kept is None and not ended:
                write_order(runs)
            if outcome.stopped:
                told, tape, _ = outcome.stopped.partition("; the tape is ")
                stopped = f"{told}; without --out nothing is kept" if tape and kept is not None else outcome.stopped
                break
            ended.append(outcome)
    except KeyboardInterrupt:  # in the middle of a step, or between two runs
        if single:
            raise
        stopped = "stopped"
    if stopped and not single:
        stopped = f"{stopped}; {_done(runs, len(ended), kept is None)}"
    return Comparison(runs, ended, baseline=baseline, single=single, stopped=stopped, kept=kept)


def _done(runs: Sequence[Named], ended: int, kept: bool) -> str:
    """Say how many of several runs are done, and where they lie if they are kept."""
    folders = [Path(each.run.out) for _, one in runs for each in seeded(one) if one.run.out] if kept else []
    if not folders:
        return f"{ended:,} of {len(runs):,} runs are done"
    done = [str(folder) for folder in folders if _is_done(folder)]
    named = ", ".join(done[:_MOST_NAMED]) + (f" and {len(done) - _MOST_NAMED:,} more" if done[_MOST_NAMED:] else "")
    return f"{len(done):,} of {len(folders):,} runs are done{': ' if done else ''}{named}"


def _is_done(folder: Path) -> bool:
    try:
        return is_complete(read(folder)[1])
    except TapeError:
        return False


def _text(view: View, rows: Sequence[Row], notes: Sequence[str]) -> str:
    return frames.text(view.comparison(rows)[0], notes) if rows and rows[0] else "no results"


def _told_once(notes: Mapping[str, Sequence[str]], runs: int) -> list[str]:
    """Return notes with the runs that they are about; what only differs after its semicolon is told once."""
    alike: dict[str, list[str]] = {}
    for note in notes:
        alike.setdefault(note.partition(";")[0], []).append(note)
    lines = []
    for head, same in alike.items():
        names = dict.fromkeys(name for note in same for name in notes[note])
        whose = "" if len(names) == runs else f"{', '.join(names)}: "
        lines.append(f"{whose}{same[0] if len(same) == 1 else head}")
    return lines

"""Describe a scale: all that is needed to run, store, check, compare and show it.

Everything above a scale (experiment files, runs, folders, seeds, comparison, sweep, replay, audit, report) is written
once, against the three things here. ``Domain`` reads an experiment and prepares a ``Scene``; a ``Scene`` is a run
before it begins; a ``View`` turns a tape into what is shown. The first two need neither polars nor plotly.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from headway.core.audit import Finding
from headway.core.executor import Executor
from headway.core.policy import Policy
from headway.core.state import State
from headway.core.tape import Tape
from headway.core.tasks import Far
from headway.errors import ExperimentError
from headway.runs.answer import Answer, Early
from headway.runs.settings.flags import Flag

if TYPE_CHECKING:
    from rich.table import Table

    from headway.runs.folder.folder import Limits
    from headway.show.export import Tables, Written
    from headway.statistics.replications import Batches, Replication, Sample

Row = Mapping[str, Any]
Experiment = TypeVar("Experiment", bound=Struct)
"""The typed tables of a scale."""
Progress = Callable[[Far], None]  # told how far a run is, now and then
Tell = Callable[[str, float], None]  # told what is being done, and which share of all is done


def with_table(experiment: Experiment, table: str, **changes: Any) -> Experiment:
    """Return the experiment with other values in one of its tables."""
    return replace(experiment, **{table: replace(getattr(experiment, table), **changes)})


class RunParts(NamedTuple):
    """What one run consists of while it goes on."""

    state: State[Any, Any, Any]
    policy: Policy[Any, Any]
    executor: Executor[Any, Any, Any]
    exact: bool = True
    """Whether an action cannot be stale when it is committed: one that is infeasible is then a mistake."""


class Scene(ABC):
    """Everything about a run but its outcome: what replay, audit and story need besides the tape."""

    experiment: Any
    """Its tables, every value resolved."""
    notes: tuple[str, ...]
    """What a reader of the results should know."""
    skipped: tuple[str, ...] = ()
    """What was left out because it could never run, by name."""

    @abstractmethod
    def policy(self) -> Any:
        """Make the policy anew, as it was at the beginning."""

    @abstractmethod
    def policy_name(self) -> str:
        """Return the policy as it is written in full; its code is not run where it is not trusted."""

    def endless(self) -> str:
        """Return why a run that goes on has no end yet; empty for one that was cut short."""
        return ""

    def simulated(self, tape: Tape | None = None) -> "Scene | None":
        """Return a live run in virtual time, with notes on what to do if it is far off; None where it is in it."""
        return None

    def policy_parts(self, policy: Any) -> Sequence[object]:
        """Return the objects that a policy is made of; those from outside headway are watched."""
        return (policy,)

    def times_decisions(self, policy: Any) -> bool:
        """Return whether each decision takes long enough to be timed."""
        return True

    @abstractmethod
    def inputs(self) -> Mapping[str, Sequence[Any]]:
        """Return what a policy is shown and must not change, by what it is."""

    @abstractmethod
    def begin(self) -> Any:
        """Make state, policy and executor of a run before anything has happened: a ``RunParts``, or its like."""

    @abstractmethod
    def store(self, folder: Path) -> Any:
        """Write the workload and the files it needs into a run folder; return the experiment as it is stored there."""

    @abstractmethod
    def progress(self, state: Any, now: int) -> Far:
        """Say how far a run is that has come to this state."""

    def alive(self, state: Any, now: int) -> int:
        """Count what has arrived and not ended."""
        far = self.progress(state, now)
        return far.waiting + far.running

    @abstractmethod
    def row_kinds(self) -> "tuple[type[IntEnum], Limits]":
        """Return the kinds of rows that its tape may have, and how far their numbers go."""

    @abstractmethod
    def row_subject(self, row: Sequence[int]) -> str:
        """Return what a row of its tape is about: 'job 7'."""

    def row_words(self) -> "tuple[type[IntEnum], Callable[[Sequence[int]], str]]":
        """Return what is needed to tell of a row in words."""
        return self.row_kinds()[0], self.row_subject

    def subjects(self) -> str:
        """Return what a story can be about, where that is short: the names of programs, the numbers of requests."""
        return ""

    def unfinished(self, state: Any) -> Sequence[str]:
        """Return what has arrived and not ended, by name."""
        return ()

    def omissions(self, verb: str) -> list[str]:
        """Return what a story or an audit leaves out because the policy's own file is not trusted."""
        return []

    @abstractmethod
    def replay(self, tape: Tape, *, complete: bool) -> Tape:
        """Show a fresh policy the recorded events; return the tape that it writes."""

    @abstractmethod
    def audit(self, tape: Tape, *, complete: bool) -> Sequence[Finding]:
        """Check a tape against every rule with a second set of books."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """A run that ended, or was stopped: its tape and what it took."""

    scene: Any
    policy: str
    """As it is written, in full."""
    tape: Tape
    stopped: bool
    wall_s: float
    peak_rss_bytes: int
    folder: Path | None
    decide_ns: Sequence[int]
    """How long each decision took, where that was measured."""
    end: Any
    """State, policy and executor as they were at the end."""

    @property
    def reached(self) -> int:
        """Return the time of the last step on the tape."""
        return int(self.tape.column("time")[-1]) if len(self.tape) else 0


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run folder that was read back."""

    folder: Path
    scene: Any
    tape: Tape
    complete: bool
    """Whether the run went to its end."""
    result: Row
    """The numbers that were stored beside the tape; empty for a run that was killed."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One run on a page."""

    label: str
    """What it is called in short; no other run on the page has the same."""
    shown_folder: str
    """Its folder as a command would name it; empty for a run that is not kept."""
    stored: StoredRun
    name: str = ""
    """What it is called in full, where that is longer."""
    seeds: tuple[Row, ...] = ()
    """Where it stands for runs of several seeds: the results of each, beginning with its own."""
    drawn: bool = False
    """Whether another seed would have given another run."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to: its numbers, and what to say about it."""

    row: dict[str, Any]
    notes: tuple[str, ...]
    stopped: str = ""
    """How far it got, where it was stopped before its end."""
    sample: "Sample | Batches | None" = None
    """What is measured of each job or request, for a paired comparison; None for runs of several seeds."""
    drawn: bool = False
    """Whether another seed would have given another run."""


class View(ABC):
    """Everything of a scale that is shown."""

    first_keys: tuple[str, ...]
    """The numbers that every reader of results relies on, in this order; more follow."""
    replication: "Replication"
    """How the rows of several seeds become one."""
    compared: tuple[tuple[str, str], ...] = ()
    """Numbers that are compared with the baseline's, and what the change is called."""
    averages_on_page: bool = False
    """Whether a page of several seeds tells means over them; else it shows the run of one."""

    @abstractmethod
    def numbers(self, result: RunResult) -> Outcome:
        """Take the numbers of a run, the notes about it, and a sample for comparisons."""

    @abstractmethod
    def stopped_line(self, result: RunResult) -> str:
        """Say how far a run got that was stopped: 'fifo stopped at 2h: 3 of 5 jobs had arrived, 1 had ended'."""

    def changes(self, outcome: Outcome, reference: Outcome | None) -> dict[str, Any]:
        """Return how far a run is from the baseline; with None for the baseline itself."""
        from headway.statistics.replications import change

        return {
            name: None if reference is None else change(outcome.row[key], reference.row[key])
            for key, name in self.compared
        }

    def together(self, rows: "Sequence[dict[str, Any]]") -> "list[dict[str, Any]]":
        """Return the rows of runs side by side with what is known of one of them and holds for all."""
        return list(rows)

    @abstractmethod
    def comparison(self, rows: Sequence[Row], width: int | None = None) -> "tuple[Table, int]":
        """Return a table, a line a run, no wider than ``width``, and how many columns were left out for that."""

    def legend(self, rows: Sequence[Row], table: "Table") -> str:
        """Return an explanation of columns that are not plain; nothing where there are none."""
        return ""

    def details(self, rows: Sequence[Row], by: Sequence[str] = ()) -> "list[Table]":
        """Return more tables about the same runs."""
        return []

    def check_details(self, by: Sequence[str]) -> None:
        """Refuse a table that does not exist, before anything runs."""
        for name in by:
            raise ExperimentError(f"--by {name}: there is no such table for this kind of run")

    def pivot(self, rows: Sequence[Row], across: str) -> "Table | None":
        """Return the results of a sweep with what is compared from left to right; None where a list says it better."""
        return None

    def sweep_remarks(self, rows: Sequence[Row]) -> list[str]:
        """Return what is to be said of the results of a sweep besides their table."""
        return []

    def missing_details(self, rows: Sequence[Row], by: Sequence[str]) -> list[str]:
        """Say which tables were asked for that there is nothing to put into."""
        return []

    def remarks(self, rows: Sequence[Row]) -> list[str]:
        """Return what is to be said of a comparison besides its table."""
        return []

    @abstractmethod
    def stays(self, stored: StoredRun) -> dict[str, float]:
        """Return how long each job or request that was completed took from its arrival to its end, in seconds."""

    def paired(self, first: StoredRun, second: StoredRun) -> tuple[dict[str, float], dict[str, float]]:
        """Return the times of two runs of one workload; who is in both has the same name in both."""
        return self.stays(first), self.stays(second)

    @abstractmethod
    def story(self, stored: StoredRun, subject: str) -> Any:
        """Tell what happened to one job, request or program: something with ``lines`` and ``record``."""

    @abstractmethod
    def page(self, runs: Sequence[Shown], baseline: int, title: str, tell: Tell) -> str:
        """Make one HTML page of some runs."""

    @abstractmethod
    def trace_events(self, stored: StoredRun, path: Path, tell: Tell) -> "Written":
        """Write a trace for Perfetto."""

    @abstractmethod
    def tables(self, stored: StoredRun) -> "Tables":
        """Return the tables of a run for other programs, by name, each made when it is asked for."""

    def figures(self, runs: Sequence[Shown], baseline: int) -> Mapping[str, Callable[[], dict[str, Any]]]:
        """Return the figures of its page by name, each made when it is asked for, as plotly reads them."""
        return {}

    def explain(self, stored: StoredRun, subject: str, at: str | None, draws: int | None, early: Early = None) -> Any:
        """Say why something does not run at a time, or was late; ``subject`` is empty where none was named."""
        raise ExperimentError("explain is about jobs that wait and requests of fleets; headway story tells of this run")

    def whatif(self, stored: StoredRun, at: str, folder: Path | None, changes: Mapping[str, Any]) -> Answer:
        """Continue a run from a moment of it under changes, or play it again; ``at`` is empty where none was named."""
        raise ExperimentError("whatif is about runs of jobs and fleets; run this experiment again with other settings")

    def whatif_written(self, kind: str, record: Row) -> str:
        """Return a what-if as a page (``report``) or as a table of its groups (``csv``)."""
        raise ExperimentError(f"--{kind} is for what-ifs of jobs only; --json has all of it")

    def brief(self, stored: StoredRun) -> list[str]:
        """Return a run in at most fifteen lines, to paste into a mail."""
        return [f"{key}: {stored.result[key]}" for key in self.first_keys if key in stored.result][:15]

    def picture(self, rows: Sequence[Row]) -> str:
        """Draw the comparison as SVG."""
        raise ExperimentError("--picture draws comparisons of jobs only; --report makes a page of any runs")


class Domain(ABC):
    """One scale: how its experiments are written, prepared and stored."""

    name: str
    """As users say it: jobs, fleet, gpu."""
    subject: str
    """What arrives: job, request."""
    about: str
    """What its commands are about, in a line of help."""
    tables: type[Any]
    """The typed tables of an experiment."""
    work: tuple[Flag, ...]
    """What is scheduled: arguments of its commands, in their order."""
    flags: tuple[Flag, ...]
    """The settings that have a flag, and a keyword in Python; those that matter most first."""
    changes: tuple[str, ...] = ()
    """What a what-if may change, by the names of its flags; none where there is no what-if."""
    axes: tuple[Flag, ...] = ()
    """Settings that a sweep varies by a flag of their own: several values with commas between them."""
    examples: Mapping[str, str]
    """A command line for the help of each verb: what follows ``headway SCALE VERB``."""
    extras: tuple[str, ...] = ()
    """What its commands offer besides tables and pages: ``by`` (more tables), ``picture`` (bars as SVG)."""
    view_module: str
    example_policies: str
    """As an example in messages: 'fifo,srtf+easy'."""
    example_axis: str
    """A key with some values, as an example in help and messages: 'cluster.nodes=40,80'."""
    file_keys: Mapping[str, Callable[[str], list[Path]]]
    """Keys whose values may name files, and which files a value means; none where it is only a name."""
    policy_keys: tuple[str, ...] = ("policy.name",)
    """Keys whose values may name classes in files."""
    measured_key: str = ""
    """The key whose value may be measured on this machine; ``prepare`` puts it in numbers. Empty: there is none."""

    @abstractmethod
    def prepare(self, experiment: Any) -> Scene:
        """Check an experiment and make its scene: everything before the run."""

    @abstractmethod
    def load(self, experiment: Any, folder: Path, *, trust: bool) -> Scene:
        """Make the scene of a stored run from the files in its folder; Python files are run only if trusted."""

    @abstractmethod
    def policy_name(self, experiment: Any) -> str:
        """Return the policy of an experiment as it is written in full."""

    def check(self, experiment: Any) -> None:
        """Refuse what can be known to be wrong before anything is read or drawn: a policy that does not exist."""
        self.policy_name(experiment)

    def split_file_value(self, value: str) -> tuple[str, str, str]:
        """Split a value of ``file_keys`` into what names a file and what stands before and after: ``@3``."""
        return "", value, ""

    def draws(self, experiment: Any) -> bool:
        """Return whether another seed gives another run."""
        return True

    def to_measure(self, experiment: Any) -> Any | None:
        """Return what a measurement on this machine depends on, as an experiment; None where none is asked for."""
        return None

    def comparable_variants(self, experiments: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
        """Return the variants of one file as they are to be run beside each other."""
        return list(experiments)

    @cached_property
    def view(self) -> View:
        """Return the view of this scale, imported when it is first asked for."""
        return cast("View", import_module(self.view_module).VIEW)

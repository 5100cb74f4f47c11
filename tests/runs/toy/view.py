"""Show runs of the toy scale: numbers, a table, a story, a page, tables for other programs."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from rich.table import Table

from headway.core.tape import Tape
from headway.errors import TapeError
from headway.runs.domain import Outcome, Row, RunResult, Shown, StoredRun, Tell, View
from headway.show.export import Written, write_pieces
from headway.show.page import assembled
from headway.show.sections import figure
from headway.statistics.replications import Replication, change
from headway.units import SECOND, format_duration
from tests.runs.toy.server import Kind, Task


@dataclass(frozen=True, slots=True)
class Story:
    """What became of one task."""

    task: int
    times: tuple[int, ...]

    def lines(self) -> list[str]:
        """Return it as a person reads it."""
        came, began, ended = (format_duration(time) for time in self.times)
        return [f"task {self.task}: came at {came}, began at {began}, ended at {ended}"]

    def record(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"task": self.task, "times_s": [time / SECOND for time in self.times]}


class ToyView(View):
    """Tasks and one server."""

    first_keys = ("policy", "tasks", "time_mean_s")
    replication = Replication(intervals=(("time_mean", "_s"),), of_one_seed=("seed", "digest", "time_mean_s"))

    def numbers(self, result: RunResult) -> Outcome:
        """Take the mean time from arrival to end."""
        table = _table(result.scene.tasks, result.tape)
        mean = table["time_s"].mean()
        return Outcome(
            {"policy": result.policy, "tasks": len(table), "time_mean_s": mean, "events": len(result.tape)},
            result.scene.notes,
        )

    def stopped_line(self, result: RunResult) -> str:
        """Say how far a run got."""
        return f"{result.policy} stopped at {format_duration(result.reached)}"

    def changes(self, outcome: Outcome, reference: Outcome | None) -> dict[str, Any]:
        """Return the change of the mean."""
        key = "time_mean_s"
        return {"time_change": None if reference is None else change(outcome.row[key], reference.row[key])}

    def comparison(self, rows: Sequence[Row], width: int | None = None) -> tuple[Table, int]:
        """Return one line a run."""
        table = Table("policy", "variant", "mean time", "change", box=None)
        for row in rows:
            changed = row.get("time_change")
            words = (row["policy"], row.get("variant", ""), "" if changed is None else f"{100 * changed:+.1f} %")
            table.add_row(*words[:2], f"{row['time_mean_s']:.3f} s", words[2])
        return table, 0

    def stays(self, stored: StoredRun) -> dict[str, float]:
        """Return how long each task that ended took."""
        times = {(row.kind, row.subject): row.time for row in stored.tape}
        ended = [task.id for task in stored.scene.tasks if (Kind.FINISHED, task.id) in times]
        return {str(task): (times[Kind.FINISHED, task] - times[Kind.ARRIVED, task]) / SECOND for task in ended}

    def story(self, stored: StoredRun, subject: str) -> Story:
        """Tell of one task."""
        if not subject.isdecimal() or int(subject) >= len(stored.scene.tasks):
            raise TapeError(f"task {subject!r} is not in this run")
        rows = stored.tape.rows[stored.tape.column("subject") == int(subject)]
        return Story(int(subject), tuple(rows[:, 0].tolist()))

    def page(self, runs: Sequence[Shown], baseline: int, title: str, tell: Tell) -> str:
        """Make a page with one figure."""
        drawn = {name: make() for name, make in self.figures(runs, baseline).items()}
        bodies = {"times": figure("times", "Time of each task")}
        questions = [("times", "How long do tasks take?", "Times")]
        lines: list[tuple[str, dict[str, Any]]] = [(run.label, {}) for run in runs]
        return assembled(title, "Tasks", "", questions, bodies, lines=lines, figures=drawn)

    def figures(self, runs: Sequence[Shown], baseline: int) -> Mapping[str, Callable[[], dict[str, Any]]]:
        """Return the time of each task."""

        def times() -> dict[str, Any]:
            tables = {run.label: _table(run.stored.scene.tasks, run.stored.tape) for run in runs}
            data = [{"type": "box", "y": each["time_s"].to_list(), "name": name} for name, each in tables.items()]
            return {"data": data, "layout": {}}

        return {"times": times}

    def trace_events(self, stored: StoredRun, path: Path, tell: Tell) -> Written:
        """Write a slice a task."""
        slices = [
            {"ph": "X", "pid": 1, "tid": 1, "name": f"task {row['task']}", "ts": row["began_s"] * 1e6, "dur": 1}
            for row in _table(stored.scene.tasks, stored.tape).to_dicts()
        ]
        pieces = [("" if at == 0 else ",") + json.dumps(each) for at, each in enumerate(slices)]
        return write_pieces(path, iter(['{"traceEvents":[', *pieces, "]}"]))

    def tables(self, stored: StoredRun) -> Mapping[str, Callable[[], pl.DataFrame]]:
        """Return one row a task."""
        return {"tasks": lambda: _table(stored.scene.tasks, stored.tape)}


VIEW = ToyView()


def _table(tasks: Sequence[Task], tape: Tape) -> pl.DataFrame:
    """Return when each task came, began and ended; of those that did not end nothing."""
    times = {(row.kind, row.subject): row.time / SECOND for row in tape}
    return pl.DataFrame(
        [
            {
                "task": task.id,
                "came_s": times[Kind.ARRIVED, task.id],
                "began_s": times[Kind.START, task.id],
                "ended_s": times[Kind.FINISHED, task.id],
                "time_s": times[Kind.FINISHED, task.id] - times[Kind.ARRIVED, task.id],
            }
            for task in tasks
            if (Kind.FINISHED, task.id) in times
        ]
    )

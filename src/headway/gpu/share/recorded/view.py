"""Show runs that a broker recorded: numbers, stories, pages and tables."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.table import Table

from headway.errors import ExperimentError
from headway.gpu.share.recorded import export as share_export, page as share_page
from headway.gpu.share.recorded.metrics import shared_run, summarise
from headway.gpu.share.recorded.story import ShareStory, story
from headway.runs.answer import Answer
from headway.runs.domain import Outcome, Row, RunResult, Shown, StoredRun, Tell, View
from headway.show.export import Tables, Written
from headway.show.formatting import in_ms, percent, times
from headway.show.terminal import framed
from headway.statistics.replications import Replication
from headway.units import SECOND, format_duration

_MOST_LINES = 12


class ShareView(View):
    """Programs that shared a real GPU."""

    first_keys = ("policy",)
    replication = Replication(intervals=(), of_one_seed=("seed", "digest"))

    def numbers(self, result: RunResult) -> Outcome:
        """Take slow-down, harvest and delays."""
        return Outcome({"policy": result.policy, **summarise(shared_run(result.tape))}, ())

    def stopped_line(self, result: RunResult) -> str:
        """Say how far the tape goes."""
        return f"recorded up to {format_duration(result.reached)}"

    def comparison(self, rows: Sequence[Row], width: int | None = None) -> tuple[Table, int]:
        """Return one line a run; its numbers are on the tape, of which the folder keeps no summary."""
        table = framed(("run",), ("digest",))
        for row in rows:
            table.add_row(str(row.get("policy", "")), str(row.get("digest", ""))[:12])
        return table, 0

    def stays(self, stored: StoredRun) -> dict[str, float]:
        """Refuse: the tape holds no requests."""
        raise ExperimentError("distance compares requests, and the tape of a broker holds none: see headway report")

    def story(self, stored: StoredRun, subject: str) -> ShareStory:
        """Tell of one program."""
        return story(shared_run(stored.tape), subject)

    def page(self, runs: Sequence[Shown], baseline: int, title: str, tell: Tell) -> str:
        """Make the page: slow-down with its interval, harvest, delays."""
        return share_page.build([_shown(run) for run in runs], baseline, title)

    def figures(self, runs: Sequence[Shown], baseline: int) -> Mapping[str, Callable[[], dict[str, Any]]]:
        """Return the figures of the first run."""
        return share_page.figures_of([_shown(run) for run in runs])

    def trace_events(self, stored: StoredRun, path: Path, tell: Tell) -> Written:
        """Refuse: the tape holds no launches."""
        raise ExperimentError(
            "the tape of a broker holds no launches: headway share run --timeline FILE.json writes those of a program"
        )

    def tables(self, stored: StoredRun) -> Tables:
        """Return programs, counters, slow-downs and delays."""
        return share_export.tables(shared_run(stored.tape))

    def whatif(self, stored: StoredRun, at: str, folder: Path | None, changes: Mapping[str, Any]) -> Answer:
        """Refuse: it happened once."""
        raise ExperimentError(
            "whatif continues simulated runs, and a broker recorded this one on a real GPU: headway gpu predict "
            "simulates programs, headway share run --slo shares with another aim"
        )

    def brief(self, stored: StoredRun) -> list[str]:
        """Return the run in at most fifteen lines."""
        row, about = summarise(shared_run(stored.tape)), stored.scene.experiment.share
        aim = share_page.aim_text(row["slo"] or 0, row["slo_p99"])
        first = (
            f"GPU {about.gpu} {about.gpu_name} ({about.mode}), from {about.began}: "
            f"{format_duration(round(row['seconds'] * SECOND))}, slow-down {times(row['slowdown'])} in the mean "
            f"(aim {aim}, above it {percent(row['above_aim_share'])} of the time)"
        )
        second = (
            f"held {percent(row['held_share'])} of the time; {_time(row['harvested_s'])} harvested, "
            f"{in_ms(row['delay_s'])} of delay caused"
        )
        programs = sorted(row["programs"], key=lambda each: (each["priority"], -each["gpu_s"]))
        lines = [first, second, *(_line(each) for each in programs[:_MOST_LINES])]
        left = len(programs) - _MOST_LINES
        return [*lines, f"and {left:,} more programs"] if left > 0 else lines


VIEW = ShareView()


def _line(row: Row) -> str:
    slow = "" if row["slowdown"] is None else f", slow-down {times(row['slowdown'])}"
    below = f", harvested {_time(row['harvested_s'])}, waited {_time(row['waited_s'])}" if row["waits"] else ""
    limit = f", {percent(row['sms'], 0)} of the SMs" if row["sms"] < 1 else ""
    return (
        f"{row['program']} (priority {row['priority']}{limit}): {row['launches']:,} launches, "
        f"GPU busy {percent(row['busy_share'])}{slow}{below}"
    )


def _time(seconds: float) -> str:
    return format_duration(round(seconds * SECOND))


def _shown(run: Shown) -> share_page.Shown:
    taken = shared_run(run.stored.tape)
    about = msgspec.to_builtins(run.stored.scene.experiment.share)
    return share_page.Shown(run.label, summarise(taken), taken, about, run.stored.complete)

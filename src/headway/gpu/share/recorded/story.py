"""Tell what happened to one program that shared a real GPU: how slow it was, what it got, whom it delayed."""

from dataclasses import dataclass
from typing import Any

from headway.errors import TapeError, unknown_name
from headway.gpu.profiling.summary import readable
from headway.gpu.share.recorded.metrics import SharedRun, program_row
from headway.show.formatting import in_ms, listed, percent, times
from headway.units import SECOND, format_duration

MOST_CAUSES = 5


@dataclass(frozen=True, slots=True)
class ShareStory:
    """What happened to one program."""

    row: dict[str, Any]

    def lines(self) -> list[str]:
        """Return it as a person reads it."""
        row = self.row
        end = f"{row['how']} at {_at(row['ended_s'])}" if row["how"] else f"still there at {_at(row['ended_s'])}"
        limit = f", {percent(row['sms'], 0)} of the SMs" if row["sms"] < 1 else ""
        who = f"{row['program']}, priority {row['priority']}{limit}, process {row['pid']}"
        lines = [
            f"{who}: joined at {_at(row['joined_s'])}, {end}",
            f"  {row['launches']:,} launches, GPU busy {percent(row['busy_share'])}",
        ]
        if row["slowdown"] is not None:
            lines.append(
                f"  slow-down {times(row['slowdown'])} in the mean, above the aim {percent(row['above_aim_share'])} of "
                f"the time; last {times(row['slowdown_last'])} ({times(row['slowdown_low'])} to "
                f"{times(row['slowdown_high'])}, {row['slowdown_steps']:,} steps in {row['slowdown_holds']:,} holds)"
            )
        if row["slowdown_p99"] is not None:
            low, high = times(row["slowdown_p99_low"]), times(row["slowdown_p99_high"])
            lines.append(f"  slow-down at p99 {times(row['slowdown_p99'])} ({low} to {high})")
        if row["waits"]:
            lines.append(
                f"  {row['waits']:,} launches waited, {_at(row['waited_s'])} in all; {_at(row['harvested_s'])} of GPU "
                f"time harvested; {in_ms(row['delay_s'])} of delay caused above"
            )
        for cause in row["delays"][:MOST_CAUSES]:
            whom = listed(cause["delayed"]) if cause["delayed"] else "programs above"
            lines.append(f"  {readable(cause['kernel'])} delayed {whom} by {in_ms(cause['delay_s'])}")
        for charge in row["charges"][:MOST_CAUSES]:
            lines.append(
                f"  {readable(charge['kernel'])} is charged {percent(charge['charge'])} of its time for contention: "
                "it slows programs above beyond any wait"
            )
        return lines

    def record(self) -> dict[str, Any]:
        """Return it as JSON."""
        return self.row


def story(run: SharedRun, subject: str) -> ShareStory:
    """Tell of one program, by its name."""
    named = {program.name: program for program in run.programs}
    if subject not in named:
        raise TapeError(unknown_name("program", subject, list(named)))
    return ShareStory(program_row(run, named[subject]))


def _at(seconds: float) -> str:
    return format_duration(round(seconds * SECOND))

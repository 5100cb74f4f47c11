"""Make the report of runs of programs that share one GPU: one HTML file, in the template that all reports have.

The answer in a sentence; the runs side by side; how long requests above take, over all and over time; who was let
through and why; which kernels were in the way.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any

import numpy as np

from headway.core.tape import Tape
from headway.gpu.model.device import Device
from headway.gpu.model.program import Client
from headway.gpu.profiling.summary import readable
from headway.gpu.show.history import ProgramHistory, program_histories
from headway.show import figures, sections
from headway.show.formatting import in_ms, percent, plain, times
from headway.show.names import cut_distinct, shortened
from headway.show.page import assembled
from headway.show.sections import figure, for_run
from headway.units import MILLISECOND, SECOND

QUESTIONS = (
    ("table", "How do the runs compare?", "Numbers"),
    ("times", "How long do requests above take?", "Times"),
    ("over-time", "When are they slow?", "Over time"),
    ("programs", "What does each program get?", "Programs"),
    ("delays", "Which kernels are in the way?", "Delays"),
)
MOST_POINTS = 400
"""Stretches of time in the picture over time."""
_LETTERS = 40


@dataclass(frozen=True)
class Shown:
    """A run as a page shows it."""

    label: str
    row: Mapping[str, Any]
    clients: Sequence[Client]
    device: Device
    tape: Tape

    @cached_property
    def histories(self) -> list[ProgramHistory]:
        """Return each program's launches and requests."""
        return program_histories(self.clients, self.tape)

    @cached_property
    def above(self) -> ProgramHistory:
        """Return the first program of the highest priority that has requests; else the first of them."""
        highest = min(client.priority for client in self.clients)
        highest_priority = [history for history in self.histories if history.client.priority == highest]
        return next((history for history in highest_priority if len(history.latency)), highest_priority[0])


def build(runs: Sequence[Shown], baseline: int = 0, title: str = "") -> str:
    """Return the whole page."""
    return _Page(runs, baseline).assembled(title)


def figures_of(runs: Sequence[Shown], baseline: int = 0) -> dict[str, Callable[[], dict[str, Any]]]:
    """Return the figures of the page by name."""
    made = _Page(runs, baseline)
    return {"latency": made._latency, "over-time": made._over_time}


class _Page:
    """The parts of one page."""

    def __init__(self, runs: Sequence[Shown], baseline: int) -> None:
        self.runs, self.baseline = runs, baseline
        self.several = len(runs) > 1
        short = shortened([run.label for run in runs])
        self.names = [plain(name) for name in cut_distinct(short, _LETTERS)]
        self.labels = figures.labels(short)
        self.lines = [figures.line_style(index, baseline, len(runs)) for index in range(len(runs))]

    def assembled(self, title: str) -> str:
        """Return the page around its sections."""
        key = sections.key(self.names, self.baseline)
        bodies = {
            "table": self._table(),
            "times": key + figure("latency", "Share of requests by latency", "latency"),
            "over-time": key + figure("over-time", "Latency of requests above, over time"),
            "programs": "".join(for_run(at, self._programs(run)) for at, run in enumerate(self.runs)),
            "delays": "".join(for_run(at, self._delays(run)) for at, run in enumerate(self.runs)),
        }
        return assembled(
            title,
            self.answer(),
            self._hero(),
            QUESTIONS,
            bodies,
            lines=list(zip(self.names, self.lines, strict=True)),
            figures={"latency": self._latency(), "over-time": self._over_time()},
            picker=sections.picker(self.names, self._best()),
        )

    def answer(self) -> str:
        """Return the sentence at the top."""
        base = self.runs[self.baseline].row
        if not self.several:
            return f"{self.names[0]}: {self._score(base)}"
        best = self._best()
        if best == self.baseline:
            return f"{self.names[best]}, the baseline, delays requests least: {self._score(base)}"
        return (
            f"{self.names[best]} delays requests least: {self._score(self.runs[best].row)}, against "
            f"{self._score(base)} with {self.names[self.baseline]}"
        )

    def _best(self) -> int:
        """Return the least slow-down of the median request among runs in which those below get something."""

        def rank(index: int) -> tuple[bool, float]:
            row = self.runs[index].row
            return not row["low_share"], row["slowdown_p50"] if row["slowdown_p50"] is not None else np.inf

        return min(range(len(self.runs)), key=rank)

    def _score(self, row: Mapping[str, Any]) -> str:
        slow = (
            "no request ended" if row["slowdown_p50"] is None else f"{row['slowdown_p50']:.2f} times as long as alone"
        )
        below = "" if row["low_share"] is None else f", {percent(row['low_share'])} of their rate alone below"
        return slow + below

    def _hero(self) -> str:
        run = self.runs[0]
        programs = ", ".join(f"{plain(client.name)} (priority {client.priority})" for client in run.clients)
        facts = (
            ("programs", programs),
            ("GPU", f"{run.device.sms} SMs"),
            ("played", f"{run.row['seconds']:g} s"),
            ("seed", f"{run.row['seed']:g}"),
        )
        lead = (
            "Everything here is simulated from recorded launches: kernels take what they took alone, and longer side "
            "by side."
        )
        return sections.hero(self.answer(), lead, facts)

    # --- figures ---

    def _latency(self) -> dict[str, Any]:
        return figures.latencies(self.labels, self.lines, [run.above.latency / SECOND for run in self.runs])

    def _over_time(self) -> dict[str, Any]:
        """Return the latency of requests above, by when they ended, a line a run."""
        data = []
        for index, run in enumerate(self.runs):
            ended, latency = run.above.request_ended, run.above.latency
            pieces = np.array_split(np.arange(len(ended)), min(MOST_POINTS, max(1, len(ended))))
            points = [(float(ended[piece].mean()), float(np.median(latency[piece]))) for piece in pieces if len(piece)]
            data.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "x": [float(f"{time / SECOND:.5g}") for time, _ in points],
                    "y": [float(f"{took / MILLISECOND:.5g}") for _, took in points],
                    "name": self.labels[index],
                    "line": dict(self.lines[index]),
                    "meta": index,
                    "hovertemplate": "%{y:.3~g} ms at %{x:.4~g} s<extra>%{fullData.name}</extra>",
                }
            )
        axes = {"xaxis": {"title": {"text": "seconds"}}, "yaxis": {"title": {"text": "ms"}, "rangemode": "tozero"}}
        margin = {"l": 56, "r": 16, "t": 28, "b": 48}
        return {"data": data, "layout": {"height": 280, "margin": margin, "showlegend": False, **axes}}

    # --- tables ---

    def _table(self) -> str:
        heads = ("slow-down, p50", "p99", "latency, p50", "p99", "rate below", "GPU busy", "held back", "held up above")
        tagged = list(self.names)
        tagged[self.baseline] += " <small>baseline</small>" if self.several else ""
        rows = [
            sections.row(
                name,
                (
                    times(row["slowdown_p50"]),
                    times(row["slowdown_p99"]),
                    in_ms(row["latency_p50_s"]),
                    in_ms(row["latency_p99_s"]),
                    percent(row["low_share"]),
                    percent(row["busy_share"]),
                    in_ms(row["gated_s"]),
                    in_ms(row["held_up_s"]),
                ),
            )
            for name, row in zip(tagged, (run.row for run in self.runs), strict=True)
        ]
        return sections.table(("run", *heads), rows)

    def _programs(self, run: Shown) -> str:
        heads = ("program", "priority", "requests", "slow-down, p50", "p99", "rate, of alone", "held back", "held up")
        rows = [
            sections.row(
                plain(client["client"]),
                (
                    str(client["priority"]),
                    f"{client['requests']:,}",
                    times(client["slowdown_p50"]),
                    times(client["slowdown_p99"]),
                    percent(client["throughput_share"]),
                    in_ms(client["gated_s"]),
                    in_ms(client["held_up_s"]),
                ),
            )
            for client in run.row["clients"]
        ]
        note = '<p class="note"><code>headway story RUN PROGRAM</code> tells of its slowest requests.</p>'
        return sections.table(heads, rows) + note

    def _delays(self, run: Shown) -> str:
        rows = [
            sections.row(
                plain(client["client"]),
                (plain(cause["client"]), escape(readable(cause["kernel"])), in_ms(cause["delay_s"])),
            )
            for client in run.row["clients"]
            for cause in client["held_up_by"]
        ]
        if not rows:
            return "<p>Nobody waited for another.</p>"
        return sections.table(("program", "waited behind", "kernel", "in all"), rows)

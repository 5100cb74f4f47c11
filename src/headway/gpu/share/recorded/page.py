"""Make the report of tapes of brokers: one HTML file, in the template that all reports have.

The answer in a sentence; how slow the programs above were, with the interval and the aim; who was harvested; what each
program got; which kernels delayed whom; what the dial did; who came and went.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any

from headway.gpu.profiling.summary import readable
from headway.gpu.share.recorded import figures as share_figures
from headway.gpu.share.recorded.metrics import SharedRun
from headway.show import figures, sections
from headway.show.formatting import NOTHING, duration, in_ms, listed, percent, plain, times
from headway.show.names import cut_distinct
from headway.show.page import ABOUT_ONE, assembled
from headway.show.sections import figure, for_run
from headway.units import SECOND

QUESTIONS = (
    ("table", "How do the runs compare?", "Numbers"),
    ("slow-down", "How much slower are the programs above?", "Slow-down"),
    ("harvest", "Who was harvested, and when?", "Harvest"),
    ("programs", "What does each program get?", "Programs"),
    ("delays", "Which kernels delayed whom?", "Delays"),
    ("dial", "What did the dial do?", "Dial"),
    ("events", "Who came and went?", "Events"),
)
FIGURES: Mapping[str, Callable[[SharedRun], figures.Figure]] = {
    "slow-down": share_figures.slowdown,
    "harvest": share_figures.harvest,
    "work": share_figures.work,
    "boldness": share_figures.boldness,
}
MOST_ROWS = 40
"""Programs, kernels and events in a table."""
_LETTERS = 40


@dataclass(frozen=True)
class Shown:
    """A tape as a page shows it."""

    label: str
    row: Mapping[str, Any]
    run: SharedRun
    about: Mapping[str, Any]
    """What was shared: its GPU and mode, and when the broker began."""
    complete: bool

    @cached_property
    def figures(self) -> dict[str, figures.Figure]:
        """Return its figures that have something to draw."""
        drawn = {name: make(self.run) for name, make in FIGURES.items()}
        drawn |= {} if any(len(each.slowdown) for each in self.run.programs) else {"slow-down": {"data": []}}
        return {name: made for name, made in drawn.items() if made["data"]}


def build(runs: Sequence[Shown], baseline: int = 0, title: str = "") -> str:
    """Return the whole page."""
    return _Page(runs, baseline).assembled(title)


def figures_of(runs: Sequence[Shown]) -> dict[str, Callable[[], dict[str, Any]]]:
    """Return the figures of the first run by name."""
    return {name: lambda made=made: made for name, made in runs[0].figures.items()}  # type: ignore[misc]


class _Page:
    """The parts of one page."""

    def __init__(self, runs: Sequence[Shown], baseline: int) -> None:
        self.runs, self.baseline = runs, baseline
        self.names = [plain(name) for name in cut_distinct([run.label for run in runs], _LETTERS)]

    def assembled(self, title: str) -> str:
        """Return the page around its sections."""
        parts = {
            "slow-down": self._slowdown,
            "harvest": self._harvest,
            "programs": self._programs,
            "delays": self._delays,
            "dial": self._dial,
            "events": self._events,
        }
        bodies = {
            name: "".join(for_run(at, make(at, run)) for at, run in enumerate(self.runs))
            for name, make in parts.items()
        }
        count = len(self.runs)
        return assembled(
            title,
            self.answer(),
            self._hero(),
            QUESTIONS if count > 1 else (ABOUT_ONE, *QUESTIONS[1:]),
            {"table": self._table(), **bodies},
            lines=[(name, figures.line_style(at, self.baseline, count)) for at, name in enumerate(self.names)],
            figures={f"{name}-{at}": made for at, run in enumerate(self.runs) for name, made in run.figures.items()},
            picker=sections.picker(self.names, 0),
        )

    def answer(self) -> str:
        """Return the sentence at the top."""
        scores = [_score(run) for run in self.runs]
        if len(scores) == 1:
            return scores[0]
        return "; ".join(f"{name}: {score}" for name, score in zip(self.names, scores, strict=True))

    def _hero(self) -> str:
        run = self.runs[0]
        about, row = run.about, run.row
        facts = (
            ("GPU", f"{about['gpu']} {plain(str(about['gpu_name']))}"),
            ("mode", plain(str(about["mode"]))),
            ("began", plain(str(about["began"]))),
            ("recorded", duration(row["seconds"])),
            ("aim", f"{aim_text(row['slo'], row['slo_p99'])}, floor {percent(row['floor'], 0)}"),
        )
        lead = (
            "Measured on a real GPU by the broker of headway share. Slow-down is that of whole steps: beside others, "
            "against moments in which these are held."
        )
        open_ended = "A tape has no end: its broker still runs, or was killed. The page shows what was there."
        warnings = () if all(each.complete for each in self.runs) else (open_ended,)
        return sections.hero(self.answer(), lead, facts, warnings)

    # --- parts ---

    def _table(self) -> str:
        heads = ("slow-down, mean", "aim", "time above it", "harvested", "delay caused", "time held", "recorded")
        rows = [
            sections.row(
                name,
                (
                    times(run.row["slowdown"]),
                    aim_text(run.row["slo"], run.row["slo_p99"]),
                    percent(run.row["above_aim_share"]),
                    duration(run.row["harvested_s"]),
                    in_ms(run.row["delay_s"]),
                    percent(run.row["held_share"]),
                    duration(run.row["seconds"]),
                ),
            )
            for name, run in zip(self.names, self.runs, strict=True)
        ]
        return sections.table(("run", *heads), rows, "numbers of each run")

    def _slowdown(self, at: int, run: Shown) -> str:
        if "slow-down" not in run.figures:
            return (
                "<p>No slow-down was measured: that takes a program with others below it that waits for the GPU or "
                "marks its requests, and a few seconds.</p>"
            )
        caption = "Value of the last 20 s (line), interval of 95 % (band), and the aim (dashes)."
        drawn = figure(f"slow-down-{at}", "Slow-down of each program above, over time", caption)
        heads = ["program", "mean", "time above the aim", "last value", "interval of 95 %", "holds", "steps"]
        tails = run.row["slo_p99"] is not None
        rows = [
            sections.row(
                plain(each["program"]),
                (
                    times(each["slowdown"]),
                    percent(each["above_aim_share"]),
                    times(each["slowdown_last"]),
                    f"{times(each['slowdown_low'])} to {times(each['slowdown_high'])}",
                    f"{each['slowdown_holds']:,}",
                    f"{each['slowdown_steps']:,}",
                    *([_tail(each)] if tails else ()),
                ),
            )
            for each in run.row["programs"]
            if each["slowdown"] is not None
        ]
        return drawn + _cut([*heads, *(["p99 (interval)"] if tails else ())], rows, "slow-down of each program")

    def _harvest(self, at: int, run: Shown) -> str:
        about = "GPU time of kernels that were launched while a program of higher priority was at work."
        harvested = figure(f"harvest-{at}", "Harvested share of the GPU's time, over time", about)
        if "harvest" not in run.figures:
            harvested = "<p>Nothing was harvested: no kernel of a program below was launched beside one above.</p>"
        all_work = "All GPU time that each program launched, as predicted from measured kernels."
        drawn = figure(f"work-{at}", "Share of the GPU's time of each program, over time", all_work)
        return harvested + (drawn if "work" in run.figures else "")

    def _programs(self, at: int, run: Shown) -> str:
        heads = ["program", "priority", "there", "launches", "GPU busy", "waited", "harvested", "delay caused", "end"]
        limited = any(each["sms"] < 1 for each in run.row["programs"])
        rows = [
            sections.row(
                plain(each["program"]),
                (
                    str(each["priority"]),
                    duration(each["ended_s"] - each["joined_s"]),
                    f"{each['launches']:,}",
                    percent(each["busy_share"]),
                    duration(each["waited_s"]),
                    duration(each["harvested_s"]),
                    in_ms(each["delay_s"]),
                    each["how"] or "still there",
                    *([percent(each["sms"], 0)] if limited else ()),
                ),
            )
            for each in sorted(run.row["programs"], key=lambda each: each["priority"])
        ]
        note = '<p class="note"><code>headway story RUN PROGRAM</code> tells of one of them.</p>'
        if limited:
            heads.append("SMs")
            note = f'<p class="note">SMs: the part of them that a program was limited to.</p>{note}'
        return _cut(heads, rows, "programs") + note

    def _delays(self, at: int, run: Shown) -> str:
        delays = [(each["program"], cause) for each in run.row["programs"] for cause in each["delays"]]
        delays.sort(key=lambda found: -found[1]["delay_s"])
        rows = [
            sections.row(
                plain(name),
                (
                    escape(readable(cause["kernel"])),
                    plain(listed(cause["delayed"])) if cause["delayed"] else NOTHING,
                    in_ms(cause["delay_s"]),
                ),
            )
            for name, cause in delays
        ]
        if not rows:
            return "<p>No kernel delayed a program above, as far as the shim saw.</p>" + _charges(run)
        return _cut(("program", "kernel", "delayed", "in all"), rows, "kernels that delayed others") + _charges(run)

    def _dial(self, at: int, run: Shown) -> str:
        held = f"<p>Programs below were held for {percent(run.row['held_share'])} of the time, to measure.</p>"
        if "boldness" not in run.figures:
            return held + "<p>All pairs stayed at the floor.</p>"
        about = "Boldness: how much of its idle time others may use; of the most careful pair of each program above."
        return held + figure(f"boldness-{at}", "Boldness towards each program above, over time", about)

    def _events(self, at: int, run: Shown) -> str:
        events = [
            (time, "all", f"aim {aim_text(slo / 1e6, slo99 / 1e6)}, floor {floor / 1e4:g} %")
            for time, floor, slo, slo99 in run.run.aims.tolist()
        ]
        for each in run.run.programs:
            limit = f", limited to {each.sms_ppm / 1e4:g} % of the SMs" if each.sms_ppm else ""
            what = f"joined with priority {each.priority}{limit} (process {each.pid})"
            events.append((each.joined, each.name, what))
            if each.how:
                events.append((each.ended, each.name, each.how))
        rows = [
            sections.row(duration(time / SECOND), (plain(name), escape(what)))
            for time, name, what in sorted(events, key=lambda event: event[0])
        ]
        return _cut(("after", "program", "what"), rows, "events")


def _cut(heads: Sequence[str], rows: Sequence[str], caption: str) -> str:
    """Return a table, cut where it is too long for a page."""
    more = f'<p class="note">and {len(rows) - MOST_ROWS:,} more</p>' if len(rows) > MOST_ROWS else ""
    return sections.table(heads, rows[:MOST_ROWS], caption) + more


def _charges(run: Shown) -> str:
    """Return the kernels that are charged for contention; nothing where none is."""
    charges = [(each["program"], charge) for each in run.row["programs"] for charge in each["charges"]]
    charges.sort(key=lambda found: -found[1]["charge"])
    rows = [
        sections.row(plain(name), (escape(readable(charge["kernel"])), percent(charge["charge"])))
        for name, charge in charges
    ]
    if not rows:
        return ""
    about = (
        "<p>Contention, as learnt: while these run they slow programs above down by so much of their own time, beyond "
        "any wait (memory bandwidth, caches, power). The gate counts it when it decides.</p>"
    )
    return about + _cut(("program", "kernel", "of its time, at the end"), rows, "kernels charged for contention")


def _tail(row: Mapping[str, Any]) -> str:
    """Return the slow-down at p99 with its interval."""
    if row["slowdown_p99"] is None:
        return NOTHING
    low, high = times(row["slowdown_p99_low"]), times(row["slowdown_p99_high"])
    return f"{times(row['slowdown_p99'])} ({low} to {high})"


def aim_text(slo: float | None, slo_p99: float | None) -> str:
    """Return the aims: ``1.05×``, or ``1.05×, p99 1.15×``."""
    return f"{_number(slo)}×" + (f", p99 {slo_p99:g}×" if slo_p99 else "")


def _number(value: float | None) -> str:
    return NOTHING if value is None else f"{value:g}"


def _score(run: Shown) -> str:
    row = run.row
    below = f"; {duration(row['harvested_s'])} of GPU time harvested in {duration(row['seconds'])}"
    if row["slowdown"] is None:
        return f"No slow-down was measured{below}"
    worst = max((each for each in row["programs"] if each["slowdown"]), key=lambda each: each["slowdown"])
    slow = f"{plain(worst['program'])} took {worst['slowdown']:.2f} times as long as alone, aim {_number(row['slo'])}"
    return slow + below

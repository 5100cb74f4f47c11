"""Show runs of programs that share one GPU: their numbers, tables, stories and pages."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from headway.gpu.experiment.scene import GpuScene, numbers, summary
from headway.gpu.metrics import request_latencies
from headway.gpu.show import export as kernel_export, page as kernel_page, tables as kernel_tables
from headway.gpu.show.story import Story, story
from headway.runs.domain import Outcome, Row, RunResult, Shown, StoredRun, Tell, View
from headway.show.export import Tables, Written, write_pieces
from headway.statistics.replications import Replication
from headway.units import format_duration


class GpuView(View):
    """Runs of programs that share one GPU."""

    first_keys = (
        *("policy", "slowdown_p50", "slowdown_p99", "latency_p50_s", "latency_p99_s", "low_share", "busy_share_alone"),
        *("busy_share", "gated_s", "held_up_s", "seconds", "clients", "events", "wall_s", "peak_rss_bytes"),
    )
    compared = (("slowdown_p50", "slowdown_change"), ("low_share", "low_share_change"))
    replication = Replication(
        intervals=(("slowdown_p50", ""), ("slowdown_p99", ""), ("low_share", "")),
        of_one_seed=("seed", "digest", "slowdown_p50", "slowdown_p99", "low_share"),
        groups={"clients": "client"},
    )

    def numbers(self, result: RunResult) -> Outcome:
        """Take slow-down above, harvest below, and each program by itself."""
        return Outcome(numbers(result.scene, result.tape, complete=not result.stopped), result.scene.notes)

    def stopped_line(self, result: RunResult) -> str:
        """Say how much of the time was played."""
        horizon = format_duration(result.scene.setting.horizon)
        return f"{result.policy} stopped at {format_duration(result.reached)} of {horizon}"

    def comparison(self, rows: Sequence[Row], width: int | None = None) -> tuple[Table, int]:
        """Return one line a policy."""
        return kernel_tables.comparison(rows), 0

    def details(self, rows: Sequence[Row], by: Sequence[str] = ()) -> list[Table]:
        """Return the programs of one run."""
        return [kernel_tables.clients(rows[0])] if len(rows) == 1 else []

    def stays(self, stored: StoredRun) -> dict[str, float]:
        """Return the latency of each request of each program, by program and position."""
        return request_latencies(stored.scene.clients, stored.tape)

    def story(self, stored: StoredRun, subject: str) -> Story:
        """Tell what happened to one program: its requests, who held it up, and by which kernel."""
        return story(stored.scene.clients, stored.scene.setting.device, stored.tape, subject)

    def page(self, runs: Sequence[Shown], baseline: int, title: str, tell: Tell) -> str:
        """Make the page: slow-down against harvest, latencies over time, who delayed whom."""
        return kernel_page.build([_shown(run) for run in runs], baseline, title)

    def figures(self, runs: Sequence[Shown], baseline: int) -> Mapping[str, Callable[[], dict[str, Any]]]:
        """Return the distribution of latency above, and latency over time."""
        return kernel_page.figures_of([_shown(run) for run in runs], baseline)

    def trace_events(self, stored: StoredRun, path: Path, tell: Tell) -> Written:
        """Write every kernel over time."""
        return write_pieces(
            path, kernel_export.trace_events(stored.scene.clients, stored.tape, title=stored.folder.name)
        )

    def tables(self, stored: StoredRun) -> Tables:
        """Return requests, kernels and delays."""
        return kernel_export.tables(stored.scene.clients, stored.tape)


VIEW = GpuView()


def _shown(run: Shown) -> kernel_page.Shown:
    scene: GpuScene = run.stored.scene
    setting, tape = scene.setting, run.stored.tape
    row = summary(scene, tape, complete=run.stored.complete) | {"seed": setting.seed}
    return kernel_page.Shown(run.label, row, scene.clients, setting.device, tape)

"""Benchmarks: how fast this checkout is, alone or against another one on the same machine.

    scripts/bench                                     every case that takes a few seconds, best of five
    scripts/bench --case philly --case kernels/       those whose name contains one of these, long ones too
    scripts/bench --json out.json --best-of 3         the figures as JSON besides
    scripts/bench --against ../other                  each case in both checkouts, by turns; fails where this is slower
    scripts/bench --growth                            how the cost grows with jobs and GPUs (``bench/growth_run.py``)

Each case (``bench/cases.py``) runs in a process of its own, which prepares it, plays it once, asserts what came out,
and then plays it as often as it is told. The best CPU time counts: other work on the machine disturbs it least. A
comparison keeps a process of each checkout and lets them take turns; each has its own source and its own
``bench/adapter.py``, the cases are those of this checkout. A case is slower when its ratio is above 1.05 and above
what runs of one checkout differ by, and stays so when it is measured a second time in new processes. Public traces are
read from ``--traces``, else ``HEADWAY_TRACES``, else ``../shared/traces``; made-up ones stand in for those that are
not there.
"""

import argparse
import gc
import importlib.util
import json
import math
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench import growth  # noqa: E402 - after the path to it
from bench.cases import Case, Place, registry  # noqa: E402

TOLERANCE = 0.05
"""A ratio that is above one by this much at most is no news."""
OVERDUE = 75
"""The exit status of a process that took longer than it was given."""
MOST_BYTES = 2_500_000_000
"""Peak memory of any case."""
HEADING = f"{'case':58} {'count':>10} {'unit':9} {'CPU s':>8} {'wall s':>8} {'a second':>10} {'floor':>8} {'MB':>6}"
HEADING_AGAINST = f"{'case':58} {'here s':>8} {'there s':>8} {'ratio':>6} {'spread':>7}"


class CaseFailedError(Exception):
    """A case that did not come out as it should, with what its process said."""


class TimeLimitError(CaseFailedError):
    """A case that was ended because it took more CPU time than it was given."""


# --- in the process of a case ---------------------------------------------------------------------------------


def adapter_of(checkout: Path) -> ModuleType:
    """The adapter of a checkout; this one's, with the other's source, where it has none."""
    path = checkout / "bench" / "adapter.py"
    spec = importlib.util.spec_from_file_location("adapter", path if path.exists() else ROOT / "bench" / "adapter.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    import headway

    assert Path(headway.__file__).is_relative_to(checkout), f"headway is imported from {headway.__file__}"
    return module


def cpu_s() -> float:
    """CPU seconds of this process and of those that it started and waited for."""
    below = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + below.ru_utime + below.ru_stime


def serve(case: Case, checkout: Path, place: Place) -> None:
    """Prepare a case, say what it comes to, then time a step for each line that is read."""
    ready = case.prepare(adapter_of(checkout), place)
    found = ready.step()
    count, digest = ready.told(found)
    assert count > 0, f"no {case.unit}"
    assert count == (case.count or count), f"{count:,} {case.unit} instead of {case.count:,}"
    _answer(count=count, digest=digest, numbers=ready.numbers(found))
    del found
    for _ in sys.stdin:
        gc.collect()
        cpu, wall = cpu_s(), time.perf_counter()
        found = ready.step()
        took = {"wall_s": time.perf_counter() - wall, "cpu_s": cpu_s() - cpu}
        assert ready.told(found) == (count, digest), f"{case.name}: repetitions differ"
        _answer(**took, peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def limit_cpu(seconds: float) -> None:
    """End this process with status OVERDUE when it has taken so much CPU time; not at all where that is 0.

    CPU time and not wall time, so that the same cases pass on a busy machine.
    """
    if seconds:
        signal.signal(signal.SIGXCPU, lambda *_: os._exit(OVERDUE))
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds), resource.getrlimit(resource.RLIMIT_CPU)[1]))


def _answer(**values: Any) -> None:
    sys.__stdout__.write(json.dumps(values) + "\n")  # type: ignore[union-attr]
    sys.__stdout__.flush()  # type: ignore[union-attr]


# --- outside of it --------------------------------------------------------------------------------------------


@dataclass
class Figures:
    """What was measured of a case in one checkout."""

    case: str
    unit: str
    count: int = 0
    digest: str = ""
    cpu_s: list[float] = field(default_factory=list)
    wall_s: list[float] = field(default_factory=list)
    peak_bytes: int = 0
    numbers: dict[str, int] = field(default_factory=dict)
    """What else a case tells of its result."""

    @property
    def best_s(self) -> float:
        """CPU seconds of the best run."""
        return min(self.cpu_s)

    @property
    def spread(self) -> float:
        """How far the middle run lies above the best one, as a share of it."""
        return median(self.cpu_s) / self.best_s - 1

    @property
    def per_s(self) -> float:
        """Units a second in the best run."""
        return self.count / self.best_s

    def row(self) -> dict[str, Any]:
        """For JSON: all of it, the best beside it."""
        return {**asdict(self), "best_cpu_s": self.best_s, "best_wall_s": min(self.wall_s), "per_s": self.per_s}


class Measuring:
    """The process of a case in one checkout."""

    def __init__(self, figures: Figures, checkout: Path, traces: Path, shared: Path, limit_s: float = 0) -> None:
        """Start it; after ``limit_s`` seconds of CPU time, where that is not 0, it ends."""
        self.figures = figures
        self._scratch = tempfile.TemporaryDirectory(dir=shared)
        self._complaints = Path(self._scratch.name) / "stderr"
        own = {"PYTHONPATH": str(checkout / "src"), "PYTHONHASHSEED": "0"}
        with self._complaints.open("w") as complaints:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, __file__, "--child", figures.case, "--checkout", str(checkout)),
                    *("--traces", str(traces), "--scratch", self._scratch.name, "--limit", str(limit_s)),
                ],
                env={**os.environ, **own},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
            )

    def begin(self) -> None:
        """Wait until it is prepared and its first run came out as it should."""
        found = self._heard()
        figures = self.figures
        assert figures.digest in ("", found["digest"]), f"{figures.case}: processes of one checkout differ"
        figures.count, figures.digest, figures.numbers = found["count"], found["digest"], found["numbers"]

    def measure(self) -> None:
        """Time one run."""
        assert self._process.stdin is not None
        self._process.stdin.write("time\n")
        self._process.stdin.flush()
        found = self._heard()
        self.figures.cpu_s.append(found["cpu_s"])
        self.figures.wall_s.append(found["wall_s"])
        self.figures.peak_bytes = max(self.figures.peak_bytes, found["peak_bytes"])

    def _heard(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            if self._process.wait() == OVERDUE:
                raise TimeLimitError(f"{self.figures.case}: took more CPU time than it was given")
            raise CaseFailedError(f"{self.figures.case}: failed\n{self._complaints.read_text().strip()}")
        return dict(json.loads(line))

    def end(self) -> None:
        """Let it go."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._scratch.cleanup()


def measured(
    cases: Sequence[Figures],
    checkouts: Sequence[Path],
    traces: Path,
    shared: Path,
    times: int,
    limit_s: float = 0,
) -> None:
    """Run a case in each of some checkouts, by turns, and add what it took to its figures there."""
    running: list[Measuring] = []
    try:
        for figures, checkout in zip(cases, checkouts, strict=True):
            running.append(Measuring(figures, checkout, traces, shared, limit_s))
            running[-1].begin()  # one after the other: preparing disturbs measuring
        for _ in range(times):
            for each in running:
                each.measure()
    finally:
        for each in running:
            each.end()


def slower(this: Figures, other: Figures) -> bool:
    """Whether a case takes longer here, by more than is usual between runs of one checkout."""
    return this.best_s / other.best_s > 1 + max(TOLERANCE, this.spread, other.spread)


# --- what is printed ------------------------------------------------------------------------------------------


def alone(case: Case, traces: Path, shared: Path, times: int) -> tuple[dict[str, Any], bool]:
    """Measure a case in this checkout and print its line: its row, and whether it missed its floor."""
    figures = Figures(case.name, case.unit)
    measured([figures], [ROOT], traces, shared, times)
    bad = figures.per_s < case.floor or figures.peak_bytes > MOST_BYTES
    print(
        f"{case.name:58} {figures.count:10,} {case.unit:9} {figures.best_s:8.3f} {min(figures.wall_s):8.3f} "
        f"{figures.per_s:10,.0f} {case.floor or '':>8} {figures.peak_bytes / 1e6:6.0f}{' MISSED' if bad else ''}",
        flush=True,
    )
    return {**figures.row(), "floor": case.floor, "published": is_published(case, traces)}, bad


def compared(case: Case, other: Path, traces: Path, shared: Path, times: int) -> tuple[dict[str, Any], bool]:
    """Measure a case in this checkout and another by turns and print its line: its row, and whether it is slower."""
    here, there = Figures(case.name, case.unit), Figures(case.name, case.unit)
    measured([here, there], [ROOT, other], traces, shared, times)
    if slower(here, there):
        measured([there, here], [other, ROOT], traces, shared, times)
    bad = slower(here, there)
    ratio, spread = here.best_s / there.best_s, max(here.spread, there.spread)
    differs = here.count != there.count or here.digest != there.digest
    marks = (" SLOWER" if bad else "") + (" (another result)" if differs else "")
    print(f"{case.name:58} {here.best_s:8.3f} {there.best_s:8.3f} {ratio:6.2f} {100 * spread:6.1f}%{marks}", flush=True)
    row = {"case": case.name, "ratio": ratio, "spread": spread, "slower": bad, "same_result": not differs}
    return {**row, "here": here.row(), "there": there.row(), "published": is_published(case, traces)}, bad


def is_published(case: Case, traces: Path) -> bool:
    """Whether a case reads a public trace, and not a made-up one."""
    return bool(case.trace) and (traces / case.trace).exists()


def picked(cases: dict[str, Case], texts: Sequence[str], *, long: bool) -> list[Case]:
    """Cases whose name contains one of the texts; without any, all that are not long."""
    if not texts:
        return [case for case in cases.values() if long or not case.long]
    return [case for case in cases.values() if any(text in case.name for text in texts)]


def arguments() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--case", action="append", default=[], help="only cases whose name contains this; repeatable")
    parser.add_argument("--long", action="store_true", help="those that take long, too")
    parser.add_argument("--list", action="store_true", help="print the names of the cases and stop")
    parser.add_argument("--best-of", type=int, metavar="N", help="runs of each case (5; with --growth 1)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--against", type=Path, metavar="FOLDER", help="another checkout, to take turns with")
    parser.add_argument("--traces", type=Path, default=os.environ.get("HEADWAY_TRACES", ROOT.parent / "shared/traces"))
    parser.add_argument("--growth", action="store_true", help="how the cost grows with jobs and with GPUs")
    parser.add_argument("--quick", action="store_true", help="with --growth: only small points, two minutes")
    parser.add_argument("--out", type=Path, metavar="CSV", help="with --growth: a row a point (headway-growth.csv)")
    parser.add_argument("--limit", type=float, metavar="S", help="with --growth: CPU seconds a point may take (600)")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--checkout", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--scratch", type=Path, help=argparse.SUPPRESS)
    return parser


def main() -> int:
    """Measure, print, and fail where a case failed, a floor was missed or something is slower."""
    parser = arguments()
    given = parser.parse_args()
    traces = Path(given.traces).resolve()
    if given.child:
        sys.stdout = sys.stderr  # answers go to the real one
        limit_cpu(given.limit)
        case = growth.case_of(given.child) if given.child.startswith(growth.PREFIX) else registry()[given.child]
        serve(case, given.checkout, Place(traces, given.scratch))
        return 0
    chosen = picked(growth.cases(quick=given.quick) if given.growth else registry(), given.case, long=given.long)
    if given.list:
        print("\n".join(case.name for case in chosen))
        return 0
    if given.best_of is not None and given.best_of < 1:
        parser.error("--best-of: at least 1")
    if not chosen:
        parser.error(f"no case contains {' or '.join(given.case)}")
    if given.growth and (given.against or given.json):
        parser.error("--growth measures this checkout and writes a CSV: leave out --against and --json")
    if not given.growth and (given.quick or given.out or given.limit is not None):
        parser.error("--quick, --out and --limit go with --growth")
    limit_s = 600 if given.limit is None else given.limit
    if not limit_s > 0:
        parser.error(f"--limit {limit_s:g}: must be above 0")
    if given.against is not None and not (given.against / "src" / "headway").is_dir():
        parser.error(f"--against {given.against}: there is no src/headway in it")
    if not given.growth:
        return played(chosen, given.against and given.against.resolve(), traces, given.best_of or 5, given.json)
    from bench import growth_run

    return growth_run.run(chosen, given.out or Path("headway-growth.csv"), limit_s, given.best_of or 1)


def played(chosen: Sequence[Case], other: Path | None, traces: Path, times: int, target: Path | None) -> int:
    """Measure all cases and return the exit status; what is measured is in the target file after each of them."""
    print(HEADING if other is None else HEADING_AGAINST)
    rows: list[dict[str, Any]] = []
    failed = wrong = 0
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as shared:
        for case in chosen:
            try:
                if other is None:
                    row, bad = alone(case, traces, Path(shared), times)
                else:
                    row, bad = compared(case, other, traces, Path(shared), times)
            except CaseFailedError as problem:
                failed += 1
                print(problem, file=sys.stderr, flush=True)
                continue
            rows.append(row)
            wrong += bad
            if target:
                target.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    what = "missed their floor" if other is None else f"are slower here than in {other}"
    print(f"{wrong} of {len(chosen)} cases {what}, {failed} failed")
    return 1 if wrong or failed else 0


if __name__ == "__main__":
    sys.exit(main())

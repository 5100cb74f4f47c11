"""Measure how the cost of a run grows: ``scripts/bench --growth``.

Each point (``bench/growth.py``) runs in a process of its own, which plays it once, checks that every job ended, and
plays it again with a clock; the tape of the smallest point of a series and policy is audited first, in another process.
Each point is a row of the CSV as soon as it is known, so a command that was stopped goes on where it was. A point that
takes more CPU time than the limit is ended, and one that is expected to is not begun: its row says so in ``note``, and
a later command with a higher limit tries it again. A figure is drawn beside the CSV, as HTML and as SVG, and the tables
are printed.
"""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.cases import Case
from bench.growth import AUDITED, Point, point_of
from bench.growth_figure import draw, tables
from bench.growth_rows import Row, Rows, why_not
from bench.run import ROOT, CaseFailedError, Figures, TimeLimitError, cpu_s, measured
from bench.synergy import code
from headway.errors import InputError
from headway.show.progress import Board


def run(cases: Sequence[Case], path: Path, limit_s: float, times: int) -> int:
    """Measure the points that are not in the file, draw all that are, and return the exit status."""
    try:
        rows, source = Rows(path, limit_s), code()
    except InputError as problem:
        print(problem, file=sys.stderr)
        return 2
    points = [point_of(case.name) for case in cases]
    missing = [point for point in points if point not in rows.known]
    failed = 0
    with Board(len(points), "points", len(points) - len(missing)) as board, tempfile.TemporaryDirectory() as shared:
        for key, point in enumerate(missing):
            board.tell(key, point.name, None)
            try:
                rows.add(_row(point, rows, limit_s, times, source, Path(shared)))
            except CaseFailedError as problem:
                failed += 1
                print(problem, file=sys.stderr, flush=True)
            board.ended(key)
    known = list(rows.known.values())
    print(*tables(known), sep="\n")
    for target in draw(known, path):
        print(f"wrote {target}", file=sys.stderr)
    if any(row.code != source for row in known):
        print(f"some rows of {path} were measured with other code: remove the file to measure all", file=sys.stderr)
    if failed:
        print(f"{failed} of {len(points)} points failed", file=sys.stderr)
    return 1 if failed else 0


def _row(point: Point, rows: Rows, limit_s: float, times: int, source: str, shared: Path) -> Row:
    """Measure a point, or say why it has no numbers."""
    which = {"series": point.series, "policy": point.policy, "jobs": point.jobs, "gpus": point.gpus}
    smaller = rows.smaller(point)
    if note := why_not(point, smaller, limit_s):
        return Row(**which, limit_s=limit_s, code=source, note=note)
    figures, began = Figures(point.name, "jobs"), cpu_s()
    try:
        if not smaller:
            audited = Figures(point.name + AUDITED, "jobs")
            measured([audited], [ROOT], ROOT, shared, 0, limit_s)
            began = cpu_s()
        measured([figures], [ROOT], ROOT, shared, times, limit_s)
    except TimeLimitError:
        return Row(**which, limit_s=limit_s, code=source, note=f"ended after {limit_s:g} CPU s, the limit")
    return Row(
        **which,
        wall_s=round(min(figures.wall_s), 3),
        cpu_s=round(figures.best_s, 3),
        jobs_per_s=round(figures.per_s, 1),
        peak_bytes=figures.peak_bytes,
        **figures.numbers,
        digest=figures.digest[:12],
        took_s=round(cpu_s() - began, 3),
        limit_s=limit_s,
        code=source,
    )

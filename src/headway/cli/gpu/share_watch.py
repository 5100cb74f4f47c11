"""Keep the status of a shared GPU on the screen, with slow-down and harvest over the last minutes."""

import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from headway.errors import printable
from headway.show.sparks import Point, band, spark
from headway.show.terminal import PlainConsole
from headway.units import SECOND, format_duration

Row = Mapping[str, Any]
Draw = Callable[[Row, Row | None, int], RenderableType]
"""Draws a snapshot, with shares since the one before, no wider than so many columns."""
MOST_LOOKS = 600
LEAST_HEIGHT, MOST_HEIGHT = 5, 9
"""Lines of the picture of a slow-down."""
_LABELS = 8
"""Columns of the labels on the left."""


class History:
    """What was seen of each program at the last looks."""

    def __init__(self) -> None:
        self._before: Row | None = None
        self._looks: deque[Row] = deque(maxlen=MOST_LOOKS)
        self._harvest: deque[dict[int, float]] = deque(maxlen=MOST_LOOKS)

    def __len__(self) -> int:
        return len(self._looks)

    def look(self, now: Row) -> None:
        """Take in a snapshot."""
        earlier = {row["slot"]: row for row in self._before["clients"]} if self._before else {}
        self._harvest.append(
            {
                row["slot"]: _harvested(row, before)
                for row in now["clients"]
                if (before := earlier.get(row["slot"])) is not None and before["pid"] == row["pid"]
            }
        )
        self._looks.append({row["slot"]: row for row in now["clients"]})
        self._before = now

    def slowdown(self, row: Row, looks: int) -> list[Point]:
        """Return slow-down and interval of a program at the last looks, the newest last."""
        points: list[Point] = []
        for seen in list(self._looks)[-looks:]:
            then = seen.get(row["slot"])
            if then is None or then["pid"] != row["pid"] or then["slowdown"] is None:
                points.append(None)
            else:
                points.append((then["slowdown_low"], then["slowdown"], then["slowdown_high"]))
        return points

    def harvest(self, row: Row, looks: int) -> list[float | None]:
        """Return the share of the GPU's time that a program harvested between the last looks."""
        recent = zip(list(self._looks)[-looks:], list(self._harvest)[-looks:], strict=True)
        return [
            shares.get(row["slot"]) if row["slot"] in seen and seen[row["slot"]]["pid"] == row["pid"] else None
            for seen, shares in recent
        ]


def _harvested(row: Row, before: Row) -> float:
    """Return the share of the time between two looks that was harvested."""
    passed_s = row["up_s"] - before["up_s"]
    return max(0.0, float((row["harvested_ms"] - before["harvested_ms"]) / 1e3 / passed_s)) if passed_s > 0 else 0.0


def pictures(now: Row, history: History, width: int, height: int, every_s: float) -> list[str]:
    """Return slow-down and harvest of the last looks in lines of at most so many characters."""
    looks = max(10, min(MOST_LOOKS, width - _LABELS - 1))
    clients = sorted(now["clients"], key=lambda each: (each["priority"], each["slot"]))
    above = [row for row in clients if not row["gated"] and any(history.slowdown(row, looks))]
    below = [row for row in clients if row["gated"]]
    lines: list[str] = []
    room = (height - 3 * len(below) - 2) // max(1, len(above)) - 2
    for row in above if room >= LEAST_HEIGHT else ():
        points = history.slowdown(row, looks)
        lines += ["", f"slow-down of {row['name']}: value ●, interval ░, aim ┄ {now['slo']:g}×"]
        lines += band(points, now["slo"], min(MOST_HEIGHT, room))
    for row in below:
        values = history.harvest(row, looks)
        known = [value for value in values if value is not None]
        top, last = (max(known), known[-1]) if known else (0.0, 0.0)
        full = f"(a full bar is {100 * top:.1f} %)"
        lines += ["", f"harvested by {row['name']}: {100 * last:.1f} % of the GPU's time {full}"]
        lines.append(f"{'':{_LABELS}}{spark(values, top)}")
    if lines:
        seen_s = min(looks, len(history)) * every_s
        lines += ["", f"the last {format_duration(round(seen_s * SECOND))}, the newest on the right"]
    return [printable(line)[:width] for line in lines]


def watch(snapshot: Callable[[], Row], draw: Draw, show: Callable[[Row], None], every_s: float) -> None:
    """Show the status again and again until Ctrl-C: on a screen of its own, or line after line where there is none."""
    screen = PlainConsole()  # of no fixed size: it follows the terminal's
    try:
        if not sys.stdout.isatty() or screen.is_dumb_terminal:
            while True:
                show(snapshot())
                sys.stdout.flush()
                time.sleep(every_s)
        history, before = History(), None
        with Live(console=screen, auto_refresh=False, screen=True, vertical_overflow="crop") as live:
            while True:
                now = snapshot()
                history.look(now)
                table = draw(now, before, screen.width)
                used = len(screen.render_lines(table, pad=False))
                lines = pictures(now, history, screen.width, screen.height - used, every_s)
                live.update(Group(table, Text("\n".join(lines), no_wrap=True, overflow="crop")), refresh=True)
                before = now
                time.sleep(every_s)
    except KeyboardInterrupt:
        return

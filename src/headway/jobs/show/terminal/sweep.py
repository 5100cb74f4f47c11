"""Make the pivot table of a sweep over training jobs: mean JCT, one column for each value of the compared setting."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from headway.show.terminal import framed
from headway.show.time_unit import in_unit, time_unit

Row = Mapping[str, Any]
MOST_COLUMNS = 8
"""With more values of the compared setting, a list is easier to read."""


def pivot(rows: Sequence[Row], across: str) -> Table | None:
    """Return mean JCT, interval and change, a line for each combination of the other keys; None if there are none."""
    columns = list(dict.fromkeys(str(row["values"].get(across, "")) for row in rows))
    others = [key for key in rows[0]["values"] if key != across]
    if not across or not others or not 2 <= len(columns) <= MOST_COLUMNS:
        return None
    level = next((row["confidence"] for row in rows if row.get("confidence")), None)
    interval = f" [{100 * level:.4g} % interval]" if level else ""
    baseline = rows[0].get("baseline")
    heads = [key.rpartition(".")[2] for key in others]
    table = framed(heads, columns, f"mean JCT{interval} (change against {baseline})")
    unit, size = time_unit(max((row["jct_mean_s"] or 0 for row in rows), default=0))
    lines: dict[tuple[str, ...], dict[str, Row]] = {}
    for row in rows:
        lines.setdefault(tuple(str(row["values"][key]) for key in others), {})[str(row["values"][across])] = row
    for values, line in lines.items():
        best = min((row["jct_mean_s"] for row in line.values() if row["jct_mean_s"] is not None), default=None)
        table.add_row(*values, *(_cell(line.get(name), best, unit, size) for name in columns))
    return table


def _cell(row: Row | None, best: float | None, unit: str, size: int) -> Text:
    if row is None or row["jct_mean_s"] is None:
        return Text("–")
    text = in_unit(row["jct_mean_s"], unit, size)
    low, high = row.get("jct_mean_low_s"), row.get("jct_mean_high_s")
    if low is not None and high is not None:
        text += f" [{low / size:,.2f}, {high / size:,.2f}]"
    if row.get("jct_change") is not None:
        text += f" ({100 * row['jct_change']:+.1f} %)"
    return Text(text, style="bold green" if row["jct_mean_s"] == best else "")

"""Make terminal tables of kernel runs on one GPU: policies side by side, and the clients of one run."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.table import Table

from headway.fleet.show.terminal.comparison import baseline_name, change_text
from headway.gpu.profiling.summary import readable
from headway.show.names import labels

Row = Mapping[str, Any]


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}×"


def _ms(value: float | None) -> str:
    return "" if value is None else f"{1000 * value:,.2f} ms"


def _range(row: Row) -> str:
    low, high = row.get("slowdown_p50_low"), row.get("slowdown_p50_high")
    return "" if low is None or high is None else f"[{low:.3f}, {high:.3f}]"


def _count(value: int | None) -> str:
    return "" if value is None else str(value)


_RANGE = "slowdown_p50_range"
_COLUMNS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("seeds", "seeds", _count),
    ("slow-down p50", "slowdown_p50", _ratio),
    ("interval", _RANGE, _range),
    ("vs {baseline}", "slowdown_change", change_text),
    ("slow-down p99", "slowdown_p99", _ratio),
    ("latency p50", "latency_p50_s", _ms),
    ("latency p99", "latency_p99_s", _ms),
    ("low share", "low_share", _share),
    ("low share vs {baseline}", "low_share_change", change_text),
    ("busy alone", "busy_share_alone", _share),
    ("busy", "busy_share", _share),
    ("gated", "gated_s", _ms),
    ("held up", "held_up_s", _ms),
)
"""Heading, key, and how it is written."""
_NOT_ALWAYS = ("seeds", _RANGE, "slowdown_change", "low_share_change")
"""Columns of several seeds, or of a comparison."""


def comparison(rows: Sequence[Row]) -> Table:
    """Return one line a run."""
    table = Table(box=None)
    table.add_column("variant" if any(row.get("variant") for row in rows) else "policy")
    names = labels(rows)
    shown = [column for column in _COLUMNS if column[1] not in _NOT_ALWAYS or _is_told(rows, column[1])]
    for heading, _, _ in shown:
        table.add_column(heading.format(baseline=baseline_name(rows, names)), justify="right")
    for name, row in zip(names, rows, strict=True):
        table.add_row(name, *(written(row if key == _RANGE else row.get(key)) for _, key, written in shown))
    return table


def _is_told(rows: Sequence[Row], key: str) -> bool:
    if key == "seeds":
        return any(row.get(key, 1) > 1 for row in rows)
    return any(row.get("slowdown_p50_low" if key == _RANGE else key) is not None for row in rows)


def clients(row: Row) -> Table:
    """Return one line a client, with the kernel that held it up the longest."""
    table = Table(box=None)
    table.add_column("client")
    for name in ("priority", "requests", "slow-down p50", "slow-down p99", "throughput", "gated", "held up"):
        table.add_column(name, justify="right")
    table.add_column("most by")
    for client in row["clients"]:
        worst = client["held_up_by"][0] if client["held_up_by"] else None
        table.add_row(
            *(client["client"], str(client["priority"]), f"{client['requests']:,}"),
            *(_ratio(client["slowdown_p50"]), _ratio(client["slowdown_p99"]), _share(client["throughput_share"])),
            *(_ms(client["gated_s"]), _ms(client["held_up_s"])),
            f"{readable(worst['kernel'])} ({_ms(worst['delay_s'])})" if worst else "",
        )
    return table


def prediction(modes: Mapping[str, Row], below: int) -> Table:
    """Return one line a way to share, by the policy that plays it; ``below``: how many programs are."""
    table = Table(box=None)
    rates = "rate of the one below" if below == 1 else "rates below, added up"
    for name in ("policy", "slow-down p50", "slow-down p99", rates, "GPU busy"):
        table.add_column(name, justify="left" if name == "policy" else "right")
    for name, row in modes.items():
        times = [_ratio(row[key]) or "–" for key in ("slowdown_p50", "slowdown_p99")]
        shares = [row["low_share"], row["busy_share"]]
        table.add_row(name, *times, *("–" if share is None else f"{100 * share:.0f} %" for share in shares))
    return table

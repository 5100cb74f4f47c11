"""Runs of kernels on one GPU, for a terminal: policies side by side, and the clients of one run."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from headway.profiling.kernels_summary import readable
from headway.report.names import labels

Row = Mapping[str, Any]


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}×"


def _ms(value: float | None) -> str:
    return "" if value is None else f"{1000 * value:,.2f} ms"


def comparison(rows: Sequence[Row]) -> Table:
    """Return one line a run."""
    table = Table(box=None)
    table.add_column("variant" if any(row.get("variant") for row in rows) else "policy")
    for name in ("slow-down p50", "p99", "p50", "p99", "low share", "busy alone", "busy", "gated", "held up"):
        table.add_column(name, justify="right")
    for name, row in zip(labels(rows), rows, strict=True):
        table.add_row(
            *(name, _ratio(row["slowdown_p50"]), _ratio(row["slowdown_p99"])),
            *(_ms(row["latency_p50_s"]), _ms(row["latency_p99_s"]), _share(row["low_share"])),
            *(_share(row["busy_share_alone"]), _share(row["busy_share"])),
            *(_ms(row["gated_s"]), _ms(row["held_up_s"])),
        )
    return table


def clients(row: Row) -> Table:
    """Return one line a client, with the kernel that held it up the longest."""
    table = Table(box=None)
    table.add_column("client")
    for name in ("priority", "requests", "slow-down p50", "p99", "throughput", "gated", "held up"):
        table.add_column(name, justify="right")
    table.add_column("most by")
    for each in row["clients"]:
        worst = each["held_up_by"][0] if each["held_up_by"] else None
        table.add_row(
            *(each["client"], str(each["priority"]), f"{each['requests']:,}"),
            *(_ratio(each["slowdown_p50"]), _ratio(each["slowdown_p99"]), _share(each["throughput_share"])),
            *(_ms(each["gated_s"]), _ms(each["held_up_s"])),
            f"{readable(worst['kernel'])} ({_ms(worst['delay_s'])})" if worst else "",
        )
    return table


def prediction(modes: Mapping[str, Row], below: int) -> Table:
    """Return one line a way to share, by the policy that plays it; ``below``: how many programs are."""
    table = Table(box=None)
    rates = "rate of the one below" if below == 1 else "rates below, added up"
    for name in ("policy", "slow-down p50", "p99", rates, "GPU busy"):
        table.add_column(name, justify="left" if name == "policy" else "right")
    for name, row in modes.items():
        times = [_ratio(row[key]) or "–" for key in ("slowdown_p50", "slowdown_p99")]
        shares = [row["low_share"], row["busy_share"]]
        table.add_row(name, *times, *("–" if each is None else f"{100 * each:.0f} %" for each in shares))
    return table

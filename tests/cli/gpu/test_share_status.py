"""The table of ``headway share status``: what it says of who does not wait."""

from typing import Any

import pytest
from rich.console import Console

from headway.cli.gpu.share_status import table_of

ROW: dict[str, Any] = {
    "slot": 0, "name": "batch", "priority": 5, "pid": 7, "launches": 3, "waited_ms": 0.0, "waits": 0, "busy_share": 0.5,
    "harvested_ms": 0.0, "delay_ms": 0.0, "slowdown": None, "blamed_kernel": "", "gated": True, "held": False,
    "open": False, "sms": 1.0, "kernel_rows": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "stopping", "said"),
    [
        ({}, "", "gated"),
        ({"gated": False}, "", "goes first"),
        ({"held": True}, "", "held, to see those above alone"),
        ({"open": True}, "", "ungated: it does not trust the broker"),
        ({"open": True}, "drain", "ungated: the broker takes its leave"),
    ],
)
def test_why_a_program_waits_or_not(changed: dict[str, Any], stopping: str, said: str) -> None:
    console = Console(width=180)
    with console.capture() as printed:
        console.print(table_of({"clients": [{**ROW, **changed}], "stopping": stopping}, None))
    assert said in printed.get()

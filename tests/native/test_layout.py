"""The block as the compiler lays it out and as Python mirrors it: the same, field by field."""

import ctypes
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from headway.gpu.share.block import block
from tests.native.harness import program

MIRRORS: dict[str, type[ctypes.Structure]] = {
    "Rules": block.Rules,
    "Pulse": block.Pulse,
    "Book": block.Book,
    "Want": block.Want,
    "Ledger": block.Ledger,
    "Kernel": block.Kernel,
    "Step": block.Step,
    "Span": block.Span,
    "Slot": block.Slot,
    "Header": block.Header,
    "Block": block._Block,
}
FILLERS = {"spare", "spares", "pad", "tail"}


@pytest.fixture(scope="session")
def layout(native_folder: Path) -> dict[str, Any]:
    """What the compiler says."""
    ran = subprocess.run([program(native_folder / "layout", "layout")], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


@pytest.mark.parametrize("name", MIRRORS)
def test_a_record_is_the_same_in_both(layout: dict[str, Any], name: str) -> None:
    mirror, record = MIRRORS[name], layout["records"][name]
    fields = {field: getattr(mirror, field) for field, *_ in mirror._fields_ if field not in FILLERS}
    assert {field: [at.offset, at.size] for field, at in fields.items()} == record["fields"]
    assert ctypes.sizeof(mirror) == record["size"]


def test_the_constants_are_the_same_in_both(layout: dict[str, Any]) -> None:
    ours = (block.MAGIC, block.VERSION, block.SLOTS, block.KERNELS, block.STEPS, block.SPANS, block.REASONS)
    assert tuple(layout[name] for name in ("magic", "version", "slots", "kernels", "steps", "spans", "reasons")) == ours

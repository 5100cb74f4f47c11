"""What a client has learnt, between its slot of the shared block and the store of profiles.

Rows of the store are plain dicts, identities in hexadecimal. In a slot a row lies where the shim looks for it: at its
identity modulo the size of the table, or at the next free place after that.
"""

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from headway.live.kernels.block import KERNELS, STEPS, Kernel, Slot, Step

Row = Mapping[str, Any]

KERNEL_FIELDS = ("work_ns", "samples", "longest_ns", "blocks", "per_sm", "kind", "varied")
STEP_FIELDS = ("gap_ns", "think_ns", "alone_ns", "slack_ns", "samples", "waits", "alone", "work_ns")
_NAME_BYTES = 111
SHAPES = KERNELS // 4 * 3
"""Kernels that the shim tells apart by their shape; a program with more has one row a name for the rest."""
_STEP_PROBES = 32
"""The shim looks for a step at so many places."""


def text(raw: bytes) -> str:
    """A text of the block."""
    return raw.decode(errors="replace")


def read(slot: Slot) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The kernels and the steps that a client knows something of, those it launches most often first."""
    kernels = [
        {"id": f"{row.id:016x}", "name": text(row.name), **{field: getattr(row, field) for field in KERNEL_FIELDS}}
        for row in sorted(slot.kernels, key=lambda row: (-row.launches, -row.samples))
        if row.id and row.samples
    ]
    steps = [
        {"key": f"{row.key:016x}", **{field: getattr(row, field) for field in STEP_FIELDS}}
        for row in sorted(slot.steps, key=lambda row: -row.samples)
        if row.key and row.samples
    ]
    return kernels, steps


def write(slot: Slot, kernels: Sequence[Row], steps: Sequence[Row]) -> int:
    """Put stored rows into a slot, the first ones where all would leave no room for new ones; one that is not
    understood is left out. Returns how many kernels went in."""
    known = 0
    for each in kernels[: KERNELS // 2]:
        try:
            number = int(str(each["id"]), 16)
            values = {field: int(each.get(field, 0)) for field in KERNEL_FIELDS}
        except (KeyError, TypeError, ValueError):
            continue
        kernel = _kernel_at(slot, number)
        if kernel is None:
            continue
        for field, value in values.items():
            setattr(kernel, field, value)
        kernel.name = str(each.get("name", "")).encode()[:_NAME_BYTES]
        kernel.id = number
        known += 1
    for each in steps[: STEPS // 2]:
        try:
            number = int(str(each["key"]), 16)
            values = {field: int(each.get(field, 0)) for field in STEP_FIELDS}
        except (KeyError, TypeError, ValueError):
            continue
        step = _step_at(slot, number)
        if step is None:
            continue
        for field, value in values.items():
            setattr(step, field, value)
        step.key = number
    return known


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a program, laid out as in a slot: it goes into one in a moment."""

    kernels: Sequence[Row]
    steps: Sequence[Row]
    laid: Slot
    count: int

    @classmethod
    def of(cls, kernels: Sequence[Row], steps: Sequence[Row]) -> Self:
        """Lay rows out."""
        laid = Slot()
        return cls(kernels, steps, laid, write(laid, kernels, steps))

    def into(self, slot: Slot) -> int:
        """Put it into a slot. Returns how many kernels went in."""
        if any(row.id for row in slot.kernels):  # the client waited for it no longer, and has rows of its own
            return write(slot, self.kernels, self.steps)
        for name in ("steps", "kernels"):
            field = getattr(Slot, name)
            ctypes.memmove(
                ctypes.addressof(slot) + field.offset, ctypes.addressof(self.laid) + field.offset, field.size
            )
        return self.count


def _kernel_at(slot: Slot, number: int) -> Kernel | None:
    for probe in range(KERNELS if number else 0):
        row: Kernel = slot.kernels[(number + probe) % KERNELS]
        if row.id == 0:
            return row
        if row.id == number:  # the client was faster: what it saw itself counts for more
            return None
    return None


def _step_at(slot: Slot, number: int) -> Step | None:
    for probe in range(_STEP_PROBES if number else 0):
        row: Step = slot.steps[(number + probe) % STEPS]
        if row.key == 0:
            return row
        if row.key == number:
            return None
    return None


def rows(slot: Slot) -> int:
    """How many kernels a client tells apart."""
    return sum(1 for row in slot.kernels if row.id)


def blamed(slot: Slot) -> tuple[str, int]:
    """The kernel of a client that delayed those above it the most, and by how much; no name where none did."""
    worst, longest = "", 0
    for row in slot.kernels:
        if row.id and row.blamed_ns > longest:
            worst, longest = text(row.name), row.blamed_ns
    return worst, longest

"""Profiles of programs, converted between the two forms that the broker has them in: a slot and rows.

A slot is the part of the shared memory block that belongs to one client (``block.py``). Rows are plain dicts, with
identities in hexadecimal, and are what is saved on disk. In a slot the tables are open-addressed hash tables: a
row is at its identity modulo the size of the table, or at the next free place after that.
"""

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from headway.gpu.control.sms_outcomes import keyed
from headway.gpu.share.block.block import KERNELS, STEPS, Kernel, Slot, Step

Row = Mapping[str, Any]

KERNEL_FIELDS = ("work_ns", "samples", "longest_ns", "blocks", "per_sm", "kind", "varied")
STEP_FIELDS = ("gap_ns", "think_ns", "slack_ns", "samples", "waits", "work_ns")
_NAME_BYTES = 111
SHAPES = KERNELS // 4 * 3
"""Kernels that the shim distinguishes by their grid; a program with more has one row for each name for the rest."""
_STEP_PROBES = 32
"""Places that the shim probes for a step."""


def text(raw: bytes) -> str:
    """Return a text of the block as a string."""
    return raw.decode(errors="replace")


def key(slot: Slot) -> str:
    """Return the name that a client's profile is stored under: its program, with its limit on SMs."""
    program = text(slot.program)
    return keyed(program, slot.sms_ppm) if program else ""


def read(slot: Slot) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the kernels and the steps of a client that have samples, the most frequent first."""
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
    """Write stored rows into a slot, at most half of each table; invalid rows are left out.

    Return how many kernels were written.
    """
    known = _put(slot.kernels, "id", KERNEL_FIELDS, KERNELS, kernels[: KERNELS // 2])
    _put(slot.steps, "key", STEP_FIELDS, _STEP_PROBES, steps[: STEPS // 2])
    return known


def _put(table: Any, identity: str, fields: Sequence[str], probes: int, rows: Sequence[Row]) -> int:
    """Write stored rows into one table of a slot and return how many were written."""
    count = 0
    for stored in rows:
        try:
            number = int(str(stored[identity]), 16)
            values = {field: int(stored.get(field, 0)) for field in fields}
        except (KeyError, TypeError, ValueError):
            continue
        if (row := _free_place(table, identity, number, probes)) is None:
            continue
        for field, value in values.items():
            setattr(row, field, value)
        if isinstance(row, Kernel):
            row.name = str(stored.get("name", "")).encode()[:_NAME_BYTES]
        setattr(row, identity, number)  # last: it makes the row valid
        count += 1
    return count


def _free_place(table: Any, identity: str, number: int, probes: int) -> Kernel | Step | None:
    """Return the free place for a row; None where the row is there already, or no place within ``probes`` is free."""
    for probe in range(probes if number else 0):
        row: Kernel | Step = table[(number + probe) % len(table)]
        if (there := getattr(row, identity)) in (0, number):  # one that is there: what the client saw itself counts
            return None if there else row
    return None


@dataclass(frozen=True, slots=True)
class SlotProfile:
    """The profile of a program in both forms, so that copying it into a client's slot is fast."""

    kernels: Sequence[Row]
    steps: Sequence[Row]
    slot: Slot
    count: int

    @classmethod
    def of(cls, kernels: Sequence[Row], steps: Sequence[Row]) -> Self:
        """Return the profile of these rows."""
        slot = Slot()
        return cls(kernels, steps, slot, write(slot, kernels, steps))

    def into(self, slot: Slot) -> int:
        """Write the profile into a slot; return how many kernels were written."""
        if any(row.id for row in slot.kernels):  # the client did not wait, and has rows of its own
            return write(slot, self.kernels, self.steps)
        for name in ("steps", "kernels"):
            field = getattr(Slot, name)
            ctypes.memmove(
                ctypes.addressof(slot) + field.offset, ctypes.addressof(self.slot) + field.offset, field.size
            )
        return self.count


def rows(slot: Slot) -> int:
    """Return how many kernels a client has."""
    return sum(1 for row in slot.kernels if row.id)


def blamed(slot: Slot) -> tuple[str, int]:
    """Return the kernel of a client that delayed those above it the most, and by how much; no name where none did."""
    worst = max((row for row in slot.kernels if row.id), key=lambda row: row.blamed_ns, default=None)
    return (text(worst.name), worst.blamed_ns) if worst is not None and worst.blamed_ns > 0 else ("", 0)

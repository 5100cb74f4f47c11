"""Whole steps of a client, read from the ring in its slot."""

import ctypes
from struct import Struct

from headway.gpu.control.slowdown import Step
from headway.gpu.share.block.block import SPANS, Slot, Span

_SPAN = Struct("<qqqIIII")
_LONGEST_NS = 100_000_000_000
"""A step that is longer is not believed."""


def read(slot: Slot, last: int) -> tuple[list[Step], int]:
    """Return the steps after the ``last``-th, and how many there are now; those that the ring has lost are left out.

    A step that is being written, or is not plausible, is left out, too: a client may write anything.
    """
    count = slot.ledger.spans
    if count == last:
        return [], last
    first = max(last if last < count else 0, count - SPANS)
    steps: list[Step] = []
    base = ctypes.addressof(slot) + Slot.spans.offset
    while first < count:
        at = first % SPANS
        rows = min(count - first, SPANS - at)
        raw = ctypes.string_at(base + at * ctypes.sizeof(Span), rows * _SPAN.size)
        for offset, (begin, end, cpu, launches, kind, marked, number) in enumerate(_SPAN.iter_unpack(raw)):
            if number == (first + offset + 1) % 2**32 and 0 < end - begin < _LONGEST_NS:
                steps.append(Step(begin, end, launches, kind, marked == 1, max(0, min(cpu, end - begin))))
        first += rows
    return steps, count

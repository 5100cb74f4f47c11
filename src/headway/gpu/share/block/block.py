"""The shared memory block as ctypes structures: native/protocol.h field by field.

A test compares every offset with the compiler's. Fields are aligned words, read and written whole and without locks:
each has one writer.
"""

import contextlib
import ctypes
import errno
import mmap
import os
from ctypes import c_char, c_int64, c_uint32, c_uint64
from pathlib import Path
from typing import Self

from headway.errors import ShareError
from headway.gpu.share.block.socket import BlockListener, asked, is_sealed, sealed_memory
from headway.units import format_size

MAGIC = 0x5941574441454831
VERSION = 4
SLOTS = 32
KERNELS = 1024
STEPS = 16384
SPANS = 1024
REASONS = 16
FREE, CLAIMED, LIVE, LEFT = range(4)


class Rules(ctypes.Structure):
    """The rules that the broker sets for one client's gate."""

    _fields_ = (
        ("gate", c_uint32),
        ("hold", c_uint32),
        ("watched", c_uint32),
        ("bypass", c_uint32),
        ("latency_ns", c_int64),
        ("sample_every", c_int64),
        ("raised", c_int64),
        ("threshold_ns", c_int64),
        ("depth_ns", c_int64),
        ("idle_depth_ns", c_int64),
        ("silence_ns", c_int64),
        ("absorb_ppm", c_int64),
        ("overlap_ppm", c_int64),
        ("credit_ppm", c_int64),
        ("credit_cap_ns", c_int64),
        ("floor_ppm", c_int64),
        ("whole", c_int64),
        ("scale_ppm", c_int64),
        ("longest_ns", c_int64),
        ("spare", c_int64 * 7),
    )


class Pulse(ctypes.Structure):
    """What a client publishes at each launch, for clients of lower priority."""

    _fields_ = (
        ("launches", c_uint64),
        ("launch_ns", c_int64),
        ("busy_ns", c_int64),
        ("next_ns", c_int64),
        ("slack_ns", c_int64),
        ("epoch", c_uint64),
        ("waiting_ns", c_int64),
        ("spare", c_int64),
    )


class Book(ctypes.Structure):
    """The delay of a client that those below it have caused and that it has not made up; they write it."""

    _fields_ = (("lag_ns", c_int64), ("slack_ns", c_int64), ("epoch", c_uint64), ("spare", c_int64 * 5))


class Want(ctypes.Structure):
    """The launch that a client waits with at the gate."""

    _fields_ = (
        ("fill_ns", c_int64),
        ("since_ns", c_int64),
        ("served_ns", c_int64),
        ("kernel", c_uint64),
        ("end_ns", c_int64),
        ("seen_ns", c_int64),
        ("spare", c_int64 * 2),
    )


class Ledger(ctypes.Structure):
    """Counters of a client since it joined."""

    _fields_ = (
        ("beat_ns", c_int64),
        ("kernels", c_uint64),
        ("work_ns", c_int64),
        ("graphs", c_uint64),
        ("copies", c_uint64),
        ("captured", c_uint64),
        ("nccl", c_uint64),
        ("waits", c_uint64),
        ("waited_ns", c_int64),
        ("harvested_ns", c_int64),
        ("delay_ns", c_int64),
        ("syncs", c_uint64),
        ("samples", c_uint64),
        ("dropped", c_uint64),
        ("spans", c_uint64),
        ("marked", c_uint64),
        ("reasons", c_uint64 * REASONS),
        ("open", c_uint64),
        ("threads", c_uint64),
        ("hook_ns", c_int64),
        ("hooked", c_uint64),
        ("asked_ns", c_int64),
        ("asked", c_uint64),
        ("passed", c_uint64),
        ("harm_ns", c_int64),
    )


class Kernel(ctypes.Structure):
    """One kernel of a client: its run time, its grid, how often it was launched."""

    _fields_ = (
        ("id", c_uint64),
        ("work_ns", c_int64),
        ("samples", c_uint64),
        ("launches", c_uint64),
        ("blocks", c_uint32),
        ("per_sm", c_uint32),
        ("longest_ns", c_int64),
        ("contention_ppm", c_int64),
        ("kind", c_uint32),
        ("varied", c_uint32),
        ("blamed_ns", c_int64),
        ("name", c_char * 112),
        ("beside_ns", c_int64),
    )


class Step(ctypes.Structure):
    """What follows two kernels in a row: the time to the next launch, and the idle time to the next wait."""

    _fields_ = (
        ("key", c_uint64),
        ("gap_ns", c_int64),
        ("think_ns", c_int64),
        ("slack_ns", c_int64),
        ("samples", c_uint32),
        ("waits", c_uint32),
        ("work_ns", c_uint32),
        ("after", c_uint32),
        ("sure", c_uint32),
        ("spare", c_uint32),
        ("spares", c_int64),
    )


class Span(ctypes.Structure):
    """One whole step of a client, in a ring; ``number`` counts from 1 and is 0 while the step is written."""

    _fields_ = (
        ("begin_ns", c_int64),
        ("end_ns", c_int64),
        ("cpu_ns", c_int64),
        ("launches", c_uint32),
        ("kind", c_uint32),
        ("marked", c_uint32),
        ("number", c_uint32),
    )


class Slot(ctypes.Structure):
    """The slot of one client."""

    _fields_ = (
        ("owner", c_uint32),
        ("state", c_uint32),
        ("priority", c_uint32),
        ("seeded", c_uint32),
        ("since_ns", c_int64),
        ("start_ticks", c_uint64),
        ("name", c_char * 64),
        ("program", c_char * 64),
        ("sms_ppm", c_uint32),
        ("spare", c_char * 20),
        ("pad", c_int64),
        ("rules", Rules),
        ("pulse", Pulse),
        ("book", Book),
        ("want", Want),
        ("ledger", Ledger),
        ("kernels", Kernel * KERNELS),
        ("steps", Step * STEPS),
        ("spans", Span * SPANS),
        ("tail", c_char * (4096 - (896 + KERNELS * 192 + STEPS * 64 + SPANS * 40) % 4096)),
    )


class Header(ctypes.Structure):
    """The header, written by the broker."""

    _fields_ = (
        ("magic", c_uint64),
        ("version", c_uint32),
        ("slot_bytes", c_uint32),
        ("slots", c_uint32),
        ("sms", c_uint32),
        ("broker", c_uint32),
        ("stopping", c_uint32),
        ("beat_ns", c_int64),
        ("started_ns", c_int64),
        ("patience_ns", c_int64),
        ("tail", c_char * (4096 - 56)),
    )


class _Block(ctypes.Structure):
    _fields_ = (("header", Header), ("slots", Slot * SLOTS))


BLOCK_BYTES = ctypes.sizeof(_Block)
"""Size of a block; all of it is allocated when it is made."""


def _why_not(path: Path, problem: OSError) -> str:
    if problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOMEM):
        return (
            f"no memory for the shared block: it takes {format_size(BLOCK_BYTES)}: "
            "free some, or give the container more (docker run --memory)"
        )
    return f"the shared block {path} cannot be made: {problem.strerror}"


class SharedBlock:
    """A mapped block. The broker calls ``create``, everybody else ``open``."""

    def __init__(self, path: Path, handle: int) -> None:
        """Map the memory of a file descriptor; ``close`` closes it."""
        self.path = path
        self.handle = handle
        self.listener: BlockListener | None = None
        self._memory = mmap.mmap(handle, BLOCK_BYTES)
        self._block: _Block | None = _Block.from_buffer(self._memory)

    @classmethod
    def create(cls, path: Path, sms: int, now_ns: int, patience_ns: int = 1_000_000_000) -> Self:
        """Return a new block. Programs that map an older one of that name keep it and see that its broker is gone."""
        try:
            block = cls(path, sealed_memory(BLOCK_BYTES))
        except OSError as problem:
            raise ShareError(_why_not(path, problem)) from None
        header = block.header
        header.slot_bytes, header.slots, header.sms = ctypes.sizeof(Slot), SLOTS, sms
        header.broker, header.started_ns, header.beat_ns = os.getpid(), now_ns, now_ns
        header.patience_ns, header.version = patience_ns, VERSION
        header.magic = MAGIC
        try:
            # Last: programs of a broker that died look for a new block by that name.
            block.listener = BlockListener(path, block.handle)
        except OSError as problem:
            block.close()
            raise ShareError(_why_not(path, problem)) from None
        return block

    @classmethod
    def open(cls, path: Path) -> Self:
        """Return an existing block; raise ShareError where there is none of this version."""
        try:
            handle = asked(path)
        except FileNotFoundError as error:
            raise ShareError(f"no shared block at {path}: {error.strerror}") from None
        if os.fstat(handle).st_size != BLOCK_BYTES or not is_sealed(handle):
            os.close(handle)
            raise ShareError(f"{path} is not a shared block of this version of headway: restart the broker")
        block = cls(path, handle)
        header = block.header
        if header.magic != MAGIC or header.version != VERSION or header.slot_bytes != ctypes.sizeof(Slot):
            block.close()
            raise ShareError(f"{path} is not a shared block of this version of headway: restart the broker")
        return block

    @property
    def header(self) -> Header:
        """Return the header."""
        header: Header = self._mapped.header
        return header

    @property
    def slots(self) -> ctypes.Array[Slot]:
        """Return all slots, the free ones too."""
        slots: ctypes.Array[Slot] = self._mapped.slots
        return slots

    @property
    def _mapped(self) -> _Block:
        if self._block is None:
            raise ShareError(f"{self.path} was closed")
        return self._block

    def clear(self, index: int) -> None:
        """Free a slot: set everything in it to zero, its state last."""
        slot = self.slots[index]
        ctypes.memset(ctypes.addressof(slot) + Slot.since_ns.offset, 0, ctypes.sizeof(Slot) - Slot.since_ns.offset)
        slot.seeded = slot.priority = slot.owner = 0
        slot.state = FREE

    def __del__(self) -> None:
        if hasattr(self, "_block"):
            self.close()

    def close(self) -> None:
        """Unmap the block and stop answering requests for it. The path stays."""
        if self._block is None:
            return
        self._block = None
        if self.listener is not None:
            self.listener.close()
        os.close(self.handle)
        with contextlib.suppress(BufferError):  # somebody still holds a slot; it goes when they do
            self._memory.close()

"""A broker for tests: beats, seeds, reaps, and sets the very rules a test asks for.

In a thread (``MiniBroker`` as a context) or, to be stopped and killed, in a process of its own: ``python -m
tests.native.mini_broker BLOCK``.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from headway.device import processes
from headway.gpu.share.block.block import CLAIMED, FREE, LEFT, LIVE, Kernel, SharedBlock, Slot

SMS = 132
TURN_S = 0.01
DEFAULT: dict[str, int] = {
    "gate": 1,
    "latency_ns": 4_000,
    "depth_ns": 100_000,
    "idle_depth_ns": 8_000_000,
    "silence_ns": 20_000_000,
    "sample_every": 8,
    "threshold_ns": 2_000,
    "overlap_ppm": 1_000_000,
    "whole": 1,
}
"""Rules of whoever is not the highest; the highest is not gated."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A client as its slot was when it left or died."""

    name: str
    pid: int
    priority: int
    ledger: dict[str, Any]
    rows: list[dict[str, Any]]
    left: bool

    @property
    def kernels(self) -> dict[str, dict[str, int]]:
        """Its kernels by name."""
        return {row["name"]: {key: value for key, value in row.items() if key != "name"} for row in self.rows}


def ledger_of(slot: Slot) -> dict[str, Any]:
    """A slot's ledger as plain numbers."""
    found = {name: getattr(slot.ledger, name) for name, *_ in slot.ledger._fields_ if name != "spare"}
    return found | {"reasons": list(slot.ledger.reasons)}


def kernels_of(slot: Slot) -> list[dict[str, Any]]:
    """A slot's kernels."""
    rows: Iterator[Kernel] = (row for row in slot.kernels if row.id)
    numbers = ("work_ns", "samples", "launches", "blocks", "per_sm", "longest_ns", "kind", "varied")
    return [
        {"name": row.name.decode(errors="replace")} | {name: getattr(row, name) for name in numbers} for row in rows
    ]


class MiniBroker:
    """One block; rules by priority, over the defaults."""

    def __init__(
        self,
        path: Path,
        rules: dict[int, dict[str, int]] | None = None,
        patience_ns: int = 1_000_000_000,
        seed: Callable[[Slot], None] | None = None,
    ) -> None:
        self.block = SharedBlock.create(path, SMS, time.monotonic_ns(), patience_ns)
        self.path = path
        self.past: list[Seen] = []
        self.most_live = 0
        self.frozen = False
        self._rules = rules or {}
        self._seed = seed
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self.turn()
        self.block.header.stopping = 1
        self.path.unlink(missing_ok=True)
        self.block.close()

    def _run(self) -> None:
        while not self._over.wait(TURN_S):
            self.turn()

    def turn(self) -> None:
        """One look at every slot; a frozen broker (whose block is being spoilt) does nothing."""
        if self.frozen:
            return
        self.block.header.beat_ns = time.monotonic_ns()
        live = 0
        for index, slot in enumerate(self.block.slots):
            live += slot.state == LIVE
            if slot.state == LEFT or (slot.state == LIVE and not processes.alive(slot.owner, slot.start_ticks)):
                seen = self._seen(slot)
                self.block.clear(index)
                self.past.append(seen)
            elif slot.state == LIVE and not slot.seeded:
                self._welcome(slot)
        self.most_live = max(self.most_live, live)

    def _welcome(self, slot: Slot) -> None:
        rules = ({} if slot.priority == 0 else DEFAULT) | {"latency_ns": 4_000, "sample_every": 8}
        for name, value in (rules | self._rules.get(slot.priority, {})).items():
            setattr(slot.rules, name, value)
        if self._seed:
            self._seed(slot)
        slot.seeded = 1

    def _seen(self, slot: Slot) -> Seen:
        left = slot.state == LEFT
        return Seen(
            slot.name.decode(errors="replace"), slot.owner, slot.priority, ledger_of(slot), kernels_of(slot), left
        )

    def wait(self, count: int, seconds: float = 20.0) -> list[Seen]:
        """The clients that have been and gone, once there are so many."""
        until = time.monotonic() + seconds
        while len(self.past) < count and time.monotonic() < until:
            time.sleep(TURN_S)
        assert len(self.past) >= count, f"{len(self.past)} of {count} clients were seen to leave"
        return list(self.past)

    def neighbour(self, priority: int = 0, busy_s: float = 50.0) -> int:
        """Make somebody who is at work without end, in the last slot; its number."""
        index = len(self.block.slots) - 1
        slot, now = self.block.slots[index], time.monotonic_ns()
        slot.owner, slot.priority, slot.seeded = os.getpid(), priority, 1
        slot.start_ticks = processes.start_ticks(os.getpid())
        slot.pulse.launch_ns, slot.pulse.busy_ns = now, now + int(busy_s * 1e9)
        slot.pulse.next_ns = slot.pulse.busy_ns
        slot.state = LIVE
        return index

    def until(self, reached: Callable[[Slot], bool], name: str = "test", seconds: float = 20.0) -> None:
        """Wait until the slot of that name has come so far."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if any(slot.state == LIVE and slot.name == name.encode() and reached(slot) for slot in self.block.slots):
                return
            time.sleep(TURN_S / 2)
        raise AssertionError(f"{name} never came so far")

    def free(self) -> bool:
        """Whether every slot is free."""
        return all(slot.state in (FREE, CLAIMED) and slot.owner == 0 for slot in self.block.slots)


def main() -> None:
    """A broker until it is killed."""
    path, rules = Path(sys.argv[1]), json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    broker = MiniBroker(path, {int(priority): each for priority, each in rules.items()})
    print("ready", flush=True)
    while True:
        broker.turn()
        time.sleep(TURN_S)


if __name__ == "__main__":
    main()

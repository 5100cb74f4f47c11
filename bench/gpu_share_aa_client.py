"""One process of the A/A experiment: makes a program when it is first asked for, then writes when each step was.

    python -m bench.gpu_share_aa_client FOLDER NAME CORE PROGRAM[,PROGRAM…]

FOLDER/NAME.control and FOLDER/NAME.log are as bench.gpu_share_client has them; FOLDER/NAME.more is five int64 a step:
when it was due, when its last launch was made, launches and waits that the shim counted in it, and its kind.
"""

import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench.gpu_share_client import DONE, PROGRAM, READY, RING, STATE
from headway.errors import ShareError
from headway.gpu.share.block.block import LIVE, SharedBlock, Slot

FAILED = 6
"""Place in the control: one more than the number of a program that could not be made."""
WARM = 20
LONG_WARM = 300
Request = Callable[[], int]
Maker = Callable[[], Request]


@dataclass(slots=True)
class Client:
    """A process and its files. ``wait`` waits for the GPU; ``mark`` returns a wait for what was launched so far."""

    folder: Path
    name: str
    programs: list[tuple[Maker, float]]
    wait: Callable[[], None]
    mark: Callable[[], Callable[[], None]]
    made: dict[int, tuple[Request, float]] = field(default_factory=dict)
    slot: Slot | None = None
    block: SharedBlock | None = None
    control: Any = None
    log: Any = None
    more: Any = None

    def serve(self) -> None:
        """Do what the control says until it says that it is enough."""
        self.control = np.memmap(self.folder / f"{self.name}.control", dtype=np.int64, mode="r+", shape=(8,))
        self.log = np.memmap(self.folder / f"{self.name}.log", dtype=np.int64, mode="r+", shape=(RING, 2))
        self.more = np.memmap(self.folder / f"{self.name}.more", dtype=np.int64, mode="w+", shape=(RING, 5))
        self.control[READY] = 1
        while self.control[STATE] != 2:
            if self.control[STATE] == 0:
                time.sleep(0.004)  # many processes may rest at a time
                continue
            at = int(self.control[PROGRAM])
            if self._make(at):
                request, between = self.made[at]
                if self.name.startswith("high"):
                    self._above(at, request, between)
                else:
                    self._below(at, request)
                self.wait()
            self.control[READY] += 1

    def _make(self, at: int) -> bool:
        """Make a program and warm it up; a program that cannot be made rests, and the control says which."""
        if at in self.made:
            return True
        maker, pause = self.programs[at]
        try:
            request = maker()
            times = []
            warm = WARM if pause >= 0 else LONG_WARM  # arrivals are set by what it takes: that must be known well
            for _ in range(warm if self.name.startswith("high") else 3):
                begin = time.monotonic_ns()
                request()
                self.wait()
                times.append(time.monotonic_ns() - begin)
        except Exception:  # noqa: BLE001 - the others are done all the same
            traceback.print_exc()
            self.control[FAILED] = at + 1
            self.control[STATE] = 0
            return False
        usual = float(np.median(times[len(times) // 2 :]))
        self.made[at] = request, usual / -pause if pause < 0 else -pause * 1e9
        self._join()
        return True

    def _join(self) -> None:
        """Find our own slot, to count what a step launches."""
        if self.slot is not None or "HEADWAY_SHARE" not in os.environ:
            return
        try:
            self.block = SharedBlock.open(Path(os.environ["HEADWAY_SHARE"]))
        except ShareError as problem:
            print(problem, flush=True)
            return
        for slot in self.block.slots:
            if slot.state == LIVE and slot.name.decode() == self.name:
                self.slot = slot

    def _counted(self) -> tuple[int, int]:
        if self.slot is None:
            return 0, 0
        ledger = self.slot.ledger
        return int(ledger.kernels + ledger.graphs), int(self.slot.pulse.epoch)

    def _above(self, at: int, request: Request, between: float) -> None:
        """Requests one at a time, waited for. ``between``: mean nanoseconds of drawn arrivals; below zero: a pause."""
        control, log, more = self.control, self.log, self.more
        done, draw = int(control[DONE]), np.random.default_rng(at)
        due = time.monotonic_ns()
        launches, waits = self._counted()
        while control[STATE] == 1 and control[PROGRAM] == at:
            if between > 0:
                due += int(draw.exponential(between))
                _sleep_until(due)
            elif between < 0:
                due = time.monotonic_ns() - int(between)
                _sleep_until(due)
            begin = time.monotonic_ns()
            kind = request()
            launched = time.monotonic_ns()
            self.wait()
            end = time.monotonic_ns()
            before, waited = launches, waits
            launches, waits = self._counted()
            log[done % RING] = (begin, end)
            more[done % RING] = (due if between > 0 else begin, launched, launches - before, waits - waited, kind)
            done += 1
            control[DONE] = done

    def _below(self, at: int, request: Request) -> None:
        """Batch work: the next one is launched while the one before runs."""
        control, log = self.control, self.log
        done, before = int(control[DONE]), None
        begin = time.monotonic_ns()
        while control[STATE] == 1 and control[PROGRAM] == at:
            request()
            mark = self.mark()
            if before is not None:
                before()
                now = time.monotonic_ns()
                log[done % RING] = (begin, now)
                begin, done = now, done + 1
                control[DONE] = done
            before = mark


def _sleep_until(due: int) -> None:
    while (left := due - time.monotonic_ns()) > 0:
        time.sleep(max(0, left - 100_000) / 1e9)


def main() -> None:
    """Serve with PyTorch."""
    folder, name, core, wanted = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4].split(",")
    os.sched_setaffinity(0, {core, core + 1})
    import torch

    from bench.gpu_share_aa_programs import ABOVE, BELOW

    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    torch.backends.cudnn.benchmark = False

    def mark() -> Callable[[], None]:
        event = torch.cuda.Event()
        event.record()
        return event.synchronize

    every = {**ABOVE, **BELOW}
    Client(folder, name, [every[each] for each in wanted], torch.cuda.synchronize, mark).serve()


if __name__ == "__main__":
    main()

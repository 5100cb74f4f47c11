"""Two or more processes that share a GPU, and the broker's part in this process: start, switch modes, read what came.

Modes are switched inside one set of processes, a fraction of a second each, so that the noise of the machine is the
same for all of them. Time slicing needs processes without MPS: a session of its own, with its own look at "alone".
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.gpu_share_client import DONE, PROGRAM, READY, RING, STATE, STREAM, THINK
from bench.mps import Mps
from headway.kernels.dial import Dial, Rules, Seen
from headway.live.kernels.block import LIVE, SharedBlock, Slot

MS = 1_000_000
SETTLE_NS = 30 * MS  # after a switch of mode: what was in flight runs out


@dataclass(slots=True)
class Program:
    """One process, its control and its log."""

    name: str
    programs: list[str]
    process: "subprocess.Popen[bytes]"
    control: Any
    log: Any

    def spans(self, first: int) -> "np.ndarray[Any, Any]":
        """Requests since the given count, begin and end."""
        done = int(self.control[DONE])
        return np.array([self.log[i % RING] for i in range(max(first, done - RING), done)]).reshape(-1, 2)


@dataclass(slots=True)
class Session:
    """The processes of one session. ``shim`` False: without headway at all."""

    folder: Path
    library: Path
    sms: int
    mps: bool = True
    shim: bool = True
    extra: dict[str, str] = field(default_factory=dict)
    programs: dict[str, Program] = field(default_factory=dict)
    block: SharedBlock | None = None
    _mps: Mps = field(default_factory=Mps)
    _stop: bool = False
    _beating: threading.Thread | None = None

    def __enter__(self) -> "Session":
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.mps:
            self._mps.restart()
        if self.shim:
            self.block = SharedBlock.create(Path("/dev/shm/headway-bench"), self.sms, time.monotonic_ns())
            self._beating = threading.Thread(target=self._beat, daemon=True)
            self._beating.start()
        return self

    def __exit__(self, *_: object) -> None:
        for program in self.programs.values():
            program.control[STATE] = 2
        for program in self.programs.values():
            try:
                program.process.wait(20)
            except subprocess.TimeoutExpired:
                program.process.kill()
        self._stop = True
        if self.block:
            if self._beating:
                self._beating.join()
            self.block.path.unlink(missing_ok=True)
        if self.mps:
            self._mps.end()

    def _beat(self) -> None:
        assert self.block
        while not self._stop:
            self.block.header.beat_ns = time.monotonic_ns()
            for slot in self.block.slots:
                if slot.state == LIVE and not slot.seeded:
                    write(slot, Rules(gate=0))
                    slot.seeded = 1
            time.sleep(0.02)

    def start(self, name: str, core: int, priority: int, programs: Sequence[str]) -> None:
        """Begin a process; ``ready`` waits for it."""
        control = np.memmap(self.folder / f"{name}.control", dtype=np.int64, mode="w+", shape=(8,))
        log = np.memmap(self.folder / f"{name}.log", dtype=np.int64, mode="w+", shape=(RING, 2))
        environment = {**os.environ, "PYTHONPATH": f"src:{Path.cwd()}", **self.extra}
        if self.shim:
            environment |= {
                "LD_PRELOAD": str(self.library),
                "HEADWAY_SHARE": "/dev/shm/headway-bench",
                "HEADWAY_PRIORITY": str(priority),
                "HEADWAY_NAME": name,
                "HEADWAY_PROGRAM": name,
            }
        if self.mps:
            environment |= self._mps.environment()
            if self.shim and priority:  # as headway starts them: below normal
                environment["CUDA_MPS_CLIENT_PRIORITY"] = "1"
        with (self.folder / f"{name}.out").open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "bench.gpu_share_client", str(self.folder), name, str(core), ",".join(programs)],
                env=environment,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        self.programs[name] = Program(name, list(programs), process, control, log)

    def ready(self, limit_s: float = 300) -> None:
        """Wait until every process has warmed up its programs."""
        end = time.monotonic() + limit_s
        for program in self.programs.values():
            while not program.control[READY]:
                if program.process.poll() is not None or time.monotonic() > end:
                    raise SystemExit(f"{program.name} did not start:\n{self.said(program.name)}")
                time.sleep(0.05)

    def said(self, name: str) -> str:
        """The end of what a process printed."""
        return (self.folder / f"{name}.out").read_text(errors="replace")[-3000:]

    def slot(self, name: str) -> Slot:
        """The slot of a process."""
        assert self.block
        for slot in self.block.slots:
            if slot.state == LIVE and slot.name.decode() == name:
                return slot
        raise SystemExit(f"{name} has no slot:\n{self.said(name)}")

    def mps_environment(self) -> dict[str, str]:
        """What another client of this session needs to find the daemon."""
        return self._mps.environment() if self.mps else {}

    def terminate(self, pid: int) -> None:
        """End a client through MPS, which drains it first; then its process."""
        self._mps.terminate(pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)

    def stream(self, name: str, priority: bool) -> None:
        """Let a process launch into a stream of high priority, or into the default one."""
        self.programs[name].control[STREAM] = int(priority)

    def choose(self, name: str, program: str, think_ns: int = 0) -> None:
        """Let a process work on one of its programs."""
        mine = self.programs[name]
        ready = int(mine.control[READY])
        running = mine.control[STATE] == 1
        mine.control[THINK] = think_ns
        index = mine.programs.index(program)
        if running and mine.control[PROGRAM] == index:
            return
        mine.control[STATE] = 0
        end = time.monotonic() + 10
        while running and mine.control[READY] == ready and time.monotonic() < end:
            time.sleep(0.002)
        mine.control[PROGRAM] = index
        mine.control[STATE] = 1

    def pause(self, name: str) -> None:
        """Let a process rest, and wait until it does."""
        mine = self.programs[name]
        if mine.control[STATE] != 1:
            return
        ready = int(mine.control[READY])
        mine.control[STATE] = 0
        end = time.monotonic() + 10
        while mine.control[READY] == ready and time.monotonic() < end:
            time.sleep(0.002)

    def digests(self, name: str, when: str = "digests") -> dict[str, str]:
        """Digests of the results of a process's programs, before sharing or after."""
        found = self.folder / f"{name}.{when}.json"
        return dict(json.loads(found.read_text())) if found.exists() else {}


def write(slot: Slot, rules: Rules, bypass: int = 0) -> None:
    """Put rules into a slot."""
    for name in Rules.__slots__:
        setattr(slot.rules, name, getattr(rules, name))
    slot.rules.bypass = bypass


@dataclass(slots=True)
class Modes:
    """The rules of the modes that are compared, for the programs of one session."""

    session: Session
    high: str
    lows: list[str]
    dial: Dial
    dialled_ns: int = 0

    def set(self, mode: str) -> None:
        """Switch."""
        high, silence = self.session.slot(self.high), 20_000 * MS
        held = Rules(gate=1, hold=1, silence_ns=silence, sample_every=0 if mode == "shim" else 256)
        watched = Rules(gate=0, watched=1, sample_every=held.sample_every)
        free = Rules(gate=0)
        if mode in ("bypass", "shim", "alone"):
            below, top = held, watched
        elif mode == "mps":  # the hooks do nothing on either side: nothing is learnt from it, nothing counted
            below, top = free, free
        else:
            return
        for low in self.lows:
            write(self.session.slot(low), below, 1 if mode == "mps" else 0)
        write(high, top, 1 if mode in ("bypass", "mps") else 0)

    def turn(self, now_ns: int) -> None:
        """One beat of the dial, as the broker does it."""
        slots = [self.session.slot(name) for name in (self.high, *self.lows)]
        seen = [replace(seen_of(index, slot), since_ns=0) for index, slot in enumerate(slots)]
        for index, rules in self.dial.rules(now_ns, seen).items():
            write(slots[index], rules)

    def stay(self, mode: str, seconds: float) -> tuple[int, int]:
        """Stay in a mode for a while; returns the stretch in which it is measured."""
        self.set(mode)
        begin = time.monotonic_ns()
        end = begin + int(seconds * 1e9)
        while time.monotonic_ns() < end:
            if mode == "gate":  # the dial's time stands still while other modes are on
                self.turn(self.dialled_ns + time.monotonic_ns() - begin)
            time.sleep(0.01)
        if mode == "gate":
            self.dialled_ns += end - begin
        return begin + SETTLE_NS, end


def seen_of(index: int, slot: Slot) -> Seen:
    """What the dial reads of a slot."""
    return Seen(
        index,
        slot.priority,
        slot.ledger.actual_ns,
        slot.ledger.alone_ns,
        slot.since_ns,
        slot.pulse.epoch,
    )

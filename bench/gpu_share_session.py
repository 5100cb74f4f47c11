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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench.gpu_share_client import DONE, PROGRAM, READY, RING, STATE, STREAM, THINK
from bench.mps import Mps
from headway.gpu.control.dial import Dial
from headway.gpu.control.gate_rules import Rules
from headway.gpu.control.holds import Seen
from headway.gpu.share.block import slot_steps
from headway.gpu.share.block.block import LIVE, SharedBlock, Slot
from headway.gpu.share.block.slot_contention import SlotContention

MS = 1_000_000
SETTLE_NS = 15 * MS  # after a switch of mode: what was in flight runs out
BELOW = ("low", "low2", "low3")
"""Processes of batch work as headway starts them: at MPS's lower client priority."""
PLAIN = ("plain", "plain2", "plain3")
"""The same programs in processes at MPS's normal priority, for MPS without headway."""


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
        return np.asarray(self.log)[np.arange(max(first, done - RING), done) % RING]


@dataclass(slots=True)
class Session:
    """The processes of one session. ``shim`` False: without headway at all; ``client``: the module that they run."""

    folder: Path
    library: Path
    sms: int
    mps: bool = True
    shim: bool = True
    client: str = "bench.gpu_share_client"
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
            for left in Path("/dev/shm").glob("headway-bench-*"):  # of one that was killed
                if not Path("/proc", left.name.rpartition("-")[2]).exists():
                    left.unlink(missing_ok=True)
            self.block = SharedBlock.create(
                Path(f"/dev/shm/headway-bench-{os.getpid()}"), self.sms, time.monotonic_ns()
            )
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

    def start(self, name: str, core: int, priority: int, programs: Sequence[str], percent: int = 100) -> None:
        """Begin a process, under MPS with so much of the SMs; ``ready`` waits for it."""
        control = np.memmap(self.folder / f"{name}.control", dtype=np.int64, mode="w+", shape=(8,))
        log = np.memmap(self.folder / f"{name}.log", dtype=np.int64, mode="w+", shape=(RING, 2))
        environment = {**os.environ, "PYTHONPATH": f"src:{Path.cwd()}", **self.extra}
        if self.block:
            environment |= {
                "LD_PRELOAD": str(self.library),
                "HEADWAY_SHARE": str(self.block.path),
                "HEADWAY_PRIORITY": str(priority),
                "HEADWAY_NAME": name,
                "HEADWAY_PROGRAM": name,
                "HEADWAY_SMS": f"{percent * 10_000}",
            }
        if self.mps:
            environment |= self._mps.environment(percent)
            if self.shim and (name in BELOW or name.startswith("client")):  # as headway starts them: below normal
                environment["CUDA_MPS_CLIENT_PRIORITY"] = "1"
        with (self.folder / f"{name}.out").open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", self.client, str(self.folder), name, str(core), ",".join(programs)],
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

    def go(self, name: str) -> None:
        """Let a process that rests go on with the program it has."""
        self.programs[name].control[STATE] = 1

    def select(self, name: str, program: str) -> None:
        """Which program a process that rests will do when it goes on."""
        mine = self.programs[name]
        mine.control[PROGRAM], mine.control[THINK] = mine.programs.index(program), 0

    def pause(self, name: str) -> None:
        """Let a process rest, and wait until it does."""
        mine = self.programs[name]
        if mine.control[STATE] != 1:
            return
        ready = int(mine.control[READY])
        mine.control[STATE] = 0
        end = time.monotonic() + 10
        while mine.control[READY] == ready:
            if time.monotonic() > end:
                raise SystemExit(f"{name} does not come to rest:\n{self.said(name)}")
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


@dataclass(frozen=True, slots=True)
class Stretch:
    """A while in one mode, without its beginning; how many launches of each program below fell into it."""

    begin: int
    end: int
    launches: tuple[int, ...] = ()


@dataclass(slots=True)
class Modes:
    """The modes that are compared, for the programs of one session.

    ``bypass``, ``shim``, ``alone``: those below held; hooks that do nothing, that work, that time kernels too.
    ``gate``: headway. ``client``: MPS alone, those below at lower client priority. ``mps`` and ``stream``: MPS alone,
    all at normal priority, the program above in the default stream or in one of the highest priority.
    """

    session: Session
    high: str
    lows: list[str]
    plain: list[str]
    dial: Dial
    dialled_ns: int = 0
    read: dict[str, int] = field(default_factory=dict)
    """Whole steps of each process that the dial has seen."""
    contention: SlotContention | None = None
    """Who learns which kernels below contend; without one nobody does."""

    def set(self, mode: str) -> None:
        """Switch."""
        high, silence = self.session.slot(self.high), 20_000 * MS
        held = Rules(gate=1, hold=1, silence_ns=silence, sample_every=0 if mode == "shim" else 256)
        watched = Rules(gate=0, watched=1, sample_every=held.sample_every)
        free = Rules(gate=0)
        self.session.stream(self.high, mode == "stream")
        if mode == "gate":
            return
        # Where the hooks do nothing on either side, nothing is learnt and nothing counted.
        for low in self.lows:
            write(self.session.slot(low), free if mode == "client" else held, int(mode == "client"))
        bare = mode in ("client", "mps", "stream")
        write(high, free if bare else watched, int(bare or mode == "bypass"))
        if mode in ("mps", "stream"):
            for name in self.plain:
                write(self.session.slot(name), free, 1)
                self.session.go(name)

    def rest(self, mode: str, drain_s: float) -> None:
        """What a mode without a gate has left in flight runs out."""
        if mode in ("mps", "stream"):
            for name in self.plain:
                self.session.pause(name)
        self.stay("alone", 0.02 if mode in ("mps", "stream") else drain_s)

    def below(self, settle_s: float, seconds: float) -> Stretch:
        """Those below by themselves for a while, ungated, and counted; then the program above goes on."""
        self.session.pause(self.high)
        for low in self.lows:
            write(self.session.slot(low), Rules(gate=0))
        time.sleep(settle_s)
        begin, first = time.monotonic_ns(), self._launches()
        time.sleep(seconds)
        end, last = time.monotonic_ns(), self._launches()
        self.set("alone")
        self.session.go(self.high)
        self.stay("alone", settle_s)  # what was launched ahead runs out
        return Stretch(begin, end, tuple(b - a for a, b in zip(first, last, strict=True)))

    def turn(self, now_ns: int, shift_ns: int = 0, since_ns: int = 0) -> None:
        """One beat of the dial, as the broker does it. Its clock is behind the machine's by ``shift_ns``."""
        names = [self.high, *self.lows]
        slots = [self.session.slot(name) for name in names]
        seen = [
            self._seen(index, name, slot, shift_ns, since_ns)
            for index, (name, slot) in enumerate(zip(names, slots, strict=True))
        ]
        clients = dict(enumerate(slots))
        if self.contention:
            self.contention.sample(now_ns, clients)
        for index, rules in self.dial.rules(now_ns, seen).items():
            write(slots[index], rules)
        if self.contention:
            self.contention.turn(now_ns, clients)

    def _seen(self, index: int, name: str, slot: Slot, shift_ns: int, since_ns: int) -> Seen:
        """What the dial reads of a slot: steps that began in this stretch, on its own clock."""
        steps, self.read[name] = slot_steps.read(slot, self.read.get(name, 0))
        return Seen(
            index,
            slot.priority,
            epochs=slot.pulse.epoch,
            filled_ns=slot.want.end_ns - shift_ns,
            steps=[
                each._replace(begin_ns=each.begin_ns - shift_ns, end_ns=each.end_ns - shift_ns)
                for each in steps
                if each.begin_ns >= since_ns
            ],
        )

    def stay(self, mode: str, seconds: float, settle_ns: int = SETTLE_NS) -> Stretch:
        """Stay in a mode for a while; returns the stretch in which it is measured."""
        self.set(mode)
        start = time.monotonic_ns()
        begin, end = start + settle_ns, start + int(seconds * 1e9)
        first: tuple[int, ...] | None = None
        while (now := time.monotonic_ns()) < end:
            if first is None and now >= begin:
                first, begin = self._launches(), now
            if mode == "gate":  # the dial's time stands still while other modes are on
                self.turn(self.dialled_ns + now - start, start - self.dialled_ns, start)
            pause = 0.001 if mode == "gate" and self.dial.holds.holding else 0.008
            time.sleep(min(pause, max(0, (begin if first is None else end) - now) / 1e9 + 1e-5))
        last, end = self._launches(), time.monotonic_ns()
        if mode == "gate":
            self.dialled_ns += end - start
        return Stretch(begin, end, tuple(b - a for a, b in zip(first or last, last, strict=True)))

    def _launches(self) -> tuple[int, ...]:
        ledgers = [self.session.slot(name).ledger for name in self.lows]
        return tuple(int(ledger.kernels + ledger.graphs) for ledger in ledgers)

"""Run a program once under limits until its throughput is known, or say why it cannot be measured.

Steps come from ``headway.step()``, records of 16 bytes in a file (the monotonic clock in nanoseconds, the samples), or
from its output by a pattern. A program is held to its CPUs from its first step on. A cache that fills while it runs
says so, and steps before it was full do not count. However the watching ends, nothing of the program is left.
"""

import json
import re
import struct
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from headway.device.limits import Held, Limits, busy_seconds
from headway.errors import ProfileError
from headway.jobs.profiling.steady import LEAST_STEPS, Rate, rate
from headway.units import SECOND, counted, format_duration

RECORD = struct.Struct("<qq")
AIM = 0.03
"""An error that is small enough to stop at."""
LEAST_S = 2.0
"""Shorter than this is too short beside the periods in which quotas are handed out."""
MOST_S = 3
"""So many times as long as asked for is gone on for a smaller error."""
_POLL_S = 0.1
_TAIL_LINES = 20
_MOST_SAMPLES = 2**53
_NUMBER = re.compile(r"\+?([0-9]{1,3}([ ,_'][0-9]{3})+|[0-9]+)(\.[0-9]*)?(e[+-]?[0-9]+)?", re.IGNORECASE)
_SHOWN = 60


@dataclass(frozen=True)
class Program:
    """What is run, and how its steps are known."""

    command: Sequence[str]
    pattern: "re.Pattern[str] | None" = None
    env: Mapping[str, str] = field(default_factory=dict)
    steps: int = 50
    timeout_s: float = 300.0
    gpus: int = 1

    @property
    def name(self) -> str:
        """Return the command, shortened."""
        words = " ".join(self.command)
        return words if len(words) <= 60 else f"{words[:57]}…"


@dataclass(frozen=True)
class Reading:
    """What one run showed."""

    cpus: float
    rate: Rate
    wall_s: float
    cpu_s: float
    working_bytes: int
    others_cpus: float
    """CPUs that other programs used meanwhile."""
    cache: Mapping[str, float] | None = None
    """What ``CachedDataset`` said of itself."""


Tell = Callable[[float, Rate | None], None]
"""Told the CPUs of the point at work, and what is known of its rate."""


def watch(
    program: Program,
    limits: Limits,
    cpus: float,
    *,
    memory_bytes: int = 0,
    cache_bytes: int | None = None,
    tell: Tell | None = None,
) -> Reading:
    """Run a program with so many CPUs until its throughput is known."""
    with tempfile.TemporaryDirectory(prefix="headway-") as folder:
        steps, cache = Path(folder, "steps"), Path(folder, "cache")
        env = {
            "PYTHONUNBUFFERED": "1",
            **program.env,
            "HEADWAY_STEPS": str(steps),
            "HEADWAY_CACHE": str(cache),
            **({} if cache_bytes is None else {"HEADWAY_CACHE_BYTES": str(cache_bytes)}),
        }
        threads = max(1, -(-int(1000 * cpus) // (1000 * program.gpus)))
        began, busy = time.monotonic(), busy_seconds()
        with limits.start(
            program.command,
            cpus,
            memory_bytes=memory_bytes,
            threads=threads,
            env=env,
            output=subprocess.PIPE,
            at_once=False,
        ) as held:
            output = Output(held.process.stdout, program.pattern)
            watched = _Watched(program, held, cpus, output, steps, cache)
            result = watched.until_known(tell)
            used_s, working = held.cpu_seconds(), held.memory_bytes()
        wall_s = time.monotonic() - began
        others = max(0.0, busy_seconds() - busy - held.cpu_seconds()) / wall_s
        return Reading(cpus, result, wall_s, used_s, working, others, watched.cached)


class Output:
    """What a program writes: its last lines, and the steps that a pattern finds in them."""

    def __init__(self, stream: IO[bytes] | None, pattern: "re.Pattern[str] | None") -> None:
        assert stream is not None
        self.tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self.lines = 0
        self.times_ns: list[int] = []
        self.samples: list[int] = []
        self.numbers = 0
        """Matches whose group is a number."""
        self.odd = ""
        """The last group that is none."""
        self._stream = stream
        self._pattern = pattern
        self._counter: int | None = None
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until all of it is read, but not for a process that slipped away and keeps it open."""
        self._thread.join(1.0)

    def _read(self) -> None:
        rest = b""
        while piece := self._stream.read1(1 << 16):  # type: ignore[attr-defined]
            now = time.monotonic_ns()
            *whole, rest = re.split(rb"[\r\n]", rest + piece)
            for line in whole:
                self._line(line.decode(errors="replace"), now)
        if rest:
            self._line(rest.decode(errors="replace"), time.monotonic_ns())
        self._stream.close()

    def _line(self, line: str, now: int) -> None:
        if line.strip():
            self.tail.append(line)
            self.lines += 1
        if self._pattern is not None:
            for match in self._pattern.finditer(line):
                self.samples.append(self._samples(match))
                self.times_ns.append(now)

    def _samples(self, match: "re.Match[str]") -> int:
        """Return a match's samples: its group ``samples``, else the rise of its first group, else 1."""
        named = match.groupdict().get("samples")
        text = named if named is not None or not match.groups() else match.group(1)
        if text is None:
            return 1
        count = _whole(text)
        if count is None:
            self.odd = text
            return 1
        self.numbers += 1
        if named is not None:
            return count
        before, self._counter = self._counter, count
        return 1 if before is None or count <= before else count - before


def _whole(text: str) -> int | None:
    """Parse a number from 0 on as programs write it: ``32``, ``1,250``, ``1e3``, ``32.0``; None for anything else."""
    if not _NUMBER.fullmatch(text.strip()):
        return None
    return int(min(_MOST_SAMPLES, float(re.sub("[ ,_']", "", text))))


class _Watched:
    """A program at work, and what is known of it so far."""

    def __init__(self, program: Program, held: Held, cpus: float, output: Output, steps: Path, cache: Path) -> None:
        self.program = program
        self.held = held
        self.cpus = cpus
        self.output = output
        self.cached: dict[str, float] | None = None
        self._steps = steps
        self._cache = cache
        self._cold_until_ns = 0
        self._limited = False
        self._empty = ""
        self._by_pattern = False

    def until_known(self, tell: Tell | None) -> Rate:
        """Look again and again until enough is known; raises when it will never be."""
        ends = time.monotonic() + self.program.timeout_s
        while True:
            ended = self.held.process.poll() is not None
            if ended:
                self.output.wait()
            times, samples = self._records()
            self._read_cache()
            if times and not self._limited:  # the start is over, which is not measured and was not slowed
                self.held.limit()
                self._limited = True
                self._cold_until_ns = time.monotonic_ns()
            self._empty = self._why_empty(samples)
            steady = rate(times, samples, self._cold_until_ns)
            if tell is not None:
                tell(self.cpus, steady)
            if self._empty and len(times) >= self.program.steps and not ended:
                raise self._problem(f"{self._at}: {self._empty}")
            if steady is not None and self._enough(steady):
                return steady
            if ended:
                return self._at_its_end(steady, len(times))
            if time.monotonic() >= ends:
                return self._at_the_limit(steady, len(times))
            time.sleep(_POLL_S)

    def _enough(self, known: Rate) -> bool:
        wanted = self.program.steps
        if known.steps < wanted or known.seconds < LEAST_S:
            return False
        long = known.steps >= MOST_S * wanted and known.seconds >= MOST_S * LEAST_S
        return known.error <= AIM or long

    def _records(self) -> tuple[list[int], list[int]]:
        try:
            content = self._steps.read_bytes()
        except FileNotFoundError:
            content = b""
        whole = len(content) // RECORD.size * RECORD.size
        records = list(RECORD.iter_unpack(content[:whole]))
        self._by_pattern = not records and self.program.pattern is not None
        if not self._by_pattern:
            return [at for at, _ in records], [max(0, samples) for _, samples in records]
        seen = len(self.output.times_ns)
        return self.output.times_ns[:seen], self.output.samples[:seen]

    def _read_cache(self) -> None:
        """Read the last whole line; while the cache grows the program is not in its final state."""
        try:
            lines = self._cache.read_text(errors="replace").split("\n")[:-1]
        except FileNotFoundError:
            return
        for line in reversed(lines):
            with suppress(ValueError):
                message: Any = json.loads(line)
                if isinstance(message, dict):
                    before = self.cached or {}
                    self.cached = {key: value for key, value in message.items() if isinstance(value, int | float)}
                    if self.cached.get("cached_bytes", 0) > before.get("cached_bytes", 0):
                        self._cold_until_ns = time.monotonic_ns()
                    return

    # --- when it does not go well -----------------------------------------------------------------------------------

    @property
    def _at(self) -> str:
        return f"{self.program.name} at {self.cpus:g} CPUs"

    def _why_empty(self, samples: Sequence[int]) -> str:
        """Return why no step so far says how many samples it was over; empty where one does, or there is none."""
        pattern, steps = self.program.pattern, counted(len(samples), "step")
        if samples and self._by_pattern and pattern is not None:
            group = "samples" if "samples" in pattern.groupindex else "1"
            if self.output.odd and not self.output.numbers:
                odd = self.output.odd[:_SHOWN]
                return f"group {group} of --pattern {pattern.pattern!r} is no number, but {odd!r}: put digits in it"
            if not any(samples):
                return f"its {steps} carry no samples: group {group} of --pattern {pattern.pattern!r} is 0 in all"
        if samples and not any(samples):
            return f"its {steps} carry no samples: give headway.step() the samples of the step, at least 1"
        return ""

    def _at_its_end(self, known: Rate | None, steps: int) -> Rate:
        """Return the rate of a program that has ended by itself, if it is sure enough; raise why not otherwise."""
        status = self.held.process.returncode
        at, group = self._at, self.held.group
        if group is not None and group.out_of_memory():
            raise self._problem(f"{at}: was killed for its memory: give it more with --memory, or a smaller batch")
        if status:
            how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
            last = self.output.tail[-1].strip() if self.output.tail else "it wrote nothing"
            raise self._problem(f"{at}: {how} after {counted(steps, 'step')}: {last}")
        if not steps:
            raise self._problem(f"{at}: ended without a step: {self._advice('let it run longer')}")
        if self._empty:
            raise self._problem(f"{at}: {self._empty}")
        if known is None or 2 * known.steps < self.program.steps or known.seconds < LEAST_S / 4:
            raise self._problem(
                f"{at}: ended after {counted(steps, 'step')}, too few to measure {self.program.steps} "
                "(the first do not count): let it run longer, with more epochs or more data, or lower --steps"
            )
        return known

    def _at_the_limit(self, known: Rate | None, steps: int) -> Rate:
        """Return the rate when time is out, if it is sure enough; raise what to do otherwise."""
        limit = format_duration(round(self.program.timeout_s * SECOND))
        at = self._at
        if not steps:
            raise self._problem(f"{at}: no step in {limit}: {self._advice('give it longer with --timeout')}")
        if self._empty:
            raise self._problem(f"{at}: {self._empty}")
        if known is None or known.steps < min(LEAST_STEPS, self.program.steps) or known.error > 0.25:
            raise self._problem(
                f"{at}: {counted(steps, 'step')} in {limit}, too few to know its throughput: "
                "give it longer with --timeout, or smaller steps"
            )
        return known

    def _advice(self, longer: str) -> str:
        if self.program.pattern is None:
            advice = "call headway.step() after each training step, or give --pattern for the lines it writes"
            return f"{advice}, or {longer}"
        lines = counted(self.output.lines, "line")
        last = f", the last {self.output.tail[-1].strip()[:_SHOWN]!r}" if self.output.tail else ""
        matches = f"--pattern {self.program.pattern.pattern!r} matches nothing in the {lines} that it wrote{last}"
        return f"{matches}: fix --pattern, or {longer}"

    def _problem(self, line: str) -> ProfileError:
        problem = ProfileError(line)
        if self.output.tail:
            problem.add_note("\n".join(["the last lines of the program:", *(f"  {each}" for each in self.output.tail)]))
        return problem

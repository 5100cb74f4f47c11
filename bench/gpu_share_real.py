"""``headway share`` as a user has it, driven from outside: commands with a limit of time, programs in the background.

What a command said is kept whole; whatever happens, nothing runs on at the end.
"""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.gpu_share_tiny import spans
from headway.device import locks as places, processes
from headway.device.mps import Mps
from headway.errors import HeadwayError
from headway.gpu.share.broker.status import snapshot

ROOT = Path(__file__).resolve().parents[1]
HEADWAY = (sys.executable, "-m", "headway")
TURN_S = 0.02
LAST_S = 100.0
"""``stop --kill`` ends programs, MPS and broker, each of which may take its time."""


@dataclass(slots=True)
class Ran:
    """A command that has ended; ``rc`` None: it had to be killed, because it took too long."""

    rc: int | None
    out: str
    err: str

    @property
    def last(self) -> str:
        """Its last words."""
        return (self.out + self.err).strip()[-300:]


@dataclass(slots=True)
class Started:
    """A program under ``headway share run``, and the log of its requests."""

    name: str
    process: "subprocess.Popen[bytes]"
    log: Path
    said: Path

    def spans(self, since_ns: int = 0) -> list[tuple[int, int]]:
        """Its requests that ended since then."""
        return [span for span in spans(self.log) if span[1] > since_ns]

    def words(self) -> str:
        """What it and ``headway share run`` wrote."""
        return self.said.read_text(errors="replace") if self.said.exists() else ""

    def ended(self, seconds: float) -> bool:
        """Whether ``headway share run`` comes back in time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        return self.process.poll() is not None


@dataclass(slots=True)
class Real:
    """The commands on one GPU. ``environment`` is laid over this process's own."""

    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    gpu: int = 0
    started: list[Started] = field(default_factory=list)
    brokers: set[int] = field(default_factory=set)
    """Every one that was seen."""
    pids: dict[int, int] = field(default_factory=dict)
    """Every process that was seen to share, and when it began."""

    others: frozenset[str] = frozenset()
    """Files of the folder of shared memory that were there before, and are none of a broker's."""

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        there = {path.name for path in self.place.folder.glob("headway*")}
        self.others = frozenset(name for name in there if not name.startswith("headway-share-"))

    @property
    def whole(self) -> dict[str, str]:
        """The environment of every command."""
        ours = {
            "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
            "PYTHONUNBUFFERED": "1",
            "HEADWAY_PROFILES": str(self.folder / "profiles"),
        }
        return {**os.environ, **ours, **self.environment}

    @property
    def place(self) -> places.Place:
        """Where the broker's files are."""
        folder = self.whole.get(places.FOLDER) or "/dev/shm"
        return places.Place(Path(folder), self.gpu)

    # --- commands ------------------------------------------------------------------------------------------------

    def do(self, words: Sequence[str], seconds: float) -> Ran:
        """A command to its end; one that takes too long is killed with all that it started."""
        process = subprocess.Popen(
            [*HEADWAY, *words],
            env=self.whole,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            out, err = _broken_off(process)
            return Ran(None, out, err)
        return Ran(process.returncode, out, err)

    def run(self, name: str, priority: int, command: Sequence[str], *flags: str) -> Started:
        """``headway share run`` in the background. LOG in the command is the log of its requests."""
        log, said = self.folder / f"{name}.log", self.folder / f"{name}.txt"
        log.unlink(missing_ok=True)
        named = [word.replace("LOG", str(log)) for word in command]
        words = ["share", "run", "--priority", str(priority), "--name", name, *flags, "--", *named]
        with said.open("wb") as file:
            process = subprocess.Popen(
                [*HEADWAY, *words],
                env=self.whole,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        one = Started(name, process, log, said)
        self.started.append(one)
        return one

    # --- what is to be seen --------------------------------------------------------------------------------------

    def look(self) -> dict[str, Any]:
        """The broker and its clients as ``status --json`` has them; empty where no broker runs."""
        try:
            now = snapshot(self.place)
        except (HeadwayError, OSError):
            return {}
        self.brokers.add(now["broker"])
        for row in now["clients"]:
            self.pids.setdefault(row["pid"], processes.start_ticks(row["pid"]))
        return now

    def client(self, name: str) -> dict[str, Any]:
        """The row of one that has launched something; empty where there is none."""
        rows = self.look().get("clients", ())
        return next((row for row in rows if row["name"] == name and row["launches"]), {})

    def mps(self) -> Mps | None:
        """The MPS that the broker told of."""
        found = places.read_json(self.place.state).get("mps")
        return Mps(Path(found["pipe"]), Path(found["log"]), owned=False) if found else None

    def left(self, seconds: float = 5.0) -> dict[str, list[Any]]:
        """What is there and should not be, after a moment to end: files, processes of MPS, brokers, programs."""
        until(lambda: not any(self._left().values()), seconds)
        return self._left()

    def _left(self) -> dict[str, list[Any]]:
        return {
            "left_in_shm": sorted({path.name for path in self.place.folder.glob("headway*")} - self.others),
            "mps_left": mps_processes(self.place.mps),
            "brokers_left": sorted(pid for pid in self.brokers if processes.alive(pid, 0) and is_broker(pid)),
            "programs_left": sorted(pid for pid, ticks in self.pids.items() if processes.alive(pid, ticks)),
        }

    def clear(self) -> None:
        """Whatever happened: nothing of it runs on."""
        for one in self.started:
            if one.process.poll() is None:
                one.process.terminate()
        for one in self.started:
            one.ended(3)
        self.do(["share", "stop", "--kill", f"--gpu={self.gpu}", "--wait", "5s"], LAST_S)
        for one in self.started:
            if one.process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(one.process.pid, signal.SIGKILL)
                one.process.wait()
        for pid, ticks in self.pids.items():
            if processes.alive(pid, ticks):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _broken_off(process: "subprocess.Popen[str]") -> tuple[str, str]:
    """What a command had said; asked first, because only then it ends a program that it started."""
    process.send_signal(signal.SIGINT)
    try:
        return process.communicate(timeout=25)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return process.communicate()


def is_broker(pid: int) -> bool:
    """Whether a process is a broker of headway: its number may be another's by now."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"headway" in words and b"broker" in words


def mps_processes(folder: Path) -> list[int]:
    """Daemons and servers of the MPS that has its pipes there."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                named = (entry / "comm").read_text().startswith("nvidia-cuda-mps")
                ours = named and os.fsencode(f"{folder}/") in (entry / "environ").read_bytes()
                if ours and processes.alive(int(entry.name), 0):
                    found.append(int(entry.name))
    return sorted(found)


def until(holds: Callable[[], object], seconds: float) -> bool:
    """Whether it comes about in time."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(TURN_S)
    return True


@contextlib.contextmanager
def real(folder: Path, environment: Mapping[str, str] | None = None) -> Iterator[Real]:
    """The commands; all is cleared away at the end."""
    made = Real(folder, environment or {})
    cores = os.sched_getaffinity(0)
    with contextlib.suppress(OSError):  # what is started from here has all cores, wherever we keep ourselves
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    try:
        yield made
    finally:
        made.clear()
        os.sched_setaffinity(0, cores)


def shown(words: Sequence[str]) -> str:
    """A command as it is typed."""
    return shlex.join("python" if word == sys.executable else word for word in words)

"""Launch of a program under the shim: its environment, its run, and the broker that is started for it.

The program stays in the foreground, with the terminal, its own output and its own exit status. The shim is loaded into
it by LD_PRELOAD, before any library that is preloaded already.
"""

import hashlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.device import locks as places
from headway.device.locks import Place
from headway.device.mps import SMS, Mps, client_environment
from headway.device.nvidia import Gpu
from headway.errors import ShareError
from headway.gpu.share.block import slot_profiles
from headway.gpu.share.block.block import LIVE, SharedBlock

HIGHEST, USUAL, LOWEST = 0, 5, 9
OWN_SMS = "HEADWAY_SMS"
"""By this the shim knows the limit on SMs of its program, in parts per million."""
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_FROM_TERMINAL = 0x80
"""``si_code`` of a signal from the terminal, which the program gets by itself."""
_READY_S = 90.0
_SETTLED_S = 0.02
_NAME_BYTES = 63


@dataclass(frozen=True, slots=True)
class Program:
    """A program to run: its command, and its name and priority for sharing."""

    command: Sequence[str]
    priority: int
    name: str = ""
    key: str = ""
    """The key of its stored profile; empty: made from its command."""
    memory_bytes: int = 0
    sms_ppm: int = 0
    """Share of the SMs that it is limited to; 0: all of them."""
    extra: Mapping[str, str] | None = None
    """Further environment variables."""

    @property
    def shown_name(self) -> str:
        """Return its name in the table."""
        return self.name or script_of(self.command)


def checked(program: Program) -> Program:
    """Return the program if it can be run; raise ShareError otherwise."""
    if not program.command:
        raise ShareError("no program is given: headway share run --priority 0 -- python serve.py")
    if not HIGHEST <= program.priority <= LOWEST:
        raise ShareError(f"--priority {program.priority}: priorities are 0 (highest) to 9 (lowest)")
    if len(program.shown_name.encode()) > _NAME_BYTES or not program.shown_name.isprintable():
        raise ShareError(f"--name {program.name[:80]!r}: at most {_NAME_BYTES} bytes of printable text")
    if why := why_not_run(program.command):
        raise ShareError(why)
    return program


def why_not_run(command: Sequence[str]) -> str:
    """Return why a command cannot be run from here, in a line; empty where it can."""
    program = command[0]
    if shutil.which(program) is not None:
        return ""
    if os.sep in program and Path(program).exists():
        return f"program {program!r} cannot be run: it is not executable (python FILE, or chmod +x)"
    return f"program {program!r} is not found: give its path, or put it on PATH"


def script_of(command: Sequence[str]) -> str:
    """Return the name of a command: its script or module where an interpreter comes first, else the program."""
    words = list(command)
    if re.fullmatch(r"(python|torchrun|accelerate)[0-9.]*", Path(words[0]).name):
        if "-m" in words[1:-1]:
            return words[words.index("-m") + 1][-40:]
        if "-c" in words[1:2]:
            return Path(words[0]).name
        for word in words[1:]:
            if not word.startswith("-"):
                return Path(word).stem[-40:] or words[0]
    return Path(words[0]).name[-40:]


def key_of(command: Sequence[str]) -> str:
    """Return the key of a command: its script, and a short digest of all of its words."""
    digest = hashlib.sha256("\0".join(command).encode()).hexdigest()[:8]
    name = re.sub(r"[^A-Za-z0-9._-]", "-", script_of(command)).lstrip(".")
    return f"{name or 'program'}-{digest}"


def environment(program: Program, place: Place, gpu: Gpu, library: Path, mps: Mps | None) -> dict[str, str]:
    """Return the environment of a program."""
    before = os.environ.get("LD_PRELOAD", "")
    inherited = {name: value for name, value in os.environ.items() if name not in (SMS, OWN_SMS)}
    return {
        **inherited,
        "LD_PRELOAD": f"{library}:{before}" if before else str(library),
        "HEADWAY_SHARE": str(place.block),
        "HEADWAY_PRIORITY": str(program.priority),
        "HEADWAY_NAME": program.shown_name,
        "HEADWAY_PROGRAM": program.key or key_of(program.command),
        # NVTX ranges named headway.request mark requests; another tool that wants the ranges keeps them.
        "NVTX_INJECTION64_PATH": os.environ.get("NVTX_INJECTION64_PATH") or str(library),
        **({"CUDA_VISIBLE_DEVICES": gpu.uuid} if gpu.uuid else {}),
        **client_environment(mps, place, program.memory_bytes, program.priority, program.sms_ppm),
        **({OWN_SMS: str(program.sms_ppm)} if program.sms_ppm and mps else {}),
        **(program.extra or {}),
    }


def run(command: Sequence[str], given: Mapping[str, str]) -> int:
    """Run a program to its end, pass signals on, and return its exit status (128 + the signal that ended it)."""
    watched = {*_FORWARDED, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        try:
            child = subprocess.Popen(
                list(command), env=dict(given), preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before)
            )
        except OSError as problem:
            raise ShareError(f"{command[0]} cannot be run: {problem.strerror}") from None
        while child.poll() is None:
            if (got := signal.sigtimedwait(watched, 0.5)) is None or got.si_signo == signal.SIGCHLD:
                continue
            if got.si_code != _FROM_TERMINAL:
                child.send_signal(got.si_signo)
    finally:
        while signal.sigtimedwait(watched, 0) is not None:  # a pending signal would end us once it is unblocked
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


# --- the broker beside it ---------------------------------------------------------------------------------------------


def ensure_broker(place: Place, command: Sequence[str], say: Callable[[str], None]) -> tuple[dict[str, Any], bool]:
    """Return the state of the GPU's broker, and whether it was started now, in a session of its own."""
    if places.held(place.lock):
        places.check_signed(place)
        state = _await_state(place, None)
        if state.get("stopping"):
            raise ShareError(
                f"the broker of GPU {place.gpu} is stopping and waits for its programs: "
                "wait for them, or headway share stop --kill"
            )
        return state, False
    if any(path not in (place.lock, place.users) for path in place.leftovers()):
        say(f"headway: a broker of GPU {place.gpu} had ended without cleaning up; programs it left find the new one")
    try:
        log = places.open_log(place)
    except OSError as problem:
        raise ShareError(f"the broker's log {place.log} cannot be written: {problem.strerror}") from None
    try:
        began = os.lseek(log, 0, os.SEEK_END)
        child = subprocess.Popen(
            list(command), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/"
        )
    finally:
        os.close(log)
    state = _await_state(place, child, began)
    ours = state.get("pid") == child.pid  # another run may have started one at the same moment
    if ours:
        say(f"headway: broker of GPU {place.gpu} started (process {child.pid}; log: {place.log}); {state['mode_line']}")
    # It outlives this process on purpose: do not wait for it.
    child.returncode = 0 if child.returncode is None else child.returncode
    return state, ours


def _await_state(place: Place, child: "subprocess.Popen[bytes] | None", log_from: int = 0) -> dict[str, Any]:
    """Return the broker's state, once it has published it."""
    until = time.monotonic() + _READY_S
    while time.monotonic() < until:
        if state := places.current_state(place):
            # A broker that just took over a dead one's lock has neither signed it nor removed the old files yet.
            time.sleep(_SETTLED_S)
            if places.current_state(place).get("pid") == state["pid"]:
                return state
        if child is not None and child.poll() is not None and not places.held(place.lock):
            with place.log.open("rb") as file:
                file.seek(log_from)
                lines = file.read().decode(errors="replace").strip().splitlines()
            said = lines[-1].removeprefix("headway: ") if lines else f"nothing, with status {child.returncode}"
            if child.returncode < 0:  # then its last line is not the reason
                said = f"signal {-child.returncode} ended it"
            raise ShareError(f"the broker did not start: {said} (log: {place.log})")
        time.sleep(0.02)
    raise ShareError(f"the broker of GPU {place.gpu} did not get ready: see {place.log}, or headway share stop --kill")


def above(place: Place, priority: int) -> list[tuple[str, str]]:
    """Return name and stored name of the programs of higher priority that share the GPU now, the highest first."""
    try:
        block = SharedBlock.open(place.block)
    except ShareError:
        return []
    try:
        slots = [slot for slot in block.slots if slot.state == LIVE and slot.priority < priority]
        ordered = sorted(slots, key=lambda slot: (slot.priority, slot.since_ns))
        return [(slot_profiles.text(slot.name), slot_profiles.key(slot)) for slot in ordered]
    finally:
        block.close()


def launched(place: Place, name: str, since_ns: int, seconds: float = 10.0) -> bool | None:
    """Return whether the broker saw a program of that name, which has ended, launch anything.

    None if no broker runs, or if it has not looked at its clients since now for so many seconds.
    """
    now_ns = time.monotonic_ns()
    until = time.monotonic() + seconds
    while True:
        try:
            state = places.current_state(place)
        except ShareError:  # somebody else's files: the program has ended, and its status is what counts
            return None
        if not state:
            return None
        if name in state.get("here", ()) or any(_launched(client, name, since_ns) for client in state["left"]):
            return True
        if state.get("looked_ns", 0) >= now_ns:
            return False
        if time.monotonic() > until:
            return None
        time.sleep(0.05)


def _launched(client: Mapping[str, Any], name: str, since_ns: int) -> bool:
    return bool(client["name"] == name and client["since_ns"] >= since_ns and client["launches"])

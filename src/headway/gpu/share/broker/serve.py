"""Start and stop of a broker: its lock, leftover files, MPS, its loop, and the removal of its files."""

import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway import __version__
from headway.device import locks as places, mps as mps_, nvidia as gpus, processes
from headway.device.locks import Place
from headway.device.mps import Mps
from headway.device.nvidia import Gpu
from headway.errors import ShareError
from headway.gpu.control.dial import Dial
from headway.gpu.control.slowdown import MILLION
from headway.gpu.share.block.block import SharedBlock
from headway.gpu.share.broker.background_store import Store
from headway.gpu.share.broker.broker import Broker
from headway.gpu.share.broker.status import snapshot
from headway.gpu.share.tape import folders as tape_folders
from headway.gpu.share.tape.recorder import Recorder, TapeRecorder

PLAIN = Dial()
"""The dial with its defaults."""
NO_TAPE = "none"
Say = Callable[[str], None]
_TURN_S = 0.05
_GRACE_S = 5.0
_HEARD_S = 2.0
_MPS_S = 60.0
"""Time that MPS may take to end."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a broker is started with."""

    slo_ppm: int = PLAIN.slo_ppm
    slo99_ppm: int = PLAIN.slo99_ppm
    floor_ppm: int = PLAIN.floor_ppm
    mps: str = "auto"
    linger_ns: int | None = None
    out: str = ""
    """The folder of its tape; empty: the usual place; "none": there is no tape."""


def serve(
    place: Place,
    gpu: Gpu,
    settings: Settings,
    *,
    store: Store | None = None,
    say: Say = lambda line: None,
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Run the broker of a GPU until told to stop, or until no client is left."""
    if (lock := places.hold_within(place.lock, 1.0, alone=True)) is None:
        pid = places.holder(place.lock) or "unknown"
        raise ShareError(
            f"a broker of GPU {place.gpu} runs already (process {pid}): "
            "headway share status shows it, headway share stop ends it"
        )
    places.sign(lock)
    mps: Mps | None = None
    users: int | None = None
    try:
        remove_stale_files(place, say)
        mps, line = mps_.find_or_start(place, gpu, settings.mps)
        say(line)
        now = time.monotonic_ns()
        block = SharedBlock.create(place.block, gpus.multiprocessors(gpu), now)
        facts: dict[str, Any] = {
            "pid": os.getpid(),
            "version": __version__,
            "gpu": gpu.index,
            "gpu_name": gpu.name,
            "driver": gpu.driver,
            "mode": "mps" if mps else "coarse",
            "mode_line": line,
            "mps": {"pipe": str(mps.pipe), "log": str(mps.log), "owned": mps.owned} if mps else None,
            "started_s": round(time.time(), 3),
        }
        dial = Dial(settings.slo_ppm, settings.slo99_ppm, settings.floor_ppm, mps=mps is not None)
        recorder = _recorder(settings, block, facts, now, say)
        facts["tape"] = str(recorder.folder or "")
        linger = settings.linger_ns
        broker = Broker(
            place, block, dial, store=store, mps=mps, linger_ns=linger, facts=facts, say=say, recorder=recorder
        )
        aim = dial.slo_ppm / MILLION
        say(f"broker of GPU {gpu.index} ({gpu.name}), process {os.getpid()}, slow-down aimed at {aim:g}×")
        try:
            _say_first(broker, now)
            users = broker.run(stopped, lambda ending: _end(ending, say))
        finally:
            block.close()
    finally:
        if mps is not None and not mps.stop():
            say(f"MPS at {mps.pipe} did not stop: echo quit | {mps_.PIPE}={mps.pipe} {mps_.CONTROL}")
        places.remove(place)
        for handle in (users, lock):
            if handle is not None:
                os.close(handle)
    say("stopped")


def _recorder(settings: Settings, block: SharedBlock, facts: Mapping[str, Any], begun_ns: int, say: Say) -> Recorder:
    """Return what writes the tape."""
    if settings.out == NO_TAPE:
        return Recorder()
    folder = Path(settings.out) if settings.out else tape_folders.usual(facts["gpu"], facts["started_s"])
    told = ("gpu", "gpu_name", "driver", "mode", "version")
    began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(facts["started_s"]))
    about = {"began": began, **{name: facts[name] for name in told}}
    return TapeRecorder(folder, block, about, begun_ns, say)


def _say_first(broker: Broker, now_ns: int) -> None:
    """Publish the state for the first time; raise ShareError where that fails: no program would find the broker."""
    # Programs start once they find it: where it took long since the block was made they would see no sign of life.
    broker.block.header.beat_ns = time.monotonic_ns()
    try:
        broker.publish(now_ns)
    except OSError as problem:
        raise ShareError(f"{broker.place.state} cannot be written: {problem.strerror}") from None


def remove_stale_files(place: Place, say: Say) -> None:
    """Remove the files of a broker that was killed, whose lock we hold; keep its MPS where that still runs."""
    places.checked(place)
    left = [path for path in place.leftovers() if path not in (place.lock, place.users)]
    if not left:
        return
    pid = places.read_json(place.state).get("pid")
    whose = f"broker of GPU {place.gpu}" + (f" (process {pid})" if pid else "")
    mps = mps_.running(place) if place.mps.exists() else None
    kept = {place.mps} if mps is not None and mps.owned else set()
    for path in left:
        if path not in kept:
            places.remove_one(path)
    if names := ", ".join(path.name for path in left if path not in kept):
        say(f"the {whose} ended without cleaning up: removed {names} from {place.folder}")


def _end(broker: Broker, say: Say) -> None:
    """End the broker: programs go on ungated at once; under an MPS that it started it waits for them, or kills them."""
    told: set[int] = set()
    while True:
        broker.step(time.monotonic_ns())
        if broker.stopping == "kill":
            _kill(broker, say)
            return
        if not (waiting := _mps_clients(broker)):
            return
        for pid in waiting - told:
            say(f"draining: process {pid} still runs under this MPS; headway share stop --kill ends it")
        told |= waiting
        time.sleep(_TURN_S)


def _mps_clients(broker: Broker) -> set[int]:
    """Return the processes that would lose the GPU if MPS were stopped now."""
    if broker.mps is None or not broker.mps.owned:
        return set()
    return {client for _, client in broker.mps.clients()} | {pid for pid in broker.clients.values() if pid}


def _kill(broker: Broker, say: Say) -> None:
    """Kill every client: first end its work on the GPU, through MPS, so that no kernel is cut off; then the process."""
    begun = {pid: processes.start_ticks(pid) for pid in broker.clients.values() if pid}
    if broker.mps is not None:
        if broker.mps.owned:
            begun |= {client: processes.start_ticks(client) for _, client in broker.mps.clients()}
        for pid in begun:
            broker.mps.terminate(pid)
    if hidden := [index for index, pid in broker.clients.items() if not pid]:
        say(f"{len(hidden)} clients in other containers cannot be ended from here: they go on ungated")
    for number in (signal.SIGTERM, signal.SIGKILL):
        until = time.monotonic() + _GRACE_S
        for pid, ticks in begun.items():
            if processes.alive(pid, ticks):
                _signal(pid, number, say)
        while time.monotonic() < until and any(processes.alive(*client) for client in begun.items()):
            time.sleep(_TURN_S)
            broker.step(time.monotonic_ns())


def _signal(pid: int, number: signal.Signals, say: Say) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
    except PermissionError:
        say(f"process {pid} belongs to another user: it goes on ungated")


# --- from outside -----------------------------------------------------------------------------------------------------


def stop(place: Place, *, kill: bool, say: Say, seconds: float = 30.0) -> bool:
    """Stop the broker, or remove the files of one that died; return False if it still waits for its programs."""
    if not places.held(place.lock):
        return _remove_leftovers(place, say)
    places.check_signed(place)
    there = _sharing(place)
    places.ask(place, stop="kill" if kill else "drain")
    until = time.monotonic() + seconds + (_MPS_S if kill else 0.0)
    told = False
    while places.held(place.lock):
        state = places.read_json(place.state)
        if not kill and state.get("stopping") and state.get("mode") == "mps" and not told:
            told = True
            say("draining: every program goes on ungated; the broker stays until they end, for MPS is theirs too")
        if time.monotonic() > until:
            if told or (not kill and _is_stopping(place)):  # it ends once its programs have
                return False
            _kill_broker(place, say)
            return _remove_leftovers(place, say)
        time.sleep(_TURN_S)
    what = f"{', '.join(there)}: " + ("ended" if kill else "on their own now, ungated") if there else "nobody shared it"
    say(f"the broker of GPU {place.gpu} has ended ({what})")
    return True


def _sharing(place: Place) -> list[str]:
    """Return the names of the clients that share the GPU; empty where they cannot be read."""
    try:
        return [str(client["name"]) for client in snapshot(place)["clients"]]
    except ShareError:
        return []


def _is_stopping(place: Place) -> bool:
    """Return whether the broker has noted that it must stop, or does so within a moment."""
    return places.wait_until(
        lambda: not places.held(place.lock) or bool(places.read_json(place.state).get("stopping")), _HEARD_S, _TURN_S
    )


def _kill_broker(place: Place, say: Say) -> None:
    """Kill a broker that does not answer. Programs go on ungated."""
    pid = places.holder(place.lock)
    if not pid or not places.held(place.lock) or not processes.has_open(pid, place.lock):
        return  # in another container the number is somebody else's
    say(f"the broker (process {pid}) does not answer: it is killed")
    _signal(pid, signal.SIGKILL, say)
    places.wait_until(lambda: not places.held(place.lock), _GRACE_S, _TURN_S)


def _remove_leftovers(place: Place, say: Say) -> bool:
    """Remove the files of a dead broker, and stop its MPS."""
    if (lock := places.hold_within(place.lock, 1.0, alone=True)) is None:
        raise ShareError(f"the broker of GPU {place.gpu} holds {place.lock} and does not end: end its process by hand")
    try:
        if place.mps.exists() and (mps := mps_.running(place)) is not None and mps.owned:
            mps.stop()
        removed = [path for path in places.remove(place) if path not in (place.lock, place.users)]
        if removed:
            names = ", ".join(path.name for path in removed)
            say(f"a broker of GPU {place.gpu} had ended without cleaning up: removed {names} from {place.folder}")
        places.checked(place)  # what is left now is not ours
        if not removed:
            say(f"no broker of GPU {place.gpu} runs")
    finally:
        os.close(lock)
    return True

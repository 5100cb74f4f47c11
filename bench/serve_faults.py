"""Faults of live serving under load, and a soak: what users see, and what is left behind.

    python -m bench.serve_faults                          every fault, 30 s each at 100 requests a second
    python -m bench.serve_faults --fault worker-killed --seconds 10
    python -m bench.serve_faults --soak 900               no fault: memory and file descriptors over time

A server is started by its command, requests come in an open loop through the Python client, and a third into the time
the fault is done. Every request must have one answer or one reason within its deadline and a second; afterwards nothing
may be left: no process, no shared memory. Exit status 1 where that is not so. One JSON line a fault.
"""

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import headway as hw
from headway.errors import HeadwayError, ServeError, TapeError

APP = Path(__file__).with_name("serve_app.py")
DEADLINE_S = 2.0
FAULTS = ("none", "worker-killed", "worker-hung", "memory", "connections-cut", "front-restarted", "disk-full")


@dataclass
class Seen:
    """What became of the requests of one run."""

    latencies: list[tuple[float, float]] = field(default_factory=list)
    """(when it was due, seconds to its answer), of those that were answered."""
    reasons: Counter[str] = field(default_factory=Counter)
    slowest_failure_s: float = 0.0
    sent: int = 0
    ended: int = 0


class Served:
    """A server in a process of its own, with a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs: list[Path] = []
        """The run folder of each start."""
        self.log = folder.parent / "log.txt"
        self.process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        self.runs.append(self.folder.parent / f"run-{len(self.runs)}")
        command = [
            *(sys.executable, "-m", "headway", "serve", "start", str(APP), "--no-http", "--folder", str(self.folder)),
            *("--workers", "2", "--policy", "headway", "--out", str(self.runs[-1])),
        ]
        with self.log.open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log)

    def restart(self) -> None:
        """Kill the server as hard as can be, and start it again."""
        self.process.kill()
        self.process.wait()
        self.process = self._start()

    async def ready(self) -> None:
        """Return when it answers."""
        until = time.monotonic() + 120
        while time.monotonic() < until:
            if self.process.poll() is not None:
                raise SystemExit(f"the server ended:\n{self.log.read_text()}")
            try:
                async with hw.AsyncClient(self.folder) as client:
                    if (await client.status())["ready"]:
                        return
            except (HeadwayError, OSError):
                pass
            await asyncio.sleep(0.1)
        raise SystemExit("the server is not ready within two minutes")

    def stop(self) -> None:
        """End it in good order."""
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def processes(self) -> list[int]:
        """Return the server and the processes that it started."""
        above = {int(path.parent.name): _parent(path) for path in Path("/proc").glob("[0-9]*/stat")}
        found = [self.process.pid]
        for pid in found:
            found += [child for child, parent in above.items() if parent == pid]
        return found


def _parent(stat: Path) -> int:
    try:
        return int(stat.read_text().rpartition(")")[2].split()[1])
    except OSError:  # it has ended
        return -1


def own_bytes(pid: int) -> int:
    """Return the memory that a process shares with nobody."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Private_"))


def alive(pids: list[int], within_s: float) -> list[int]:
    """Return the processes that have not ended within a time."""
    until = time.monotonic() + within_s
    while left := [pid for pid in pids if Path(f"/proc/{pid}/exe").exists()]:
        if time.monotonic() > until:
            return left
        time.sleep(0.05)
    return []


async def one(client: hw.AsyncClient, order: dict[str, Any], due: float, seen: Seen) -> None:
    """Send a request and note how it ends; one whose server is gone is sent again, under the same key."""
    seen.sent += 1
    while True:
        try:
            await client.call("small", order, deadline=DEADLINE_S, key=order["key"])
            seen.latencies.append((due, time.monotonic() - due))
        except (ServeError, OSError) as problem:
            if time.monotonic() - due < DEADLINE_S:
                await asyncio.sleep(0.1)
                continue
            _failed(seen, problem, due)
        except HeadwayError as problem:
            _failed(seen, problem, due)
        break
    seen.ended += 1


def _failed(seen: Seen, problem: Exception, due: float) -> None:
    seen.reasons[str(problem).split(":")[0]] += 1
    seen.slowest_failure_s = max(seen.slowest_failure_s, time.monotonic() - due)


async def load(server: Served, rate: float, seconds: float, fault: str, seen: Seen) -> float:
    """Send requests at a constant rate, and do the fault a third into the time; return when that was."""
    once = server.folder.parent / "once"
    mischief = {"worker-killed": "kill", "worker-hung": "hang", "memory": "memory"}.get(fault, "")
    began, count, done_at = time.monotonic(), round(rate * seconds), 0.0
    clients = [hw.AsyncClient(server.folder) for _ in range(4)]
    for client in clients:
        await client.open()
    tasks = []
    for number in range(count):
        due = began + number / rate
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        order: dict[str, Any] = {"n": number, "ms": 2, "key": f"{fault}-{number}"}
        if not done_at and due - began > seconds / 3:
            done_at = due
            order |= {"mischief": mischief, "once": str(once)}
            if fault == "front-restarted":
                server.restart()
            if fault == "connections-cut":
                for client in clients[:2]:
                    await client.close()
        tasks.append(asyncio.ensure_future(one(clients[number % 4], order, due, seen)))
    await asyncio.wait_for(asyncio.gather(*tasks), 60)
    for client in clients:
        await client.close()
    return done_at


def told(seen: Seen, fault_at: float) -> dict[str, Any]:
    """Return percentiles before the fault and after, and how long it took until they were as before."""
    before = sorted(latency for due, latency in seen.latencies if due < fault_at)
    usual = before[len(before) * 99 // 100] if before else 0.0
    slow = [due for due, latency in seen.latencies if due >= fault_at and latency > max(2 * usual, usual + 0.05)]
    return {
        "sent": seen.sent,
        "answered": len(seen.latencies),
        "failed": dict(seen.reasons),
        "without_an_end": seen.sent - seen.ended,
        "slowest_failure_s": round(seen.slowest_failure_s, 3),
        "p50_ms": round(median(before) * 1e3, 2) if before else None,
        "p99_ms": round(usual * 1e3, 2),
        "slow_until_s": round(max(slow) - fault_at, 2) if slow else 0.0,
    }


def tiny_disk(folder: Path) -> bool:
    """Mount a disk of four megabytes, on which no weights find room; return whether that is allowed here."""
    folder.mkdir(mode=0o700)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "none", str(folder)], check=False)
    return mounted.returncode == 0


async def fault_run(fault: str, rate: float, seconds: float) -> dict[str, Any]:
    """Run one fault; return what was seen."""
    with tempfile.TemporaryDirectory(prefix="headway-faults-") as temporary:
        folder = Path(temporary) / "server"
        if fault == "disk-full" and not tiny_disk(folder):
            return {"fault": fault, "skipped": "a small disk cannot be mounted here"}
        server = Served(folder)
        try:
            await server.ready()
            seen = Seen()
            at = await load(server, rate, seconds, fault, seen)
            await server.ready()
            row = {"fault": fault, **told(seen, at)}
            row["starts"] = [worker["starts"] for worker in (await _status(folder))["server"]["workers"]]
        finally:
            processes = server.processes()
            server.stop()
        if fault == "disk-full":
            subprocess.run(["umount", str(folder)], check=False)
        row["left"] = [
            *(f"process {pid}" for pid in alive(processes, 10)),
            *(path.name for path in Path("/dev/shm").glob(f"headway-{server.process.pid}-*")),
        ]
        row["sound"] = all(map(is_sound, server.runs))
        return row


def is_sound(run: Path) -> bool:
    """Return whether the audit of a run finds nothing; so it is of one without any step."""
    try:
        return not hw.open(run, trust=True).audit()
    except TapeError as problem:
        return "holds no step" in str(problem)


async def _status(folder: Path) -> dict[str, Any]:
    async with hw.AsyncClient(folder) as client:
        return dict(await client.status())


async def soak(rate: float, seconds: float, every_s: float = 30.0) -> list[dict[str, Any]]:
    """Serve without a fault; return memory and file descriptors of server and workers over time."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="headway-soak-") as temporary:
        server = Served(Path(temporary) / "server")
        try:
            await server.ready()
            seen, began = Seen(), time.monotonic()
            running = asyncio.ensure_future(load(server, rate, seconds, "none", seen))
            while not running.done():
                await asyncio.wait({running}, timeout=every_s)
                pids = server.processes()
                row = {"s": round(time.monotonic() - began), "sent": seen.sent, "own_bytes": [*map(own_bytes, pids)]}
                rows.append(row | {"files": [len(list(Path(f"/proc/{pid}/fd").glob("*"))) for pid in pids]})
                print(json.dumps(rows[-1]), flush=True)
        finally:
            server.stop()
    return rows


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fault", action="append", choices=FAULTS, help="only this one; may be repeated")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--soak", type=float, default=0.0, metavar="SECONDS")
    given = parser.parse_args()
    if given.soak:
        asyncio.run(soak(given.rate, given.soak))
        return
    wrong = 0
    for fault in given.fault or FAULTS:
        row = asyncio.run(fault_run(fault, given.rate, given.seconds))
        wrong += "skipped" not in row and bool(row["without_an_end"] or row["left"] or not row["sound"])
        print(json.dumps(row), flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()

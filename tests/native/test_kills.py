"""A thousand random deaths of clients and brokers: nobody else hangs, no slot and no file is lost."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

from headway.device.locks import Place
from headway.device.nvidia import ANY_GPU
from headway.errors import ShareError
from headway.gpu.share.block.block import FREE, SharedBlock
from tests.native.harness import LONG_S, Built

CLIENTS = 950
BROKERS = 50
AT_ONCE = 6
LATEST_S = 0.12
"""Whoever is to be killed is by then: while it joins, waits, launches, or leaves."""
SERVE = """
import signal, sys
from pathlib import Path
from headway.device.nvidia import STUB
from headway.device.locks import Place
from headway.gpu.share.broker.serve import Settings, serve

told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(True))
serve(Place(Path(sys.argv[1]), 0), STUB, Settings(mps="off"), stopped=lambda: bool(told))
"""
WORK = (
    "--threads",
    "2",
    "--launch",
    "300",
    "--kernel",
    "a:20",
    "--kernel",
    "b:200",
    "--gap-us",
    "20",
    "--sync-every",
    "5",
)


class Crowd:
    """Clients that come, and go one way or the other; and the broker they find."""

    def __init__(self, built: Built, place: Place) -> None:
        self.built, self.place = built, place
        self.noise = random.Random(6)
        self.running: list[tuple[subprocess.Popen[bytes], float | None]] = []
        self.killed = self.ended = 0
        self.broker = self.serve()

    def serve(self) -> subprocess.Popen[bytes]:
        """A broker, once its block is there."""
        environment = {**os.environ, ANY_GPU: "1"}
        process = subprocess.Popen([sys.executable, "-c", SERVE, str(self.place.folder)], env=environment)
        until = time.monotonic() + LONG_S
        while self.owner() != process.pid:
            assert process.poll() is None
            assert time.monotonic() < until, "the broker does not start"
            time.sleep(0.005)
        return process

    def owner(self) -> int:
        """The broker that made the block, if one did."""
        try:
            block = SharedBlock.open(self.place.block)
        except ShareError:
            return 0
        owner = int(block.header.broker)
        block.close()
        return owner

    def join(self) -> None:
        """One more client; nine in ten are going to be killed."""
        environment = self.built.environment(self.place.block, self.noise.choice([0, 3, 5, 9]))
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen([self.built.folder / "client-linked", *WORK], env=environment, **quiet)
        dies = time.monotonic() + self.noise.uniform(0, LATEST_S) if self.noise.random() < 0.9 else None
        self.running.append((process, dies))

    def turn(self) -> None:
        """Kill whose time has come, bury the dead."""
        still = []
        for process, dies in self.running:
            if dies is not None and time.monotonic() >= dies and process.poll() is None:
                process.kill()
                process.wait()
                self.killed += 1
            elif process.poll() is None:
                still.append((process, dies))
            else:
                assert process.returncode == 0
                self.ended += 1
        self.running = still
        time.sleep(0.001)

    def kill_broker(self) -> None:
        """The broker dies at a moment of no choice; another one comes."""
        self.broker.kill()
        self.broker.wait()
        self.broker = self.serve()

    def drain(self) -> None:
        """Those who are left end by themselves."""
        until = time.monotonic() + LONG_S
        while self.running:
            assert time.monotonic() < until, f"{len(self.running)} clients hang"
            self.turn()


def test_a_thousand_random_kills(built: Built, tmp_path: Path) -> None:
    place = Place(tmp_path / "share", 0)
    place.folder.mkdir()
    crowd = Crowd(built, place)
    brokers = 0
    while crowd.killed < CLIENTS or brokers < BROKERS:
        while len(crowd.running) < AT_ONCE:
            crowd.join()
        crowd.turn()
        if crowd.killed >= (brokers + 1) * CLIENTS // BROKERS:
            crowd.kill_broker()
            brokers += 1
    crowd.drain()
    assert crowd.killed + brokers >= CLIENTS + BROKERS == 1000
    assert crowd.ended > 0
    block = SharedBlock.open(place.block)
    until = time.monotonic() + LONG_S
    while any(slot.state != FREE or slot.owner for slot in block.slots):
        assert time.monotonic() < until, "a slot was lost"
        time.sleep(0.05)
    block.close()
    crowd.broker.terminate()
    assert crowd.broker.wait(LONG_S) == 0
    assert list(place.folder.iterdir()) == []

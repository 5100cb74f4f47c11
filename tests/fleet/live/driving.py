"""A server's side of one worker: starts the process, sends orders, waits for answers."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from headway.door.frames import Frames, framed
from headway.fleet.live.workers.messages import ANSWERS, Answer, Beat, Finished, Hello, Order, Run, Setup
from headway.fleet.live.workers.payload import Packer, release, sweep, unpack

SOURCE = Path(__file__).resolve().parents[3] / "src"
PATIENCE_SECONDS = 120
AnswerT = TypeVar("AnswerT", bound=Answer)


class Driven:
    """A worker process and the socket to it."""

    def __init__(self, app: Path, functions: Iterable[str], models: Iterable[str] = (), **setup: Any) -> None:
        self.functions, self.models = tuple(functions), tuple(models)
        self.ours, theirs = socket.socketpair()
        self.ours.settimeout(PATIENCE_SECONDS)
        folder = app.parent
        self.log = folder / f"log-{theirs.fileno()}-{os.urandom(4).hex()}"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headway.fleet.live.workers.worker", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                env={**os.environ, "PYTHONPATH": str(SOURCE)},
                stdout=log,
                stderr=log,
            )
        theirs.close()
        self._frames = Frames(ANSWERS)
        self._answers: list[Answer] = []
        self.beats: list[Beat] = []
        self.prefix = f"headway-test-{os.getpid()}-{os.urandom(4).hex()}"
        self.packer = Packer(f"{self.prefix}-driver")
        self._leases = 0
        values: dict[str, Any] = {
            "app": str(app),
            "worker": 0,
            "functions": self.functions,
            "models": self.models,
            "memory_bytes": 1 << 30,
            "device": "cpu",
            "prefix": f"{self.prefix}-worker",
            "host_folder": str(folder / "host"),
            "weights_folder": "",
        }
        self.send(Setup(**(values | setup)))

    def send(self, order: Order) -> None:
        """Send an order."""
        self.ours.sendall(framed(order))

    def answer(self) -> Answer:
        """The next answer that is no beat."""
        while not self._answers:
            data = self.ours.recv(1 << 20)
            assert data, f"the worker is gone: {self.text()}"
            for each in self._frames.feed(data):
                (self.beats if isinstance(each, Beat) else self._answers).append(each)  # type: ignore[arg-type]
        return self._answers.pop(0)

    def expect(self, kind: type[AnswerT]) -> AnswerT:
        """The next answer, which is of a kind."""
        found = self.answer()
        assert isinstance(found, kind), (found, self.text())
        return found

    def ready(self) -> Hello:
        """Wait until the worker is ready."""
        return self.expect(Hello)

    def run(
        self, function: str, *inputs: Any, evict: Iterable[str] = (), models: Iterable[str] = (), **more: Any
    ) -> int:
        """Send a batch of tasks with one input each; its lease."""
        return self.run_joined(function, *((each,) for each in inputs), evict=evict, models=models, **more)

    def run_joined(
        self,
        function: str,
        *inputs: tuple[Any, ...],
        evict: Iterable[str] = (),
        models: Iterable[str] = (),
        **more: Any,
    ) -> int:
        """Send a batch of tasks with several inputs each; its lease."""
        self._leases += 1
        packed = tuple(tuple(self.packer.pack(value) for value in each) for each in inputs)
        numbers, away = (tuple(self.models.index(name) for name in names) for names in (models, evict))
        self.send(Run(self._leases, self.functions.index(function), packed, numbers, away, **more))
        return self._leases

    def results(self) -> list[Any]:
        """What the next batch to end returned; none of its tasks failed."""
        done = self.expect(Finished)
        assert not done.failures, done.failures
        found = [unpack(each) for each in done.results]
        for each in done.results:
            release(each)
        return found

    def rss_bytes(self) -> int:
        """The memory of the process that is not shared."""
        rows = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(row.split()[1]) << 10 for row in rows if row.startswith("RssAnon"))

    def text(self) -> str:
        """What the process wrote."""
        return self.log.read_text()

    def close(self) -> None:
        """End the process and remove its blocks."""
        self.ours.close()
        try:
            self.process.wait(PATIENCE_SECONDS)
        finally:
            self.process.kill()
            self.process.wait()
            sweep(self.prefix)


Start = Callable[..., Driven]
"""Starts a worker, ready for orders; keywords go into its setup."""


def starting(app: Path, text: str, functions: Iterable[str], models: Iterable[str]) -> Iterator[Start]:
    """Yield what starts workers of an application with this text; they end when the generator does."""
    app.write_text(text)
    started: list[Driven] = []

    def one(**setup: Any) -> Driven:
        driven = Driven(app, functions, models, **setup)
        started.append(driven)
        driven.ready()
        return driven

    yield one
    for driven in started:
        driven.close()

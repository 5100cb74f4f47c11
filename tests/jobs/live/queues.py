"""A queue in the process of the test, with real programs: turned by hand, dropped as by a kill, and taken up again."""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from headway.jobs.experiment.observed import last_rows
from headway.jobs.live.ground import Settings, queue_of, settings_of
from headway.jobs.live.local.engine import logs_of
from headway.jobs.live.local.machine import Machine, machine
from headway.jobs.live.messages import Submit
from headway.jobs.live.place import Place
from headway.jobs.live.queue import LiveQueue
from headway.jobs.live.store import Past, Store, read
from headway.jobs.model.rows import Kind
from headway.runs.folder.folder import open_run
from headway.runs.result import Run
from headway.units import HOUR

PYTHON = (sys.executable, "-S", "-I")
WITHIN_S = 180.0


class Bench:
    """A folder with a queue that the test turns."""

    within_s = WITHIN_S

    def __init__(self, folder: Path, policy: str = "fifo+easy", gpus: int = 4, profiles: Sequence[str] = ()) -> None:
        self.place = Place(folder / "queue")
        self.place.folder.mkdir(mode=0o700, parents=True)
        self.folder, self.log = folder, list[str]()
        self._settings = msgspec.json.encode(self.settings(policy, gpus, profiles))
        self.queue = self.again(begin=True)

    def settings(self, policy: str, gpus: int, profiles: Sequence[str]) -> Settings:
        """Make the settings of the run."""
        self.machine: Machine = machine(str(gpus))
        return settings_of(self.machine, policy, HOUR, profiles)

    def again(self, *, begin: bool = False) -> LiveQueue:
        """Take the queue up from its store, as after a kill."""
        if not begin:
            self.queue.store.close()
        store = Store(self.place.store)
        if begin:
            store.begin(self._settings)
        past = read(self.place.store)
        assert past is not None
        store.take_up(past)
        self.queue = self.taken_up(store, past)
        self.queue.turn()
        return self.queue

    def taken_up(self, store: Store, past: Past) -> LiveQueue:
        """Make the queue of a run as it was."""
        return queue_of(self.place, store, past, self.machine, self.log.append)

    def submit(self, *command: str, **more: Any) -> int:
        """Submit a program, with next to no environment unless one is given."""
        given = {"gpus": 1, "cpus": 0, "grace_s": 20.0, "environment": {"PATH": "/usr/bin:/bin"}, **more}
        return self.queue.submit(Submit(command, str(self.folder), **given))

    def python(self, code: str, *words: str, **more: Any) -> int:
        """Submit a program in Python."""
        return self.submit(*PYTHON, "-c", code, *words, **more)

    def until(self, condition: Callable[[], bool], what: str = "") -> None:
        """Turn the queue until something is so."""
        end = time.monotonic() + self.within_s
        while not condition():
            assert time.monotonic() < end, (what, self.log[-10:], self.queue.status())
            self.queue.turn()
            time.sleep(0.005)

    def over(self) -> None:
        """Turn the queue until every job has ended and is gone."""
        self.until(lambda: not self.queue.state.jobs and self.queue.idle, "all jobs have ended")

    def out(self, job: int, errors: bool = False) -> str:
        """What a job has printed."""
        path = logs_of(self.place.run(1), job)[errors]
        return path.read_text() if path.exists() else ""

    def said(self, job: int, word: str) -> None:
        """Turn the queue until a job has printed something."""
        self.until(lambda: word in self.out(job), f"job {job} says {word}")

    @property
    def past(self) -> Past:
        """What the store says."""
        past = read(self.place.store)
        assert past is not None
        return past

    def ends(self) -> dict[int, str]:
        """How jobs ended."""
        return {job: Kind(row[1]).name.lower() for job, row in last_rows(self.past.tape).items()}

    def count(self, kind: Kind, job: int) -> int:
        """Rows of a kind about a job."""
        return sum(row[2] == job for row in self.past.tape.of(int(kind)).tolist())

    def check(self) -> None:
        """The tape so far replays identically and is sound."""
        run = Run(open_run(self.place.folder))
        assert run.replay() is None
        assert run.audit() == []

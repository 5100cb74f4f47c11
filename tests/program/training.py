"""A training program in the process of the test: ended by signals and errors, and begun again as if anew."""

import json
import os
import random
import signal
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import headway
from headway.program import saving


class CrashError(Exception):
    """The program breaks off in a step."""


class Training:
    """Takes notes of its batches with a random number for each; the notes are its state."""

    def __init__(self, folder: Path, batches: Callable[[], Iterable[Any]], **more: Any) -> None:
        self.folder, self._batches, self.more = folder, batches, {"every": None, "epochs": 1, "name": "test", **more}
        self.notes: list[Any] = []
        self.saved: list[int] = []
        self.starts = 0

    def start(self, preempt: int | None = None, crash: int | None = None) -> int:
        """Run as a new process: to its end (0), to a SIGTERM in a step (its exit status) or to a crash (1)."""
        self.starts += 1
        self.notes.clear()
        random.seed(0)
        main = threading.current_thread() is threading.main_thread()
        before = signal.getsignal(signal.SIGTERM)
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(saving, "PROCESS", f"process {self.starts}")
                self._run(preempt, crash)
        except SystemExit as ended:
            return int(ended.code or 0)
        except CrashError:
            return 1
        finally:  # a process that was preempted keeps its handler to its end
            if main:
                signal.signal(signal.SIGTERM, before)
        return 0

    def _run(self, preempt: int | None, crash: int | None) -> None:
        loop = headway.steps(
            self._batches(), checkpoint=self.save, resume=self.load, folder=self.folder / "kept", **self.more
        )
        for batch in loop:
            if loop.step == crash:
                raise CrashError
            self.notes.append([loop.step, loop.epoch, batch, random.random()])
            if loop.step == preempt:
                os.kill(os.getpid(), signal.SIGTERM)

    def save(self, path: Path) -> None:
        """Write the notes."""
        self.saved.append(len(self.notes))
        path.write_text(json.dumps(self.notes))

    def load(self, path: Path) -> None:
        """Read the notes."""
        self.notes = json.loads(path.read_text())

    @property
    def kept(self) -> list[str]:
        """What lies in the folder of checkpoints."""
        return sorted(path.name for path in (self.folder / "kept").iterdir())

"""Signals that ask a training program to end: they are noted, and obeyed after the step in progress."""

import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Asked:
    """Whether the program was asked to end, by SIGTERM, since this was entered.

    In a child of ``multiprocessing`` SIGINT counts too: torch's ``spawn`` lets the kernel send it to the ranks when
    their parent is gone.
    """

    def __init__(self) -> None:
        self.asked = False
        self.stays = False
        """Whether signals are noted to the end of the process: a second one must not change how it ends."""
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Asked":
        if threading.current_thread() is not threading.main_thread():
            warnings.warn(
                "headway.steps runs outside of the main thread and cannot see SIGTERM: a checkpoint is written "
                "only every so often",
                RuntimeWarning,
                stacklevel=3,
            )
            return self
        multiprocessing: Any = sys.modules.get("multiprocessing")
        child = multiprocessing is not None and multiprocessing.parent_process() is not None
        for number in (signal.SIGTERM, signal.SIGINT) if child else (signal.SIGTERM,):
            self._before[number] = signal.signal(number, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.asked = True

    def __exit__(self, *_: object) -> None:
        if not self.stays and threading.current_thread() is threading.main_thread():
            for number, before in self._before.items():
                if signal.getsignal(number) == self._note and before is not None:
                    signal.signal(number, before)


@contextmanager
def spared_workers(loader: Any) -> Iterator[None]:
    """Let the worker processes of a torch loader outlive a SIGTERM that is not from the program itself.

    torchrun sends it to all processes of a rank. A worker that it ends would end the step in progress with an error.
    """
    if not getattr(loader, "num_workers", 0) or not hasattr(loader, "worker_init_fn"):
        yield
        return
    before = loader.worker_init_fn
    loader.worker_init_fn = _Spared(before)
    try:
        yield
    finally:
        loader.worker_init_fn = before


class _Spared:
    """Begins a worker; then does what the program wants of it."""

    def __init__(self, then: Callable[[int], object] | None) -> None:
        self._then = then

    def __call__(self, worker: int) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
        if self._then is not None:
            self._then(worker)


def _end_with(parent: int) -> None:
    """End this process when its parent asks it to."""
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != parent:
        pass
    os._exit(0)

"""Threads that take jobs from one queue; they keep no process alive."""

import threading
from collections.abc import Callable
from queue import SimpleQueue

Job = Callable[[], None]


class Lane:
    """A queue of jobs and its threads: one more is started, up to a limit, when all are busy."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []

    def put(self, job: Job) -> None:
        """Have a job done; one thread alone calls this."""
        self._jobs.put(job)
        if not self._idle.acquire(blocking=False) and len(self._threads) < self._most:
            self._threads.append(threading.Thread(target=self._work, daemon=True, name="lane"))
            self._threads[-1].start()

    def close(self) -> None:
        """Wait until all jobs are done."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # its inputs are freed before the next one comes
            self._idle.release()

"""Heartbeat of the broker, in a thread of its own, so that a slow step of the loop does not look like a failure.

It beats only while the loop makes progress: if the broker hangs, the beat stops and every program goes on ungated.
"""

import threading
import time

from headway.gpu.share.block.block import SharedBlock

BEAT_NS = 50_000_000
"""Twenty times a second."""
STUCK_NS = 10_000_000_000
"""A step of the loop that takes longer counts as a hang."""


class Heartbeat:
    """Writes the time into the block's header at every beat."""

    def __init__(self, block: SharedBlock, stuck_ns: int = STUCK_NS) -> None:
        self._block = block
        self._stuck_ns = stuck_ns
        self._progress_ns = time.monotonic_ns()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def progress(self) -> None:
        """Note that the loop has made progress."""
        self._progress_ns = time.monotonic_ns()

    def stop(self) -> None:
        """Stop the thread."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def beat(self) -> bool:
        """Beat once; return False if the loop hangs."""
        now = time.monotonic_ns()
        if now - self._progress_ns > self._stuck_ns:
            return False
        self._block.header.beat_ns = now
        return True

    def _beat(self) -> None:
        while not self._ended.wait(BEAT_NS / 1e9):
            self.beat()

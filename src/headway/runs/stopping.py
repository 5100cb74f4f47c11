"""Stop a run from outside: finish the step at the first signal, end at once where the policy does not return.

The first Ctrl-C (or SIGTERM) lets the step in progress end. A second Ctrl-C raises ``KeyboardInterrupt`` wherever the
program is, in an endless loop of somebody's policy too. A second SIGTERM, or a grace of some seconds after the first,
raises ``Terminated`` there. What is on the tape by then is kept. A policy that swallows even that, or that is in code
which is not Python and never returns, is ended after another grace: what it had written to the disk is kept. So it is
where a second Ctrl-C was swallowed. ``status`` is what the program exits with after a stop in good order.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import parent_process
from types import FrameType

from headway.errors import Terminated

GRACE_S = 5.0
"""From SIGTERM to the end of a run whose policy does not return; those who send it often kill after 10 to 30 s."""
_SAID = {
    signal.SIGINT: b"headway: stops after the step in progress; a second Ctrl-C ends it now\n",
    signal.SIGTERM: b"headway: SIGTERM: stops after the step in progress; a second one ends it now\n",
}
_heard: list[signal.Signals] = []
"""What stopped the run in progress, or the last one: signals are the process's own."""


def status() -> int:
    """Return the exit status after a stop in good order: 143 where SIGTERM stopped the last run, else 130."""
    return 128 + (_heard[0] if _heard else signal.SIGINT)


@contextmanager
def stops_on_interrupt(stop: Callable[[], None], grace_s: float = GRACE_S) -> Iterator[None]:
    """Call ``stop`` at the first signal; a second one (SIGTERM: after a grace period) ends the body."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _heard.clear()
    over = threading.Event()
    waiting: list[threading.Thread] = []
    times = 0

    def interrupted(_number: int, _frame: FrameType | None) -> None:
        nonlocal times
        times += 1
        if times == 1:
            _heard.append(signal.SIGINT)
            stop()
            _say(signal.SIGINT)
            return
        if times == 2:
            threading.Thread(target=_give_up_after, args=(over, grace_s, signal.SIGINT), daemon=True).start()
        raise KeyboardInterrupt

    def terminated(_number: int, _frame: FrameType | None) -> None:
        if waiting:
            raise Terminated
        _heard.append(signal.SIGTERM)
        waiting.append(threading.Thread(target=_end_after, args=(over, grace_s), daemon=True))
        waiting[0].start()
        stop()
        _say(signal.SIGTERM)

    before = {signal.SIGINT: signal.signal(signal.SIGINT, interrupted)}
    before[signal.SIGTERM] = signal.signal(signal.SIGTERM, terminated)
    try:
        yield
    finally:
        over.set()
        for number, handler in before.items():
            signal.signal(number, handler)


def _say(number: signal.Signals) -> None:
    """Print on stderr that the signal was received; processes of a pool leave that to their parent."""
    if parent_process() is None:
        with suppress(OSError):
            os.write(2, _SAID[number])


def _end_after(over: threading.Event, grace_s: float) -> None:
    """End the program in two steps, unless the run ends before: a second SIGTERM, then without asking anybody."""
    if not over.wait(grace_s):
        os.kill(os.getpid(), signal.SIGTERM)
        _give_up_after(over, grace_s, signal.SIGTERM)


def _give_up_after(over: threading.Event, grace_s: float, number: signal.Signals) -> None:
    """End the program without asking anybody, unless the run ends before."""
    if not over.wait(grace_s):
        os._exit(128 + number)

"""Bound the threads that libraries compute with: torch's, and those of numpy and scipy (OpenBLAS, MKL, BLIS).

A library that starts a thread for each CPU of the machine and is then given one of them computes many times slower:
its threads wait for each other in loops. So whoever gives a task some CPUs also gives it as many threads.
"""

import sys
import threading

try:
    from threadpoolctl import ThreadpoolController
except ImportError:  # a machine with a Python of its own: only torch is bounded there
    ThreadpoolController = None


class Threads(threading.local):
    """How many threads libraries compute with; a change costs microseconds, so the last one is remembered.

    Torch counts them for each of our threads, the others for the process: there the last caller decides.
    """

    _of_process = 0
    _modules = 0

    def __init__(self) -> None:
        self._of_torch = 0

    def use(self, count: int) -> None:
        """Compute with so many threads, at least one, in the calling thread."""
        count = max(1, count)
        if (torch := sys.modules.get("torch")) is not None and count != self._of_torch:
            torch.set_num_threads(count)
            self._of_torch = count
        loaded = len(sys.modules)
        if (count, loaded) != (Threads._of_process, Threads._modules):  # modules that came since may bring a library
            if ThreadpoolController is not None:
                ThreadpoolController().limit(limits=count, user_api="blas")
            Threads._of_process, Threads._modules = count, loaded

"""Application of the benchmarks of live serving: work of a few milliseconds that does what its input says, and no-ops.

``HEADWAY_BENCH_MODELS`` sets how many megabytes each of its four models has.
"""

import os
import signal
import time

import numpy as np

import headway as hw

MEGABYTES = int(os.environ.get("HEADWAY_BENCH_MODELS", "8"))


def weights(seed):
    """Return a matrix of so many megabytes."""
    return np.random.default_rng(seed).random((MEGABYTES, 1 << 17))


@hw.model(memory=f"{MEGABYTES}MiB")
def first():
    """Build the first model."""
    return weights(1)


@hw.model(memory=f"{MEGABYTES}MiB")
def second():
    """Build the second model."""
    return weights(2)


def obey(order):
    """Do what an order says, once a file: kill this process, hang, or run out of memory; else work for a while.

    ``memory-always`` runs out of memory each time.
    """
    mischief, once = order.get("mischief"), order.get("once", "")
    if mischief == "memory-always":
        raise MemoryError("no memory left, as ever")
    if mischief and not os.path.exists(once):
        open(once, "w").close()
        if mischief == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if mischief == "hang":
            time.sleep(3600)
        if mischief == "memory":
            raise MemoryError("no memory left")
    until = time.perf_counter() + order.get("ms", 2) / 1e3
    while time.perf_counter() < until:
        pass
    return order


@hw.task(models=[first], max_batch=4, example=lambda n: [{"n": 0}] * n)
def work(model, orders):
    """Work with the first model."""
    return [obey(order) for order in orders]


@hw.task(models=[second], max_batch=4)
def more(model, orders):
    """Work with the second model."""
    return [obey({**order, "mischief": ""}) for order in orders]


@hw.task(models=[first], max_batch=1, example=lambda n: [0] * n)
def nothing(model, values):
    """Give back what came."""
    return values


small = hw.graph("small", work >> more, slo="2s")
empty = hw.graph("empty", nothing)

"""Nine models of 40 MB in three pipelines of three: the same weights and the same work for headway and for Ray Serve.

The weights lie in files that ``write`` makes; they are in the kernel's cache by then, which both share. As an app of
headway: graphs ``first``, ``second``, ``third``.
"""

import os
from pathlib import Path

import numpy as np

import headway as hw

MODELS, WIDTH, HEIGHT, BLOCKS = 9, 1000, 10_000, 10
MEGABYTES = WIDTH * HEIGHT * 4 // 1_000_000
MAX_BATCH = 4
PIPELINES = {"first": (0, 1, 2), "second": (3, 4, 5), "third": (6, 7, 8)}
FOLDER = "HEADWAY_BENCH_WEIGHTS"
"""The variable that names the folder of the weights."""


def write(folder):
    """Write the weights of all models."""
    random = np.random.default_rng(1)
    for number in range(MODELS):
        np.save(Path(folder) / f"{number}.npy", random.random((BLOCKS, 1, WIDTH, HEIGHT // BLOCKS), np.float32))


def load(number):
    """Return the weights of a model, read from its file."""
    return np.load(Path(os.environ[FOLDER]) / f"{number}.npy")


def run(weights, given):
    """Return what a model makes of a batch: a number of each number.

    Block by block, each for all of the batch: a product with all weights at once takes three times as long for two as
    for one, because OpenBLAS copies the weights first, and nobody would batch it. So four take twice as long as one.
    """
    rows = np.stack([np.full((1, WIDTH), each, np.float32) for each in given])
    return [float(value) for value in np.tanh((rows @ weights).mean(axis=(0, 2, 3)))]


def numbers(count):
    """Return inputs to measure with."""
    return [0.5] * count


def task(number):
    """Return the task that runs one model."""

    def build():
        return load(number)

    def call(model, given):
        return run(model, given)

    build.__name__, call.__name__ = f"model{number}", f"run{number}"
    return hw.task(models=[hw.model(memory=f"{MEGABYTES}MB")(build)], max_batch=MAX_BATCH, example=numbers)(call)


tasks = [task(number) for number in range(MODELS)]


first = hw.graph("first", tasks[0] >> tasks[1] >> tasks[2], slo="500ms")
second = hw.graph("second", tasks[3] >> tasks[4] >> tasks[5], slo="500ms")
third = hw.graph("third", tasks[6] >> tasks[7] >> tasks[8], slo="500ms")

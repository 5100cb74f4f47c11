"""Derive named random streams from one seed.

Each consumer of randomness asks for its own stream by name, so that adding one draws nothing from another and
a run is described by one integer. There is no global generator anywhere.
"""

import hashlib
import random

import numpy as np


def _derived(seed: int, name: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}:{name}".encode()).digest()[:16], "little")


def stream(seed: int, name: str) -> np.random.Generator:
    """Return the numpy generator called ``name`` of the run with this seed."""
    return np.random.Generator(np.random.PCG64(_derived(seed, name)))


def small_stream(seed: int, name: str) -> random.Random:
    """Return a standard-library generator, cheap for one draw at a time."""
    return random.Random(_derived(seed, name))

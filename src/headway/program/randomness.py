"""Random states of a program and of its loader: with them a program that was started again draws the same numbers.

Kept are the global generators of Python, numpy and torch (CPU and GPUs), as far as the program has imported them, and
those of the loader and its samplers. They are written as JSON, so that reading a checkpoint runs nothing.
"""

import random
import sys
from base64 import b64decode, b64encode
from importlib import import_module
from typing import Any

from headway.errors import CheckpointError

States = dict[str, Any]
_INNER = ("sampler", "batch_sampler", "dataset")
_MOST_PARTS = 16


def captured(loader: object) -> States:
    """Return the random states as they are now."""
    states: States = {"python": random.getstate()}
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        states["numpy"] = _plain(numpy.random.get_state(legacy=False))
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        states["torch"] = _text(torch.get_rng_state())
        states["generators"] = [_text(each.get_state()) for each in generators(loader)]
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            states["cuda"] = [_text(state) for state in torch.cuda.get_rng_state_all()]
    return states


def restore(states: States, loader: object) -> None:
    """Set the random states to those that were captured."""
    version, words, gauss = states["python"]
    random.setstate((version, tuple(words), gauss))
    if "numpy" in states:
        import_module("numpy").random.set_state(states["numpy"])
    if "torch" not in states:
        return
    torch = import_module("torch")
    torch.set_rng_state(_state(states["torch"]))
    found = generators(loader)
    _same_number("random generators in the loader", len(found), len(states["generators"]))
    for generator, state in zip(found, states["generators"], strict=True):
        generator.set_state(_state(state))
    if "cuda" in states:
        _same_number("GPUs", torch.cuda.device_count(), len(states["cuda"]))
        torch.cuda.set_rng_state_all([_state(state) for state in states["cuda"]])


def generators(loader: object) -> list[Any]:
    """Return the torch generators that a loader and its samplers draw from."""
    torch: Any = sys.modules["torch"]
    found: list[Any] = []
    for part in _parts(loader):
        generator = getattr(part, "generator", None)
        if isinstance(generator, torch.Generator) and not any(generator is each for each in found):
            found.append(generator)
    return found


def begin_epoch(loader: object, epoch: int) -> None:
    """Tell a loader, its samplers and its data set which epoch begins, as far as they want to know (``set_epoch``)."""
    for part in _parts(loader):
        if callable(told := getattr(part, "set_epoch", None)):
            told(epoch)


def _parts(loader: object) -> list[Any]:
    """Return a loader and what it reads from."""
    found: list[Any] = []
    ahead: list[Any] = [loader]
    while ahead and len(found) < _MOST_PARTS:
        part = ahead.pop(0)
        if part is not None and not any(part is each for each in found):
            found.append(part)
            ahead += [getattr(part, name, None) for name in _INNER]
    return found


def _same_number(what: str, now: int, before: int) -> None:
    if now != before:
        raise CheckpointError(
            f"the checkpoint was written with {before} {what}, now there are {now}: start the program as before"
        )


def _plain(value: Any) -> Any:
    """Return numpy's arrays as lists."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return value.tolist() if hasattr(value, "tolist") else value


def _text(state: Any) -> str:
    return b64encode(bytes(state.tolist())).decode()


def _state(text: str) -> Any:
    torch = import_module("torch")
    return torch.frombuffer(bytearray(b64decode(text)), dtype=torch.uint8)

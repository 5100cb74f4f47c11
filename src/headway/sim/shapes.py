"""What its blocks make of a kernel on a GPU: how much of it they take, and in how many waves."""

from typing import NamedTuple

from headway.kernels.device import MILLION, Device
from headway.kernels.kernel import GRAPH, KERNEL, Kernel

FINEST = 1 << 30


class Shape(NamedTuple):
    """What its blocks make of a kernel: the share of the GPU that they take, those of the last wave, and the waves."""

    width: int
    tail: int
    waves: int
    graph: bool = False
    """A wave is one of its kernels or more: between two of them others of the same priority have their turn."""
    stays: bool = False
    """A wave is a round of tiles: its blocks stay until there are none left for them."""
    fine: int = FINEST
    """How many of its blocks fit on an SM: the place that one block leaves is none for a larger one."""
    spread: int = MILLION
    """The share of the SMs that have a block of it."""


def shape_of(device: Device, kernel: Kernel) -> Shape:
    """Return the shape of a kernel."""
    width = device.width_ppm(kernel)
    if device.persistent(kernel) and device.rounds > 1:
        return Shape(width, max(1, width * device.last_ppm // MILLION), device.rounds, False, True, kernel.per_sm)
    if kernel.kind == GRAPH:
        return Shape(width, width, device.nodes, True)
    fine = kernel.per_sm if kernel.kind == KERNEL else FINEST
    spread = max(width, min(MILLION, kernel.blocks * MILLION // device.sms))
    return Shape(width, device.tail_ppm(kernel), device.waves(kernel), False, False, fine, spread)

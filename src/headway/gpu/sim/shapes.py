"""Shape of a kernel on a GPU: the share that its blocks take, and the number of waves."""

from typing import NamedTuple

from headway.gpu.model.device import MILLION, Device
from headway.gpu.model.kernel import GRAPH, Kernel


class Shape(NamedTuple):
    """Share of the GPU that a wave takes, that of the last wave, and the number of waves."""

    width: int
    tail: int
    waves: int
    graph: bool = False
    """A CUDA graph: a wave is one or more of its kernels; between two, others of the same priority may run."""
    stays: bool = False
    """A persistent kernel: a wave is a round of tiles; its blocks stay until no tile is left for them."""
    spread: int = MILLION
    """The share of the SMs that hold a block of it."""


def shape_of(device: Device, kernel: Kernel) -> Shape:
    """Return the shape of a kernel."""
    width = device.width_ppm(kernel)
    if device.persistent(kernel) and device.rounds > 1:
        return Shape(width, max(1, width * device.last_ppm // MILLION), device.rounds, False, True)
    if kernel.kind == GRAPH:
        return Shape(width, width, device.nodes, True)
    spread = max(width, min(MILLION, kernel.blocks * MILLION // device.sms))
    return Shape(width, device.tail_ppm(kernel), device.waves(kernel), False, False, spread)

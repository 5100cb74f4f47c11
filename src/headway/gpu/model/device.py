"""Constants of a GPU: number of SMs, launch and switch latencies, and the slow-down of kernels that overlap."""

from dataclasses import dataclass
from enum import IntEnum

from headway.errors import ExperimentError
from headway.gpu.model.kernel import COPY, GRAPH, KERNEL, Kernel
from headway.units import MICROSECOND

MILLION = 1_000_000


class Sharing(IntEnum):
    """How programs share the GPU."""

    SLICES = 1  # the driver's default: one program at a time
    MPS = 2  # kernels of several programs overlap


@dataclass(frozen=True, slots=True)
class Device:
    """The constants of a GPU. The defaults are an H200's; docs/reference/gpu-model.md says where each is from."""

    sms: int = 132
    latency: int = 6 * MICROSECOND
    """From a launch to its start on an idle GPU."""
    follow: int = 1 * MICROSECOND
    """From the end of a kernel to the start of the next one in its stream."""
    wait: int = 8 * MICROSECOND
    """From the end of a stream's last kernel to the return of the thread that waits for it."""
    overlap_ppm: int = 1_200_000
    """Slow-down of a kernel beside others that hold the whole rest of the GPU."""
    slice: int = 2_000 * MICROSECOND
    switch: int = 100 * MICROSECOND
    """From one program's slice to the next one's."""
    gate: int = 1_400
    """Further CPU time of a gated launch: reading the shared block, and recording events."""
    queue: int = 1_024
    """Launches that a stream holds before the launching thread must wait."""
    nodes: int = 100
    """Kernels in a CUDA graph, which a trace shows as one launch, and the share of the GPU that each takes."""
    node_ppm: int = 250_000
    rounds: int = 13
    """Tiles that each block of a persistent kernel processes in turn, and the share of blocks in the last round."""
    last_ppm: int = 600_000

    def __post_init__(self) -> None:
        for name in ("sms", "latency", "follow", "wait", "slice", "queue", "nodes", "node_ppm", "rounds", "last_ppm"):
            if getattr(self, name) < 1:
                raise ExperimentError(f"device: {name} is {getattr(self, name)}: it must be at least 1")
        for name in ("overlap_ppm", "switch", "gate"):
            if getattr(self, name) < 0:
                raise ExperimentError(f"device: {name} is {getattr(self, name)}: it must not be negative")

    def width_ppm(self, kernel: Kernel) -> int:
        """Return the share of the GPU that all its blocks take, at most the whole; a copy takes next to nothing."""
        if kernel.kind == COPY:
            return 1
        if kernel.kind == GRAPH:
            return min(MILLION, self.node_ppm)
        if kernel.blocks < 1:
            return MILLION  # its grid is not known
        return max(1, min(MILLION, kernel.blocks * MILLION // (self.sms * max(1, kernel.per_sm))))

    def persistent(self, kernel: Kernel) -> bool:
        """Return whether it has one block for each block slot: such persistent kernels stay and process tiles."""
        return kernel.kind == KERNEL and kernel.blocks == self.sms * max(1, kernel.per_sm)

    def waves(self, kernel: Kernel) -> int:
        """Return how often its blocks fill the GPU."""
        waves = -(-kernel.blocks // (self.sms * max(1, kernel.per_sm)))
        return self.nodes if kernel.kind == GRAPH else max(1, waves)

    def tail_ppm(self, kernel: Kernel) -> int:
        """Return the share of the GPU that the blocks of its last wave take."""
        if kernel.kind == GRAPH:
            return self.width_ppm(kernel)
        whole = self.sms * max(1, kernel.per_sm)
        rest = kernel.blocks % whole
        return max(1, rest * MILLION // whole) if kernel.blocks > whole and rest else self.width_ppm(kernel)

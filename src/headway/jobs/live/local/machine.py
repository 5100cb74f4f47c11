"""What this machine has for a queue: GPUs, CPUs and memory; and a lock on each GPU, for the whole machine.

The lock is an address of the kernel's own (an abstract socket), which any user sees and which is free when its holder
dies. So two queues never hold one GPU, whoever started them.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from headway.device.nvidia import gpus as gpus_here
from headway.errors import QueueError, ShareError
from headway.units import counted

AUTO = "auto"
MOST_SLOTS = 1024


@dataclass(frozen=True, slots=True)
class Machine:
    """The resources that a queue divides."""

    name: str
    gpus: tuple[str, ...]
    """What CUDA_VISIBLE_DEVICES calls them."""
    gpu_type: str
    pretended: bool
    """Whether the GPUs are slots that no device stands behind."""
    cpus: tuple[int, ...]
    memory_bytes: int


def machine(gpus: str = AUTO) -> Machine:
    """Return what this machine has; ``gpus``: auto, or so many of its GPUs, or slots where it has none."""
    try:
        devices = gpus_here()
    except ShareError:
        devices = []
    if gpus == AUTO:
        count = len(devices)
    elif gpus.isdecimal() and int(gpus) <= MOST_SLOTS:
        count = int(gpus)
    else:
        raise QueueError(f"--gpus {gpus}: auto, or a number up to {MOST_SLOTS}")
    if devices and count > len(devices):
        raise QueueError(f"--gpus {gpus}: this machine has {counted(len(devices), 'GPU')}")
    pretended = count > 0 and not devices
    names = tuple(map(str, range(count))) if pretended else tuple(each.uuid for each in devices[:count])
    kind = "slot" if pretended else devices[0].name.replace(" ", "-").lower() if count else "gpu"
    return Machine(socket.gethostname(), names, kind, pretended, tuple(sorted(os.sched_getaffinity(0))), _memory())


def _memory() -> int:
    """Return the memory of the machine, or of the container that this is."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            total = min(total, int(Path(path).read_text()))
        except (OSError, ValueError):
            continue
    return total


@contextmanager
def held(found: Machine) -> Iterator[None]:
    """Hold the GPUs of a machine; QueueError where another queue holds one of them."""
    with ExitStack() as stack:
        for number, gpu in enumerate(() if found.pretended else found.gpus):
            lock = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            try:
                lock.bind(f"\0headway-queue-{gpu}")
            except OSError:
                raise QueueError(
                    f"GPU {number} ({gpu}) is held by another queue of this machine: stop that one (headway queue "
                    "stop), or take fewer with --gpus"
                ) from None
        yield

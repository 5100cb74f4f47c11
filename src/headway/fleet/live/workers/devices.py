"""Say which devices the workers of a server run on."""

import re

from headway.device.nvidia import gpus
from headway.errors import ServeError, ShareError

AUTO, CPU = "auto", "cpu"
_DEVICE = re.compile(r"cpu|cuda:[0-9]{1,3}")


def devices_of(text: str) -> tuple[str, ...]:
    """Return the devices of ``cuda:0,cuda:1``, which workers take in turn; of ``auto`` all GPUs, else the CPU."""
    if text.strip() == AUTO:
        try:
            return tuple(f"cuda:{gpu.index}" for gpu in gpus()) or (CPU,)
        except ShareError:
            return (CPU,)
    devices = tuple(part.strip() for part in text.split(","))
    for device in devices:
        if "mig" in device.lower():
            raise ServeError(f"--devices {text}: MIG is not served: turn it off, and give shares with --slices 1,2,4")
        if not _DEVICE.fullmatch(device):
            raise ServeError(f"--devices {text}: {device!r} is not understood: write cpu, or cuda:0,cuda:1")
    return devices

"""GPUs of this machine, found without a CUDA context: by NVML where its bindings are installed, else by nvidia-smi."""

import importlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from headway.errors import ShareError

ANY_GPU = "HEADWAY_SHARE_ANY_GPU"
"""Environment variable; 1: assume a GPU without looking for one, for tests with a stub of the driver."""
PROHIBITED = "Prohibited"
"""The compute mode in which CUDA refuses every program."""
_QUERY = "index,uuid,name,driver_version,memory.total,compute_mode"
_COUNT_SMS = """
import ctypes, sys
cuda, count, device = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_int()
ok = cuda.cuInit(0) == 0 and cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
ok = ok and cuda.cuDeviceGetAttribute(ctypes.byref(count), 16, device) == 0
sys.stdout.write(str(count.value if ok else 0))
"""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, as the driver describes it."""

    index: int
    uuid: str
    name: str
    driver: str
    memory_bytes: int
    compute_mode: str = "Default"


STUB = Gpu(0, "", "stub", "stub", 0)


def any_gpu() -> bool:
    """Return whether a GPU is assumed without looking for one."""
    return os.environ.get(ANY_GPU, "") not in ("", "0")


def gpus() -> list[Gpu]:
    """Return all GPUs; raise ShareError where there is no driver or none of them answers."""
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return _by_command()
    try:
        return _by_nvml(nvml)
    except nvml.NVMLError:
        return _by_command()


def _by_nvml(nvml: Any) -> list[Gpu]:
    nvml.nvmlInit()
    try:
        driver = _text(nvml.nvmlSystemGetDriverVersion())
        gpus = []
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            memory = int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
            mode = _mode(int(nvml.nvmlDeviceGetComputeMode(handle)))
            uuid, name = (_text(get(handle)) for get in (nvml.nvmlDeviceGetUUID, nvml.nvmlDeviceGetName))
            gpus.append(Gpu(index, uuid, name, driver, memory, mode))
        return gpus
    finally:
        nvml.nvmlShutdown()


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _mode(number: int) -> str:
    return ("Default", "Exclusive_Thread", PROHIBITED, "Exclusive_Process")[number] if 0 <= number < 4 else "Default"


def _by_command() -> list[Gpu]:
    if (program := shutil.which("nvidia-smi")) is None:
        raise ShareError(
            "no NVIDIA driver is here: nvidia-smi is not found; install the driver, or start the container with GPUs "
            "(docker run --gpus all)"
        )
    command = [program, f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise ShareError(f"nvidia-smi does not answer ({problem}): the driver hangs or is broken") from None
    if ended.returncode != 0:
        lines = (ended.stdout + ended.stderr).strip().splitlines()
        said = f"said {lines[0]!r}" if lines else f"said nothing (status {ended.returncode})"
        raise ShareError(f"nvidia-smi failed and {said}: the driver is not loaded or is of another version")
    return [_parsed(line) for line in ended.stdout.splitlines() if line.strip()]


def _parsed(line: str) -> Gpu:
    cells = [cell.strip() for cell in line.split(",")]
    try:
        index, uuid, name, driver, memory, mode = cells
        mib = int(memory) if memory.isdigit() else 0  # "[N/A]" where memory is the host's
        return Gpu(int(index), uuid, name, driver, mib << 20, mode)
    except ValueError:
        raise ShareError(f"nvidia-smi answered {line!r}: that is not {_QUERY}") from None


def numbered(index: int | None) -> int | None:
    """Return the number if a GPU can have it; raise ShareError otherwise."""
    if index is not None and index < 0:
        raise ShareError(f"--gpu {index}: GPUs are numbered from 0 (nvidia-smi -L lists them)")
    return index


def chosen(index: int | None) -> Gpu:
    """Return the GPU asked for: by its number, else the first that CUDA_VISIBLE_DEVICES names, else the first."""
    numbered(index)
    if any_gpu():
        return STUB if not index else Gpu(index, "", "stub", "stub", 0)
    if not (available := gpus()):
        raise ShareError("no GPU is here: nvidia-smi lists none")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
    if index is None and visible:
        for gpu in available:
            if visible == str(gpu.index) or (visible.startswith("GPU-") and gpu.uuid.startswith(visible)):
                return gpu
        raise ShareError(f"CUDA_VISIBLE_DEVICES={visible} names no GPU here (0 to {len(available) - 1}): give --gpu")
    for gpu in available:
        if gpu.index == (index or 0):
            return gpu
    raise ShareError(f"--gpu {index}: there is no such GPU here (0 to {len(available) - 1}; nvidia-smi -L lists them)")


def usable(gpu: Gpu) -> Gpu:
    """Return the GPU if programs may use it; raise ShareError otherwise: CUDA's own message names no remedy."""
    if gpu.compute_mode == PROHIBITED:
        raise ShareError(
            f"GPU {gpu.index} ({gpu.name}) is in compute mode {PROHIBITED}, in which no program may use it: "
            f"nvidia-smi -i {gpu.index} -c DEFAULT, as root, lets them"
        )
    return gpu


def multiprocessors(gpu: Gpu) -> int:
    """Return the number of SMs, asked of the driver in a separate process; 0 where it is not known."""
    if any_gpu():
        return 132
    kept = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "HEADWAY_SHARE")}
    environment = {**kept, "CUDA_VISIBLE_DEVICES": gpu.uuid, "CUDA_MPS_PIPE_DIRECTORY": "/nonexistent"}
    command = [sys.executable, "-c", _COUNT_SMS]
    try:
        ended = subprocess.run(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return int(ended.stdout) if ended.stdout.isdigit() else 0

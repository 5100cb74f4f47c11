"""Pack values that travel between processes: pickled bytes, with large buffers in blocks of shared memory.

Who packs a value makes its block; the server removes it when no task needs the value any more. Nothing that came over a
network is unpickled: requests are JSON or bytes, and are packed by the server.
"""

import io
import mmap
import os
import pickle
from collections.abc import Collection, Iterable
from contextlib import suppress
from itertools import count
from pathlib import Path
from shutil import rmtree
from typing import Any

from msgspec import Struct

FOLDER = Path("/dev/shm")
NAME = "headway"
"""All that servers put there is called ``headway-PID-…``, by the process of the server."""
LEAST_SHARED_BYTES = 1 << 16
"""Smaller buffers travel inside the message: a block costs two system calls and a mapping."""
_ALIGNMENT = 64


class Payload(Struct, frozen=True, array_like=True):
    """A packed value: its bytes, and the block that holds its large buffers."""

    data: bytes
    block: str = ""
    """The name of the block; empty: there is none."""
    sizes: tuple[int, ...] = ()
    """Bytes of each buffer in the block; each begins at a multiple of 64."""


class Packer:
    """Packs values; names its blocks after a prefix that no other process has."""

    def __init__(self, prefix: str) -> None:
        """An empty prefix: there are no blocks, and all of a value is in its bytes, for another machine to read."""
        self.prefix = prefix
        self._numbers = count()

    def pack(self, value: Any) -> Payload:
        """Return a value as a payload."""
        if value is None or type(value) in (bytes, str, int, float, bool):
            return Payload(pickle.dumps(value, 5))
        large: list[pickle.PickleBuffer] = []
        file = io.BytesIO()
        sharing = (lambda buffer: _keep_inside(buffer, large)) if self.prefix else None
        _Pickler(file, 5, buffer_callback=sharing).dump(value)
        if not large:
            return Payload(file.getvalue())
        views = [buffer.raw() for buffer in large]
        sizes = tuple(view.nbytes for view in views)
        name = f"{self.prefix}-{next(self._numbers)}"
        _write(FOLDER / name, views, sizes)
        return Payload(file.getvalue(), name, sizes)


class _Pickler(pickle.Pickler):
    """Pickles tensors by their buffers, which torch itself would copy into the stream."""

    def reducer_override(self, value: Any) -> Any:
        """Return how a tensor is made again; anything else as ever."""
        if type(value).__module__ != "torch" or type(value).__name__ != "Tensor":
            return NotImplemented
        import torch

        flat = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        return _tensor, (flat, str(value.dtype).removeprefix("torch."), tuple(value.shape))


def _tensor(flat: Any, dtype: str, shape: tuple[int, ...]) -> Any:
    """Return a tensor over the bytes of an array."""
    import torch

    return torch.from_numpy(flat).view(getattr(torch, dtype)).reshape(shape)


def _keep_inside(buffer: pickle.PickleBuffer, large: list[pickle.PickleBuffer]) -> bool:
    """Return whether a buffer stays in the pickled bytes; note a large one."""
    try:
        if buffer.raw().nbytes < LEAST_SHARED_BYTES:
            return True
    except BufferError:  # not contiguous
        return True
    large.append(buffer)
    return False


def _write(path: Path, views: Iterable[memoryview], sizes: tuple[int, ...]) -> None:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        total = _end(sizes)
        os.posix_fallocate(handle, 0, total)  # a full /dev/shm is an error here, and not a signal later
        with mmap.mmap(handle, total) as block:
            at = 0
            for view, size in zip(views, sizes, strict=True):
                block[at : at + size] = view
                at += _padded(size)
    except OSError:
        os.unlink(path)
        raise
    finally:
        os.close(handle)


def unpack(payload: Payload) -> Any:
    """Return the value of a payload. Arrays lie in the block; writing to one changes this process's copy alone."""
    if not payload.block:
        return pickle.loads(payload.data)
    handle = os.open(FOLDER / payload.block, os.O_RDONLY | os.O_CLOEXEC)
    try:
        block = mmap.mmap(handle, _end(payload.sizes), flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    finally:
        os.close(handle)
    whole, buffers, at = memoryview(block), [], 0
    for size in payload.sizes:
        buffers.append(whole[at : at + size])
        at += _padded(size)
    return pickle.loads(payload.data, buffers=buffers)


def release(payload: Payload) -> None:
    """Remove the block of a payload; processes that have it mapped keep it until they are done."""
    if payload.block:
        (FOLDER / payload.block).unlink(missing_ok=True)


def sweep(prefix: str, needed: Collection[str] = ()) -> int:
    """Remove the blocks whose name begins with a prefix, left by processes that were killed; return how many.

    ``needed``: names of blocks that stay.
    """
    left = [path for path in FOLDER.glob(f"{prefix}-*") if path.name not in needed and path.is_file()]
    for path in left:
        path.unlink(missing_ok=True)
    return len(left)


def sweep_dead() -> int:
    """Remove what servers left in shared memory that were killed; return how many files and folders that were."""
    removed = 0
    for path in FOLDER.glob(f"{NAME}-*"):
        owner = path.name.removeprefix(f"{NAME}-").partition("-")[0]
        if not owner.isdecimal() or Path(f"/proc/{owner}").exists():
            continue
        with suppress(FileNotFoundError):  # another server that starts removes it too
            if path.stat().st_uid == os.getuid():
                if path.is_dir():
                    rmtree(path, ignore_errors=True)
                else:
                    path.unlink()
                removed += 1
    return removed


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _end(sizes: tuple[int, ...]) -> int:
    return sum(map(_padded, sizes))

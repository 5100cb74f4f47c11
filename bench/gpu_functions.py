"""The six functions of ESG as services: a JPEG comes in, is decoded and resized, a network runs, an answer is encoded.

The factories at the end are what ``headway.fleet.profiling.model`` measures, each as ``bench/gpu_functions.py:NAME``.
Pictures are made here, photographs in size and grain. Weights are drawn once and kept as files, because reading a file
is what a real service does when it starts. HEADWAY_SMALL=1 makes everything small, to try it without a GPU.
"""

import io
import os
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import repeat
from pathlib import Path
from typing import Any

import gpu_networks as networks
import numpy as np
import torch
from PIL import Image

SMALL = bool(os.environ.get("HEADWAY_SMALL"))
PHOTOGRAPH = (160, 96) if SMALL else (1280, 720)
THUMBNAIL = (40, 24) if SMALL else (320, 180)
QUALITY = 90
MOST = 8
"""So many different pictures."""
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def photograph(number: int, width: int, height: int) -> bytes:
    """A JPEG of blurred colours with grain, made once and kept."""
    path = kept() / f"{width}x{height}-{number}.jpg"
    if path.exists():
        return path.read_bytes()
    draw = np.random.default_rng(number)
    coarse = draw.integers(0, 256, (height // 32 + 2, width // 32 + 2, 3), dtype=np.uint8)
    smooth = np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC), dtype=np.int16)
    grain = draw.normal(0, 6, (height, width, 1)).astype(np.int16)
    file = jpeg(np.clip(smooth + grain, 0, 255).astype(np.uint8))
    path.write_bytes(file)
    return file


def kept() -> Path:
    """The folder of what is made once."""
    folder = Path(os.environ.get("HEADWAY_WEIGHTS") or Path(tempfile.gettempdir()) / "headway-networks")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def jpeg(pixels: np.ndarray) -> bytes:
    """Pixels as a file."""
    return saved(Image.fromarray(pixels), format="JPEG", quality=QUALITY)


def saved(image: Image.Image, **how: Any) -> bytes:
    """An image as a file. Only into a real one Pillow encodes without holding up the other threads."""
    with os.fdopen(os.memfd_create("picture"), "w+b") as file:
        image.save(file, **how)
        file.seek(0)
        return file.read()


def decoded(file: bytes, size: tuple[int, int] | None) -> np.ndarray:
    """The pixels of a file, perhaps in another width and height."""
    image = Image.open(io.BytesIO(file)).convert("RGB")
    return np.asarray(image if size is None else image.resize(size, Image.Resampling.BILINEAR))


@cache
def threads(count: int) -> ThreadPoolExecutor:
    """So many that decode and encode."""
    return ThreadPoolExecutor(count)


class Service:
    """A function that can be measured."""

    def __init__(
        self,
        network: torch.nn.Module,
        picture: tuple[int, int],
        side: tuple[int, int] | None,
        answer: Callable[[Any, bytes], bytes],
        centred: bool = True,
    ) -> None:
        """``side``: height and width that the network takes, the picture's unless given."""
        self.network = network
        self._files = [photograph(number, *picture) for number in range(MOST)]
        self._size = side and (side[1], side[0])
        self._answer = answer
        self._centre = torch.tensor(MEAN if centred else (0.0, 0.0, 0.0)).mul(255).view(1, 3, 1, 1)
        self._deviation = torch.tensor(DEVIATION if centred else (1.0, 1.0, 1.0)).mul(255).view(1, 3, 1, 1)
        self._buffers: dict[int, torch.Tensor] = {}
        self.input_bytes = sum(map(len, self._files)) // MOST
        self.output_bytes = 0

    def prepare(self, batch: int, cpus: int) -> torch.Tensor:
        """Decode and resize the pictures, each on one CPU; lay out and normalise all of them on all CPUs."""
        pixels = list(threads(cpus).map(decoded, self._chosen(batch), repeat(self._size)))
        pictures = torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2)
        if batch not in self._buffers:  # kept, because fresh memory costs more than what is written to it
            locked = torch.cuda.is_available()
            self._buffers[batch] = torch.empty(pictures.shape, dtype=torch.float32, pin_memory=locked)
        return self._buffers[batch].copy_(pictures).sub_(self._centre).div_(self._deviation)

    def finish(self, outputs: torch.Tensor, cpus: int) -> list[bytes]:
        """Make the answers, each on one CPU."""
        found = list(threads(cpus).map(self._answer, outputs.numpy(), self._chosen(len(outputs))))
        self.output_bytes = sum(map(len, found)) // len(found)
        return found

    def _chosen(self, batch: int) -> list[bytes]:
        return [self._files[number % MOST] for number in range(batch)]


# --- answers ----------------------------------------------------------------------------------------------------


def picture(pixels: np.ndarray, _: bytes) -> bytes:
    """The network's picture."""
    return jpeg(pixels)


def class_map(classes: np.ndarray, _: bytes) -> bytes:
    """The class of every pixel, without loss, in the photograph's size."""
    large = Image.fromarray(classes).resize(PHOTOGRAPH, Image.Resampling.NEAREST)
    return saved(large, format="PNG", compress_level=1)


def labels(classes: np.ndarray, _: bytes) -> bytes:
    """The best classes."""
    return " ".join(map(str, classes)).encode()


def cut_out(matte: np.ndarray, file: bytes) -> bytes:
    """The photograph on white."""
    photo = Image.open(io.BytesIO(file)).convert("RGB")
    mask = Image.fromarray(matte).resize(photo.size, Image.Resampling.BILINEAR)
    white = Image.new("RGB", photo.size, (255, 255, 255))
    return saved(Image.composite(photo, white, mask), format="JPEG", quality=QUALITY)


def depth_map(depth: np.ndarray, _: bytes) -> bytes:
    """Depth as grey, in the photograph's size."""
    large = Image.fromarray(depth).resize(PHOTOGRAPH, Image.Resampling.BILINEAR)
    return saved(large, format="JPEG", quality=QUALITY)


# --- factories --------------------------------------------------------------------------------------------------


def weighted(name: str, build: Callable[..., torch.nn.Module], small: dict[str, Any]) -> torch.nn.Module:
    """A network with the weights of its file, which is made if it is not there."""
    path = kept() / f"{name}{'-small' if SMALL else ''}.pt"
    arguments = small if SMALL else {}
    if not path.exists():
        torch.manual_seed(0)
        torch.save(build(**arguments).state_dict(), path.with_suffix(f".{os.getpid()}"))
        path.with_suffix(f".{os.getpid()}").rename(path)
    with torch.device("meta"):
        network = build(**arguments)
    network.load_state_dict(torch.load(path, mmap=True, weights_only=True), assign=True)
    return network


def sized(height: int, width: int) -> tuple[int, int]:
    """What the network takes; little when everything is small."""
    return (64, 64) if SMALL else (height, width)


def super_resolution() -> Service:
    """320 × 180 to 1280 × 720."""
    small = {"width": 8, "blocks": 2}
    network = weighted("super-resolution", networks.Upscaler, small)
    return Service(network, THUMBNAIL, None, picture, centred=False)


def segmentation() -> Service:
    """A class for every pixel of 1024 × 576."""
    small: dict[str, Sequence[int] | int] = {"width": 8, "blocks": (1, 1, 1, 1)}
    return Service(weighted("segmentation", networks.Segmenter, small), PHOTOGRAPH, sized(576, 1024), class_map)


def deblur() -> Service:
    """1280 × 720 to the same."""
    return Service(weighted("deblur", networks.Deblurrer, {"width": 8}), PHOTOGRAPH, None, picture, centred=False)


def classification() -> Service:
    """The five best classes of 384 × 384."""
    small = {"side": 64, "width": 32, "blocks": 2, "heads": 2}
    return Service(weighted("classification", networks.Classifier, small), PHOTOGRAPH, sized(384, 384), labels)


def background_removal() -> Service:
    """A matte of 1024 × 1024."""
    network = weighted("background-removal", networks.Remover, {"scale": 8})
    return Service(network, PHOTOGRAPH, sized(1024, 1024), cut_out)


def depth() -> Service:
    """The depth of 512 × 512."""
    small = {"side": 64, "width": 32, "blocks": 4, "heads": 2, "features": 16}
    return Service(weighted("depth", networks.Depth, small), PHOTOGRAPH, sized(512, 512), depth_map)

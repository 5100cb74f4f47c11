"""Train an image model on JPEGs that this program makes itself: decoding and augmenting them takes many CPUs.

    python examples/profiling/images.py --steps 200
    headway profile job -- python examples/profiling/images.py --steps 0

The files are read through ``headway.CachedDataset``, so that what is kept in memory is a fixed share of them.
"""

import argparse
import io
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import Device, leave_when_told, read, whole_cpus
from PIL import Image
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

import headway

CLASSES = 10


def make_images(folder: Path, count: int, width: int, height: int, quality: int, first: int = 0) -> list[Path]:
    """Blurred colours with grain, a class by the mean colour; those that are there already are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{number:06d}.jpg" for number in range(count)]
    for number, path in enumerate(paths[first:], start=first):
        if path.exists():
            continue
        draw = np.random.default_rng(number)
        coarse = draw.integers(0, 256, (height // 32 + 1, width // 32 + 1, 3), dtype=np.uint8)
        smooth = np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC), dtype=np.int16)
        grain = draw.normal(0, 12, (height, width, 1)).astype(np.int16)
        pixels = np.clip(smooth + grain, 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(path.with_suffix(".part"), "JPEG", quality=quality)
        path.with_suffix(".part").rename(path)
    return paths


class Files(Dataset[bytes]):
    """The bytes of the files: what a cache keeps."""

    def __init__(self, paths: list[Path], direct: bool) -> None:
        self.paths = [str(path) for path in paths]
        self.direct = direct

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> bytes:
        return read(self.paths[index], direct=self.direct)


class Decoded(Dataset[Any]):
    """Images as a model sees them: decoded, cropped at random, scaled, flipped and recoloured."""

    def __init__(self, files: Any, side: int) -> None:
        self.files = files
        self.side = side

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = Image.open(io.BytesIO(self.files[index])).convert("RGB")
        width, height = image.size
        share = random.uniform(0.4, 1.0) ** 0.5
        crop_width, crop_height = int(width * share), int(height * share)
        left, top = random.randint(0, width - crop_width), random.randint(0, height - crop_height)
        box = (left, top, left + crop_width, top + crop_height)
        image = image.resize((self.side, self.side), Image.Resampling.BILINEAR, box=box)
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = np.asarray(image).astype(np.float32)
        pixels *= np.random.uniform(0.8, 1.2, 3).astype(np.float32)
        return torch.from_numpy(np.clip(pixels, 0, 255).astype(np.uint8)), index % CLASSES


def small_model() -> nn.Module:
    """Three convolutions: next to nothing for a CPU."""
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 5, stride=4, padding=2), nn.ReLU()),
        *(nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, CLASSES)),
    )


def model_of(name: str) -> nn.Module:
    """Our own small one, or one of torchvision's by its name, with random weights."""
    if name == "small":
        return small_model()
    import torchvision

    return torchvision.models.get_model(name, weights=None, num_classes=CLASSES)


def loader_of(options: argparse.Namespace, pin: bool) -> DataLoader[Any]:
    """Batches of augmented images, decoded by as many workers as there are CPUs."""
    paths = make_images(options.folder, options.images, options.width, options.height, options.quality)
    files = Files(paths, options.direct)
    kept = headway.CachedDataset(files, options.cache, size=lambda number: paths[number].stat().st_size)
    if options.fill:
        kept.fill()
    workers = whole_cpus() if options.workers is None else options.workers
    print(f"{len(paths)} images, {kept.cached} of them in memory, {workers} loader workers", flush=True)
    return DataLoader(
        Decoded(kept, options.side),
        batch_size=options.batch,
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        persistent_workers=workers > 0,
        prefetch_factor=options.prefetch if workers else None,
        multiprocessing_context="fork" if workers else None,
        worker_init_fn=one_thread,
        pin_memory=pin,
    )


def one_batch(options: argparse.Namespace, device: torch.device) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The same batch for ever, on the device already: how fast that is when no loader holds it up."""
    pixels = torch.randint(0, 256, (options.batch, options.side, options.side, 3), dtype=torch.uint8, device=device)
    classes = torch.randint(0, CLASSES, (options.batch,), device=device)
    while True:
        yield pixels, classes


def one_thread(worker: int) -> None:
    """Workers are the parallelism; numpy and torch inside them need no threads."""
    torch.set_num_threads(1)
    np.random.seed(worker)


def train(options: argparse.Namespace) -> None:
    """Steps over the images, again and again."""
    leave_when_told()
    torch.set_num_threads(1)
    device = Device(options.device, options.step_ms)
    loader = one_batch(options, device.torch) if options.one_batch else loader_of(options, pin=device.cuda)
    form = torch.channels_last if device.cuda else torch.contiguous_format
    model = model_of(options.model).to(device.torch, memory_format=form)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def one_step(pixels: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        seen = pixels.to(device.torch, non_blocking=True).permute(0, 3, 1, 2).float().div_(255).sub_(0.5)
        with torch.autocast(device.torch.type, torch.bfloat16, enabled=device.cuda):
            loss = functional.cross_entropy(model(seen), classes.to(device.torch, non_blocking=True))
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        return loss.detach()

    done = 0
    while not options.steps or done < options.steps:
        for pixels, classes in loader:
            loss = device.step(lambda pixels=pixels, classes=classes: one_step(pixels, classes))
            headway.step(len(classes))
            done += 1
            if done % 50 == 0:
                print(f"step {done} loss {loss.item():.4f}", flush=True)
            if done == options.steps:
                return


def options() -> argparse.Namespace:
    """What can be chosen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "headway-images")
    parser.add_argument("--images", type=int, default=400)
    parser.add_argument("--width", type=int, default=320)
    parser.add_argument("--height", type=int, default=240)
    parser.add_argument("--quality", type=int, default=90)
    parser.add_argument("--side", type=int, default=96, help="of the square that the model sees")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=200, help="0: until it is stopped")
    parser.add_argument("--model", default="small", help="small, or one of torchvision: resnet18, resnet50")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda", "stand-in"], default="auto")
    parser.add_argument("--step-ms", type=float, default=10, help="of the stand-in device")
    parser.add_argument("--cache", default="1GB", help="of image files kept in memory")
    parser.add_argument("--fill", action="store_true", help="fill the cache before the first step")
    parser.add_argument("--direct", action="store_true", help="read files with O_DIRECT")
    parser.add_argument("--workers", type=int, help="of the loader; else by HEADWAY_CPUS")
    parser.add_argument("--prefetch", type=int, default=2, help="batches a worker is ahead")
    parser.add_argument("--one-batch", action="store_true", help="train on one random batch: the device alone")
    parser.add_argument("--make-only", action="store_true", help="make the images and stop")
    return parser.parse_args()


if __name__ == "__main__":
    chosen = options()
    if chosen.make_only:
        make_images(chosen.folder, chosen.images, chosen.width, chosen.height, chosen.quality)
    else:
        train(chosen)

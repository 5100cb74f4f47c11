"""Program of the preemption test: trains a small network in torch, and writes each step's samples and loss, bit by bit.

``steps_preempted_program.py FOLDER``: alone, under torchrun, or with ranks of its own (``--spawn 4``). Rank ``r``
appends a line to ``FOLDER/rank-r`` at each step: its number, those of its samples, its loss as 8 hexadecimal digits. At
the end rank 0 writes a digest of all weights to ``FOLDER/weights``.
"""

import argparse
import hashlib
import os
import random
import struct
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import headway

BATCH = 4


class Noisy(Dataset[tuple[torch.Tensor, torch.Tensor, int]]):
    """Samples with noise that is drawn anew whenever one is read, from three generators."""

    def __init__(self, samples: int) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, item: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        values = torch.sin(torch.arange(16) * (item + 1.0))
        noise = 0.1 * random.random() + 0.1 * float(np.random.random()) + 0.1 * float(torch.rand(()))
        return values + noise, values.sum().reshape(1), item


def network() -> nn.Module:
    """Return a network with dropout: its steps draw random numbers too."""
    return nn.Sequential(nn.Linear(16, 67), nn.ReLU(), nn.Dropout(0.2), nn.Linear(67, 31), nn.ReLU(), nn.Linear(31, 1))


def train(rank: int, ranks: int, given: argparse.Namespace) -> None:
    """Train to the end, or until preempted."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model: nn.Module = network()
    if ranks > 1:
        torch.distributed.init_process_group("gloo")
        # Without this DDP changes the order in which it adds gradients up after its first step, in every process anew.
        model = DistributedDataParallel(model, find_unused_parameters=True)
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(rank)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    data = Noisy(given.batches * BATCH * ranks)
    sampler = DistributedSampler(data, seed=7) if ranks > 1 else None
    loader = DataLoader(data, BATCH, shuffle=sampler is None, sampler=sampler, num_workers=given.workers)

    def save(path: Path) -> None:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)

    def load(path: Path) -> None:
        state = torch.load(path)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    training = headway.steps(loader, epochs=given.epochs, checkpoint=save, resume=load, every=given.every)
    with (given.folder / f"rank-{rank}").open("a", buffering=1) as lines:
        for values, wanted, items in training:
            loss = nn.functional.mse_loss(model(values), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(given.step_s)
            bits = struct.pack(">f", loss.item()).hex()
            lines.write(f"{training.step} {' '.join(map(str, items.tolist()))} {bits}\n")
    if rank == 0:
        digest = hashlib.sha256()
        for each in model.state_dict().values():
            digest.update(each.numpy().tobytes())
        (given.folder / "weights").write_text(digest.hexdigest())
    if ranks > 1:
        torch.distributed.destroy_process_group()


def spawned(rank: int, given: argparse.Namespace) -> None:
    """Train as one of the ranks that this program has spawned."""
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(given.spawn), MASTER_ADDR="127.0.0.1", MASTER_PORT=given.port)
    train(rank, given.spawn, given)


def main() -> None:
    """Train as this process was started."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--batches", type=int, default=60, help="of an epoch, for each rank")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--spawn", type=int, default=0, help="ranks that it starts itself")
    parser.add_argument("--port", default="", help="of the ranks that it starts itself")
    parser.add_argument("--workers", type=int, default=0, help="of the loader")
    parser.add_argument("--every", type=int, help="steps between checkpoints")
    parser.add_argument("--step-s", type=float, default=0.0, help="time that a step takes longer")
    given = parser.parse_args()
    if given.spawn:
        torch.multiprocessing.spawn(spawned, (given,), given.spawn)
    else:
        train(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")), given)


if __name__ == "__main__":
    main()

"""Train a language model on tokens that this program makes itself: its loader does next to nothing.

    python examples/profiling/language.py --steps 100
    headway profile job -- python examples/profiling/language.py --steps 0

On a machine without a GPU the model is trained on a stand-in device (see machine.py): it is small enough for a tenth
of a CPU, and a step takes as long as you say an accelerator would. What is left to the CPUs is what a real program
leaves to them: reading tokens, making batches, telling the device what to do.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import PAGE_BYTES, Device, leave_when_told, read, whole_cpus
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

import headway


def make_tokens(path: Path, blocks: int, vocabulary: int) -> Path:
    """A walk over the vocabulary, easy to predict; one file of uint16 tokens, a page a block."""
    size_bytes = blocks * PAGE_BYTES
    if not path.exists() or path.stat().st_size != size_bytes:
        path.parent.mkdir(parents=True, exist_ok=True)
        steps = np.random.default_rng(0).integers(0, 4, size_bytes // 2, dtype=np.int64)
        (np.cumsum(steps) % vocabulary).astype(np.uint16).tofile(path.with_suffix(".part"))
        path.with_suffix(".part").rename(path)
    return path


class Blocks(Dataset[bytes]):
    """Pages of tokens: what a cache keeps."""

    def __init__(self, path: Path, direct: bool) -> None:
        self.path = str(path)
        self.count = path.stat().st_size // PAGE_BYTES
        self.direct = direct

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> bytes:
        return read(self.path, index * PAGE_BYTES, PAGE_BYTES, direct=self.direct)


class Sequences(Dataset[torch.Tensor]):
    """The first tokens of each page, and the one after."""

    def __init__(self, blocks: Any, length: int) -> None:
        self.blocks = blocks
        self.length = length

    def __len__(self) -> int:
        return len(self.blocks)

    def __getitem__(self, index: int) -> torch.Tensor:
        tokens = np.frombuffer(self.blocks[index], dtype=np.uint16, count=self.length + 1)
        return torch.from_numpy(tokens.astype(np.int64))


class Small(nn.Module):
    """A transformer of two narrow layers."""

    def __init__(self, vocabulary: int, length: int, width: int = 48) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Parameter(torch.zeros(length, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocabulary)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length), persistent=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        seen = self.tokens(tokens) + self.places
        return self.head(self.layers(seen, mask=self.mask, is_causal=True))


class Gpt2(nn.Module):
    """GPT-2 (124 million parameters) as transformers has it, with random weights."""

    def __init__(self, vocabulary: int, length: int) -> None:
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel

        self.model = GPT2LMHeadModel(GPT2Config(vocab_size=max(vocabulary, 50257), n_positions=length, use_cache=False))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=tokens).logits


def train(options: argparse.Namespace) -> None:
    """Steps over the tokens, again and again."""
    leave_when_told()
    torch.set_num_threads(1)
    device = Device(options.device, options.step_ms)
    blocks = Blocks(make_tokens(options.folder / "tokens.bin", options.blocks, options.vocabulary), options.direct)
    kept = headway.CachedDataset(blocks, options.cache, size=lambda number: PAGE_BYTES)
    if options.fill:
        kept.fill()
    workers = min(1, whole_cpus() - 1) if options.workers is None else options.workers
    loader = DataLoader(
        Sequences(kept, options.length),
        batch_size=options.batch,
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        persistent_workers=workers > 0,
        multiprocessing_context="fork" if workers else None,
        pin_memory=device.cuda,
    )
    kind = {"small": Small, "gpt2": Gpt2}[options.model]
    model = kind(options.vocabulary, options.length).to(device.torch)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=device.cuda)

    def one_step(tokens: torch.Tensor) -> torch.Tensor:
        seen = tokens.to(device.torch, non_blocking=True)
        with torch.autocast(device.torch.type, torch.bfloat16, enabled=device.cuda):
            guesses = model(seen[:, :-1])
            loss = functional.cross_entropy(guesses.flatten(0, 1), seen[:, 1:].flatten())
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        return loss.detach()

    done = 0
    while not options.steps or done < options.steps:
        for tokens in loader:
            loss = device.step(lambda tokens=tokens: one_step(tokens))
            headway.step(len(tokens))
            done += 1
            if done % 50 == 0:
                print(f"step {done} loss {loss.item():.4f}", flush=True)
            if done == options.steps:
                return


def options() -> argparse.Namespace:
    """What can be chosen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "headway-tokens")
    parser.add_argument("--blocks", type=int, default=2000, help="of one page of tokens each")
    parser.add_argument("--vocabulary", type=int, default=256)
    parser.add_argument("--length", type=int, default=64, help="tokens of a sequence")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=200, help="0: until it is stopped")
    parser.add_argument("--model", choices=["small", "gpt2"], default="small")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda", "stand-in"], default="auto")
    parser.add_argument("--step-ms", type=float, default=60, help="of the stand-in device")
    parser.add_argument("--cache", default="1GB", help="of pages kept in memory")
    parser.add_argument("--fill", action="store_true", help="fill the cache before the first step")
    parser.add_argument("--direct", action="store_true", help="read pages with O_DIRECT")
    parser.add_argument("--workers", type=int, help="of the loader; else one, or none where there is but one CPU")
    return parser.parse_args()


if __name__ == "__main__":
    train(options())

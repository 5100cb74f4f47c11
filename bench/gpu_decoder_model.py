"""A decoder-only transformer with random weights and a key-value cache, for timing one iteration of a language model.

Built like Llama: grouped queries, rotary positions, gated layers. The cache of a layer is one tensor of rows, one row a
token; a request owns consecutive rows. An iteration computes decode rows (one new token of a running request each) and
prefill tokens (parts of prompts) together: the matrix products see all of them, attention sees the two kinds apart.
Row 0 of the cache belongs to nobody: what pads an iteration to its size is written there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

Ints = npt.NDArray[np.int32]
MOST_PREFILLS = 16
"""Prompts that one iteration can work on."""


@dataclass(frozen=True)
class Shape:
    """Sizes of a decoder."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    hidden: int
    vocabulary: int

    @property
    def head(self) -> int:
        """Return the width of one head."""
        return self.width // self.heads

    def kv_bytes(self, of_one: int) -> int:
        """Return the bytes of cache that one token takes, at so many bytes a number."""
        return self.layers * 2 * self.kv_heads * self.head * of_one


SHAPES = {
    "1.3b": Shape(24, 2048, 16, 4, 6144, 32000),
    "7b": Shape(32, 4096, 32, 8, 14336, 32000),
    "tiny": Shape(2, 64, 4, 2, 96, 97),
}


class Prefill(NamedTuple):
    """A part of a prompt: its tokens, the first cache row of its request, how many tokens are in the cache already."""

    tokens: Ints
    start: int
    context: int


# --- attention ----------------------------------------------------------------------------------------------------


def flash(
    asked: Tensor, keys: Tensor, values: Tensor, ends: Tensor, starts: Tensor, lengths: Tensor, new: int, longest: int
) -> Tensor:
    """Return attention of sequences of different lengths by FlashAttention; sequence i keeps ``lengths[i]`` rows.

    Its queries are ``ends[i]`` to ``ends[i + 1]``, its rows begin at ``starts[i]``; the last query sees all its rows.
    """
    call = torch.ops.aten._flash_attention_forward
    found: Tensor = call(asked, keys, values, ends, starts, new, longest, 0.0, True, False, seqused_k=lengths)[0]
    return found


def padded(
    asked: Tensor, keys: Tensor, values: Tensor, ends: Tensor, starts: Tensor, lengths: Tensor, new: int, longest: int
) -> Tensor:
    """Return what ``flash`` returns, from copies padded to the longest: on CPUs, and to check ``flash`` against."""
    total, longest = len(asked), min(longest, len(keys))
    counts = (ends[1:] - ends[:-1])[:, None]
    query, row = (torch.arange(number, device=asked.device) for number in (new, longest))
    real = query < counts
    places = torch.where(real, ends[:-1, None] + query, total)
    sees = row <= (lengths[:, None] - counts + query)[:, :, None]
    rows = (starts[:-1, None] + row).clamp(max=len(keys) - 1)
    q = asked[places.clamp(max=total - 1)].transpose(1, 2)
    k, v = keys[rows].transpose(1, 2), values[rows].transpose(1, 2)
    mask = (sees | ~real[:, :, None])[:, None]
    found = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True).transpose(1, 2)
    out = asked.new_zeros((total + 1, *asked.shape[1:]))
    out[places] = found
    return out[:total]


def flash_error(device: str) -> float:
    """Return how far ``flash`` is from ``padded`` in single precision, relative; raises where it cannot be called."""
    torch.manual_seed(3)
    keys, values = (torch.randn(700, 8, 128, device=device, dtype=torch.bfloat16) for _ in range(2))
    worst = 0.0
    for counts, starts, lengths in (((1, 1, 1), (400, 1, 90), (77, 1, 300)), ((5, 0, 130), (500, 1, 90), (5, 0, 200))):
        ends = torch.tensor([0, *np.cumsum(counts)], device=device, dtype=torch.int32)
        begins = torch.tensor([*starts, 0], device=device, dtype=torch.int32)
        kept = torch.tensor(lengths, device=device, dtype=torch.int32)
        asked = torch.randn(int(sum(counts)), 32, 128, device=device, dtype=torch.bfloat16)
        got = flash(asked, keys, values, ends, begins, kept, max(counts), 512).float()
        want = padded(asked.float(), keys.float(), values.float(), ends, begins, kept, max(counts), 512)
        worst = max(worst, float((got - want).norm() / want.norm()))
    return worst


# --- inputs of one iteration --------------------------------------------------------------------------------------


class Batch:
    """The inputs of an iteration of fixed sizes: one buffer on the host, one on the device, names for parts."""

    def __init__(self, decode: int, prefill: int, longest: int, device: str) -> None:
        self.decode, self.prefill, self.longest = decode, prefill, longest
        prompts = MOST_PREFILLS if prefill else 0
        both = decode + prefill
        sizes = {"tokens": both, "positions": both, "rows": both, "last": decode + prompts}
        sizes |= {"decode_ends": decode + 1, "decode_starts": decode + 1, "decode_lengths": decode}
        sizes |= {"prefill_ends": prompts + 1, "prefill_starts": prompts + 1, "prefill_lengths": prompts}
        at, parts = 0, {}
        for name, size in sizes.items():
            parts[name] = slice(at, at + size)
            at += (size + 3) // 4 * 4  # each part begins at 16 bytes
        self._host = torch.zeros(at, dtype=torch.int32, pin_memory=device == "cuda")
        self._device = torch.zeros(at, dtype=torch.int32, device=device)
        self.host = {name: self._host.numpy()[part] for name, part in parts.items()}
        self.there = {name: self._device[part] for name, part in parts.items()}
        self.host["decode_ends"][:] = np.arange(decode + 1)
        nothing = np.zeros(0, np.int32)
        self.fill(nothing, nothing, nothing, ())

    def fill(self, tokens: Ints, starts: Ints, contexts: Ints, prefills: Sequence[Prefill]) -> None:
        """Write the decode rows (token, first cache row, tokens in the cache) and prefills; pad the rest; send it."""
        host, count, decode = self.host, len(tokens), self.decode
        for name in ("tokens", "positions", "rows", "last", "decode_starts", "prefill_starts", "prefill_lengths"):
            host[name][:] = 0
        host["tokens"][:count], host["positions"][:count] = tokens, contexts
        host["rows"][:count], host["decode_starts"][:count] = starts + contexts, starts
        host["decode_lengths"][:] = 1
        host["decode_lengths"][:count] = contexts + 1
        host["last"][:decode] = host["decode_ends"][:-1]
        end = 0
        host["prefill_ends"][0] = 0
        for number, (new, start, context) in enumerate(prefills):
            span = slice(decode + end, decode + end + len(new))
            end += len(new)
            host["tokens"][span] = new
            host["positions"][span] = np.arange(context, context + len(new))
            host["rows"][span] = host["positions"][span] + start
            host["prefill_starts"][number], host["prefill_lengths"][number] = start, context + len(new)
            host["prefill_ends"][number + 1] = end
            host["last"][decode + number] = decode + end - 1
        host["prefill_ends"][len(prefills) + 1 :] = end
        self._device.copy_(self._host, non_blocking=True)


# --- the network --------------------------------------------------------------------------------------------------


class Layer(NamedTuple):
    """The weights of one layer."""

    before: Tensor
    asked: Tensor
    answered: Tensor
    after: Tensor
    gate: Tensor
    down: Tensor


class Decoder:
    """Weights and cache on one device. ``longest`` is the longest context, ``cache_tokens`` 0: as many as fit."""

    def __init__(self, shape: Shape, device: str, longest: int, cache_tokens: int = 0) -> None:
        self.shape, self.device, self.longest = shape, device, longest
        self.cuda = device == "cuda"
        self.dtype = torch.bfloat16 if self.cuda else torch.float32
        torch.manual_seed(1)
        width, head, heads, kv = shape.width, shape.head, shape.heads, shape.kv_heads
        sizes = ((heads + 2 * kv) * head, width), (width, heads * head), (2 * shape.hidden, width)
        self.embedding = self._drawn(shape.vocabulary, width)
        self.layers = []
        for _ in range(shape.layers):
            qkv, out, gate = (self._drawn(*size) for size in sizes)
            self.layers.append(Layer(self._ones(), qkv, out, self._ones(), gate, self._drawn(width, shape.hidden)))
        self.end, self.head = self._ones(), self._drawn(shape.vocabulary, width)
        turn = torch.arange(longest, device=device)[:, None] * 10000 ** (
            -torch.arange(0, head, 2, device=device) / head
        )
        self.cos = torch.cat((turn.cos(), turn.cos()), -1).to(self.dtype)[:, None]
        self.sin = torch.cat((-turn.sin(), turn.sin()), -1).to(self.dtype)[:, None]
        self.attention, self.attention_name = self._attention()
        self.cache_tokens = cache_tokens or self._room()
        self.cache = [self._drawn(self.cache_tokens, 2 * kv, head, spread=1.0) for _ in range(shape.layers)]

    def _drawn(self, *size: int, spread: float = 0.02) -> Tensor:
        return torch.empty(size, device=self.device, dtype=self.dtype).normal_(0, spread)

    def _ones(self) -> Tensor:
        return torch.ones(self.shape.width, device=self.device, dtype=self.dtype)

    def _attention(self) -> tuple[Any, str]:
        """Return FlashAttention where it is there and right, else attention over padded copies."""
        if not self.cuda:
            return padded, "padded"
        try:
            error = flash_error(self.device)
        except (RuntimeError, TypeError, AttributeError, NotImplementedError) as failed:
            print(f"! no flash attention, padded copies instead: {failed}", flush=True)
            return padded, "padded"
        if not error < 0.02:
            print(f"! flash attention is off by {error:.3f}, padded copies instead", flush=True)
            return padded, "padded"
        print(f"flash attention is off by {error:.4f} from single precision", flush=True)
        return flash, "flash"

    def _room(self) -> int:
        """Return how many tokens fit beside the weights; 16 GB stay free for what an iteration and its graph need.

        A layer's cache stays below 2³¹ numbers: kernels that count in 32 bits are right then.
        """
        if not self.cuda:
            return 4096
        torch.cuda.empty_cache()
        free, _ = torch.cuda.mem_get_info()
        most = (2**31 - 1) // (2 * self.shape.kv_heads * self.shape.head)
        return min(most, int((free - 16e9) // self.shape.kv_bytes(2)))

    def weights(self) -> list[Tensor]:
        """Return all weights."""
        return [self.embedding, *(each for layer in self.layers for each in layer), self.end, self.head]

    def step(self, batch: Batch) -> Tensor:
        """Return the next token of every decode row and then of every prefill."""
        shape, there = self.shape, batch.there
        turned = shape.heads + shape.kv_heads
        x = functional.embedding(there["tokens"], self.embedding)
        cos, sin = (table.index_select(0, there["positions"]) for table in (self.cos, self.sin))
        rows = there["rows"].long()
        for layer, cache in zip(self.layers, self.cache, strict=True):
            y = functional.rms_norm(x, (shape.width,), layer.before, 1e-5)
            qkv = functional.linear(y, layer.asked).view(len(x), -1, shape.head)
            one, other = qkv[:, :turned].chunk(2, -1)
            swapped = torch.cat((other, one), -1)
            torch.addcmul(qkv[:, :turned] * cos, swapped, sin, out=qkv[:, :turned])
            cache.index_copy_(0, rows, qkv[:, shape.heads :])
            x = x + functional.linear(self._attend(qkv[:, : shape.heads], cache, batch).flatten(1), layer.answered)
            y = functional.rms_norm(x, (shape.width,), layer.after, 1e-5)
            gate, up = functional.linear(y, layer.gate).chunk(2, -1)
            x = x + functional.linear(functional.silu(gate) * up, layer.down)
        x = functional.rms_norm(x.index_select(0, there["last"]), (shape.width,), self.end, 1e-5)
        return functional.linear(x, self.head).argmax(-1)

    def _attend(self, asked: Tensor, cache: Tensor, batch: Batch) -> Tensor:
        keys, values = cache[:, : self.shape.kv_heads], cache[:, self.shape.kv_heads :]
        kinds = (("decode", asked[: batch.decode], 1), ("prefill", asked[batch.decode :], batch.prefill))
        found = []
        for kind, part, new in kinds:
            if len(part):
                ends, starts, lengths = (batch.there[f"{kind}_{name}"] for name in ("ends", "starts", "lengths"))
                found.append(self.attention(part, keys, values, ends, starts, lengths, new, batch.longest))
        return found[0] if len(found) == 1 else torch.cat(found)


class Iteration:
    """An iteration of fixed sizes; on a GPU captured as a graph, unless that is not wanted."""

    def __init__(
        self, decoder: Decoder, decode: int, prefill: int, longest: int, captured: bool = True, pool: Any = None
    ) -> None:
        self.decoder = decoder
        self.batch = Batch(decode, prefill, longest, decoder.device)
        self.graph: Any = None
        self.out: Tensor | None = None
        if captured and decoder.cuda:
            decoder.step(self.batch)
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph, pool=pool):
                self.out = decoder.step(self.batch)

    def run(self) -> Tensor:
        """Compute it once, from the inputs that were sent last; return the next tokens."""
        if self.graph is None:
            self.out = self.decoder.step(self.batch)
        else:
            self.graph.replay()
        assert self.out is not None
        return self.out


def has_graphs(decoder: Decoder) -> bool:
    """Return whether an iteration can be captured, and then computes what it computes without."""
    if not decoder.cuda:
        return False
    rows = np.array([1, 300], np.int32)
    part = Prefill(np.arange(40, dtype=np.int32), 600, 7)
    found = []
    try:
        for captured in (False, True):
            iteration = Iteration(decoder, 2, 40, 1024, captured)
            iteration.batch.fill(rows, rows, rows * 0 + 50, [part])
            found.append(iteration.run().tolist()[:3])
    except RuntimeError as failed:
        print(f"! no CUDA graphs: {failed}", flush=True)
        return False
    if found[0] != found[1]:
        print(f"! the captured iteration gives {found[1]} and not {found[0]}", flush=True)
    return True

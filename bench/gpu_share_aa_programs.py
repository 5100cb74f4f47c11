"""The programs of the A/A experiment: those above, written down before anything was measured, and those below.

Random weights, PyTorch alone. A request of a program above returns its kind (short, long, how many tokens); who asks
waits for the GPU afterwards. Sizes are such that most programs above keep the GPU rather than the processor busy.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional as fn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
Request = Callable[[], int]


class Block(nn.Module):
    """One layer of a transformer; with a cache, the last token only."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: torch.Tensor, cache: torch.Tensor | None = None) -> torch.Tensor:
        batch, tokens, width = x.shape
        q, k, v = self.qkv(self.first(x)).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if cache is not None:
            cache[0, :, :, -tokens:], cache[1, :, :, -tokens:] = k, v
            k, v = cache[0], cache[1]
        seen = fn.scaled_dot_product_attention(q, k, v, is_causal=self.causal and cache is None)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(fn.gelu(self.up(self.second(x))))


def _stack(layers: int, width: int, heads: int, causal: bool = True) -> nn.ModuleList:
    torch.manual_seed(1)
    with torch.device(DEVICE):
        made = nn.ModuleList(Block(width, heads, causal) for _ in range(layers))
    return made.to(torch.bfloat16)


def _through(stack: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    for block in stack:
        x = block(x)
    return x


def _words(batch: int, tokens: int, width: int) -> torch.Tensor:
    return torch.randn(batch, tokens, width, device=DEVICE, dtype=torch.bfloat16)


def lengths(layers: int, width: int, heads: int, tokens: tuple[int, ...], causal: bool = True) -> Request:
    """A transformer over a whole text at once; texts of these lengths in turn."""
    stack = _stack(layers, width, heads, causal)
    texts = [_words(1, each, width) for each in tokens]
    turn = 0

    def request() -> int:
        nonlocal turn
        at, turn = turn % len(texts), turn + 1
        _through(stack, texts[at])
        return tokens[at]

    return request


def drawn_lengths(layers: int, width: int, heads: int, tokens: tuple[int, ...]) -> Request:
    """An encoder over one text, of a length that is drawn."""
    stack = _stack(layers, width, heads, causal=False)
    texts = [_words(1, each, width) for each in tokens]
    draw = torch.Generator().manual_seed(2)

    def request() -> int:
        at = int(torch.randint(len(texts), (1,), generator=draw))
        _through(stack, texts[at])
        return tokens[at]

    return request


def images(layers: int, width: int, heads: int, batch: int) -> Request:
    """A vision transformer: patches of 16 by 16, then an encoder."""
    stack = _stack(layers, width, heads, causal=False)
    patch = nn.Conv2d(3, width, 16, 16).to(DEVICE, torch.bfloat16)
    picture = torch.randn(batch, 3, 224, 224, device=DEVICE, dtype=torch.bfloat16)

    def request() -> int:
        _through(stack, patch(picture).flatten(2).transpose(1, 2))
        return batch

    return request


def decoder(layers: int, width: int, heads: int, context: int) -> Request:
    """One token a request: a captured step over a full cache, and the token is read back."""
    stack = _stack(layers, width, heads)
    head = nn.Linear(width, 32_000, bias=False).to(DEVICE, torch.bfloat16)
    shape = (2, 1, heads, context, width // heads)
    caches = [torch.randn(shape, device=DEVICE, dtype=torch.bfloat16) for _ in range(layers)]
    word = _words(1, 1, width)

    def step() -> torch.Tensor:
        x = word
        for block, cache in zip(stack, caches, strict=True):
            x = block(x, cache)
        return head(x).argmax(-1)

    for _ in range(3):
        token = step()
    if DEVICE == "cpu":
        return lambda: int(step().item() >= 0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        token = step()

    def request() -> int:
        graph.replay()
        return int(token.item() >= 0)

    return request


def convnet(size: int = 224) -> Request:
    """A small network of convolutions over one picture, in single precision."""
    torch.manual_seed(1)
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3), nn.ReLU()]
    for _ in range(12):
        layers += [nn.Conv2d(64, 64, 3, 1, 1), nn.BatchNorm2d(64), nn.ReLU()]
    net = nn.Sequential(*layers).to(DEVICE).eval()
    picture = torch.randn(1, 3, size, size, device=DEVICE)

    def request() -> int:
        net(picture)
        return 1

    return request


class Level(nn.Module):
    """Two residual blocks of convolutions, and attention where it is asked for."""

    def __init__(self, width: int, attends: bool) -> None:
        super().__init__()
        parts = [(nn.GroupNorm(32, width), nn.Conv2d(width, width, 3, 1, 1)) for _ in range(4)]
        self.norms, self.convolutions = (nn.ModuleList(each) for each in zip(*parts, strict=True))
        self.attention = Block(width, width // 64, causal=False) if attends else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for at in (0, 2):
            y = x
            for place in (at, at + 1):
                y = self.convolutions[place](fn.silu(self.norms[place](y)))
            x = x + y
        if self.attention is None:
            return x
        batch, width, high, wide = x.shape
        flat = self.attention(x.flatten(2).transpose(1, 2))
        return flat.transpose(1, 2).reshape(batch, width, high, wide)


def unet(batch: int, size: int = 64, widths: tuple[int, ...] = (320, 640, 1280)) -> Request:
    """A step of diffusion: down and up again with what was kept on the way."""
    torch.manual_seed(1)
    with torch.device(DEVICE):
        begin, end = nn.Conv2d(4, widths[0], 3, 1, 1), nn.Conv2d(widths[0], 4, 3, 1, 1)
        down = nn.ModuleList(Level(width, at > 0) for at, width in enumerate(widths))
        up = nn.ModuleList(Level(width, at > 0) for at, width in enumerate(widths))
        pairs = list(pairwise(widths))
        shrink = nn.ModuleList(nn.Conv2d(a, b, 3, 2, 1) for a, b in pairs)
        grow = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in pairs)
    for each in (begin, end, down, up, shrink, grow):
        each.to(torch.bfloat16)
    noise = torch.randn(batch, 4, size, size, device=DEVICE, dtype=torch.bfloat16)

    def request() -> int:
        x, kept = begin(noise), []
        for at, level in enumerate(down):
            x = level(x)
            kept.append(x)
            x = shrink[at](x) if at < len(shrink) else x
        for at in reversed(range(len(up))):
            x = up[at](x + kept[at])
            x = grow[at - 1](x) if at else x
        end(x)
        return batch

    return request


# --- below --------------------------------------------------------------------------------------------------------


def mixed(points: int = 2048, keys: int = 1 << 24, systems: int = 48, unknowns: int = 384) -> Request:
    """Fourier transforms, sorts and solves."""
    torch.manual_seed(1)
    field = torch.randn(8, points, points, device=DEVICE)
    numbers = torch.randn(keys, device=DEVICE)
    matrices = torch.randn(systems, unknowns, unknowns, device=DEVICE) + 30 * torch.eye(unknowns, device=DEVICE)
    right = torch.randn(systems, unknowns, 1, device=DEVICE)

    def request() -> int:
        torch.fft.fft2(field)
        torch.sort(numbers)
        torch.linalg.solve(matrices, right)
        return 1

    return request


def training(layers: int = 12, width: int = 768, heads: int = 12, batch: int = 16, tokens: int = 512) -> Request:
    """Training of a small language model, mixed precision, Adam."""
    torch.manual_seed(1)
    with torch.device(DEVICE):
        embed, stack = nn.Embedding(8192, width), nn.ModuleList(Block(width, heads, True) for _ in range(layers))
        text = torch.randint(0, 8192, (batch, tokens + 1))
    learnt: list[Any] = [*embed.parameters(), *stack.parameters()]
    optimiser = torch.optim.AdamW(learnt, lr=1e-4)

    def request() -> int:
        with torch.enable_grad():
            with torch.autocast(DEVICE, dtype=torch.bfloat16):
                logits = _through(stack, embed(text[:, :-1])) @ embed.weight.T
                loss = fn.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
            loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        return 1

    return request


def products(size: int = 8192) -> Request:
    """Large matrix products: each takes every SM for a millisecond and more."""
    torch.manual_seed(1)
    a, b = (torch.randn(size, size, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))

    def request() -> int:
        for _ in range(8):
            torch.mm(a, b)
        return 1

    return request


def stream(numbers: int = 1 << 28) -> Request:
    """Memory and little else: one pass after the other over a gigabyte."""
    torch.manual_seed(1)
    a, b = torch.randn(numbers, device=DEVICE), torch.randn(numbers, device=DEVICE)

    def request() -> int:
        for _ in range(8):
            a.add_(b, alpha=1e-6)
        return 1

    return request


ABOVE: dict[str, tuple[Callable[[], Request], float]] = {
    "prefill-1024": (lambda: lengths(8, 4096, 32, (1024,)), 0.0),
    "prefill-1024-10ms": (lambda: lengths(8, 4096, 32, (1024,)), 0.010),
    "convnet": (convnet, 0.0),
    "convnet-poisson": (convnet, -0.5),
    "prefill-512": (lambda: lengths(8, 4096, 32, (512,)), 0.0),
    "prefill-2048": (lambda: lengths(8, 4096, 32, (2048,)), 0.0),
    "prefill-4096": (lambda: lengths(8, 4096, 32, (4096,)), 0.0),
    "unet": (lambda: unet(4), 0.0),
    "vit-l": (lambda: images(24, 1024, 16, 16), 0.0),
    "decoder-graph": (lambda: decoder(16, 2048, 16, 1024), 0.0),
    "embedding-poisson": (lambda: drawn_lengths(12, 768, 12, (32, 128, 512)), -0.5),
    "short-and-long": (lambda: lengths(8, 4096, 32, (256, 2048)), 0.0),
}
"""Each program above, and the seconds between its requests; -0.5: random arrivals at half of what it can do."""
BELOW: dict[str, tuple[Callable[[], Request], float]] = {
    "mixed": (mixed, 0.0),
    "unet-b16": (lambda: unet(16), 0.0),
    "training": (training, 0.0),
    "matmul": (products, 0.0),
    "stream": (stream, 0.0),
}
PAIRS = (
    ("prefill-1024", "mixed"),
    ("prefill-1024", "unet-b16"),
    ("prefill-1024-10ms", "unet-b16"),
    ("convnet-poisson", "training"),
    ("convnet", "training"),
)
"""Those of which it was seen that the dial does not notice the slow-down."""
NEW_PAIRS = (
    ("prefill-512", "training"),
    ("prefill-2048", "stream"),
    ("vit-l", "unet-b16"),
    ("decoder-graph", "training"),
    ("unet", "mixed"),
    ("short-and-long", "training,mixed,unet-b16"),
    ("embedding-poisson", "stream"),
    ("prefill-4096", "matmul"),
    ("decoder-graph", "matmul"),
    ("vit-l", "mixed"),
    ("embedding-poisson", "unet-b16"),
    ("short-and-long", "matmul"),
    ("unet", "training"),
    ("prefill-4096", "mixed"),
)
"""Pairs that nothing was tuned on, in the order in which they are measured; written down before the first was."""

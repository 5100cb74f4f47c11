"""Networks of the kinds that ESG's six functions are, in plain torch, with random weights.

Each is built after the published architecture that its docstring names, at that architecture's size, so that kernels,
weights and activations are of the right kind and number; what it answers is meaningless. All take normalised pictures
(batch, 3, height, width) and answer with bytes, as a service would: pictures, maps, or the best classes.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional


def as_bytes(pictures: Tensor) -> Tensor:
    """Values from 0 to 1 as bytes, channels last."""
    return pictures.clamp(0, 1).mul(255).to(torch.uint8).permute(0, 2, 3, 1).contiguous()


def resized(maps: Tensor, size: Sequence[int]) -> Tensor:
    """Bilinearly to another height and width."""
    return functional.interpolate(maps, size=tuple(size), mode="bilinear", align_corners=False)


def convolved(inside: int, outside: int, dilation: int = 1) -> nn.Sequential:
    """A 3 × 3 convolution, its normalisation and its rectifier."""
    convolution = nn.Conv2d(inside, outside, 3, padding=dilation, dilation=dilation)
    return nn.Sequential(convolution, nn.BatchNorm2d(outside), nn.ReLU(inplace=True))


# --- super-resolution -------------------------------------------------------------------------------------------


class Residual(nn.Module):
    """Two convolutions beside an identity, without normalisation."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(width, width, 3, padding=1)
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + 0.1 * self.body(x)


class Upscaler(nn.Module):
    """EDSR's baseline: 16 residual blocks of 64 channels, then two doublings by pixel shuffle."""

    def __init__(self, width: int = 64, blocks: int = 16) -> None:
        super().__init__()
        self.head = nn.Conv2d(3, width, 3, padding=1)
        self.body = nn.Sequential(*(Residual(width) for _ in range(blocks)), nn.Conv2d(width, width, 3, padding=1))
        doubling = [nn.Conv2d(width, 4 * width, 3, padding=1), nn.PixelShuffle(2)]
        again = [nn.Conv2d(width, 4 * width, 3, padding=1), nn.PixelShuffle(2)]
        self.tail = nn.Sequential(*doubling, *again, nn.Conv2d(width, 3, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        first = self.head(x)
        large = functional.interpolate(x, scale_factor=4.0, mode="bicubic", align_corners=False)
        return as_bytes(large + 0.01 * self.tail(first + self.body(first)))


# --- segmentation -----------------------------------------------------------------------------------------------


class Bottleneck(nn.Module):
    """ResNet's block of three convolutions."""

    def __init__(self, inside: int, width: int, stride: int, dilation: int) -> None:
        super().__init__()
        outside = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(inside, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, padding=dilation, dilation=dilation, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, outside, 1, bias=False),
            nn.BatchNorm2d(outside),
        )
        short = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))
        self.short = short if inside != outside or stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.body(x) + self.short(x))


class Segmenter(nn.Module):
    """DeepLabV3 over a ResNet-50 whose last two stages are dilated instead of halved; 21 classes."""

    def __init__(self, width: int = 64, blocks: Sequence[int] = (3, 4, 6, 3), classes: int = 21) -> None:
        super().__init__()
        stem = nn.Conv2d(3, width, 7, 2, padding=3, bias=False)
        layers: list[nn.Module] = [stem, nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
        inside = width
        for stage, (count, stride, dilation) in enumerate(zip(blocks, (1, 2, 1, 1), (1, 1, 2, 4), strict=True)):
            for block in range(count):
                layers.append(Bottleneck(inside, width << stage, stride if block == 0 else 1, dilation))
                inside = 4 * (width << stage)
        self.backbone = nn.Sequential(*layers)
        between = 4 * width
        self.branches = nn.ModuleList(
            [nn.Sequential(nn.Conv2d(inside, between, 1, bias=False), nn.BatchNorm2d(between), nn.ReLU(inplace=True))]
            + [convolved(inside, between, dilation) for dilation in (12, 24, 36)]
        )
        self.whole = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(inside, between, 1), nn.ReLU(inplace=True))
        self.joined = nn.Sequential(nn.Conv2d(5 * between, between, 1), nn.BatchNorm2d(between), nn.ReLU(inplace=True))
        self.head = nn.Sequential(convolved(between, between), nn.Conv2d(between, classes, 1))

    def forward(self, x: Tensor) -> Tensor:
        found = self.backbone(x)
        parts = [branch(found) for branch in self.branches]
        parts.append(self.whole(found).expand(-1, -1, *found.shape[2:]))
        scores = self.head(self.joined(torch.cat(parts, 1)))
        return resized(scores, x.shape[2:]).argmax(1).to(torch.uint8)


# --- deblurring -------------------------------------------------------------------------------------------------


class Deblurrer(nn.Module):
    """U-Net: four halvings from 64 to 1024 channels and back, what is to be added to the picture at its end."""

    def __init__(self, width: int = 64, depth: int = 4) -> None:
        super().__init__()
        widths = [width << level for level in range(depth + 1)]
        self.down = nn.ModuleList(
            nn.Sequential(convolved(inside, outside), convolved(outside, outside))
            for inside, outside in zip([3, *widths[:-1]], widths, strict=True)
        )
        pairs = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.up = nn.ModuleList(nn.ConvTranspose2d(inside, outside, 2, 2) for inside, outside in pairs)
        self.merged = nn.ModuleList(
            nn.Sequential(convolved(inside, outside), convolved(outside, outside)) for inside, outside in pairs
        )
        self.tail = nn.Conv2d(width, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept, y = [], x
        for level, block in enumerate(self.down):
            y = block(functional.max_pool2d(y, 2) if level else y)
            kept.append(y)
        for up, merge, beside in zip(self.up, self.merged, kept[-2::-1], strict=True):
            y = merge(torch.cat([beside, up(y)], 1))
        return as_bytes(x + 0.01 * self.tail(y))


# --- classification and the encoder of depth --------------------------------------------------------------------


class Attention(nn.Module):
    """A transformer's block: attention, then two layers, each after its normalisation."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.asked, self.answered = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.layers = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        batch, count, width = x.shape
        parts = self.asked(self.before(x)).view(batch, count, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        found = functional.scaled_dot_product_attention(parts[0], parts[1], parts[2])
        x = x + self.answered(found.transpose(1, 2).reshape(batch, count, width))
        return x + self.layers(self.after(x))


class Encoder(nn.Module):
    """A vision transformer's tokens after some of its blocks; the first token is of no place."""

    def __init__(self, side: int, patch: int, width: int, blocks: int, heads: int, taken: Sequence[int]) -> None:
        super().__init__()
        self.taken = tuple(taken)
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.first = nn.Parameter(torch.empty(1, 1, width))
        self.places = nn.Parameter(torch.empty(1, (side // patch) ** 2 + 1, width))
        for drawn in (self.first, self.places):
            nn.init.uniform_(drawn, -0.03, 0.03)
        self.blocks = nn.ModuleList(Attention(width, heads) for _ in range(blocks))

    def forward(self, x: Tensor) -> list[Tensor]:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.first.expand(len(x), -1, -1), tokens], 1) + self.places
        found = []
        for number, block in enumerate(self.blocks):
            tokens = block(tokens)
            if number in self.taken:
                found.append(tokens)
        return found


class Classifier(nn.Module):
    """ViT-B/16; the five best of a thousand classes."""

    def __init__(self, side: int = 384, patch: int = 16, width: int = 768, blocks: int = 12, heads: int = 12) -> None:
        super().__init__()
        self.encoder = Encoder(side, patch, width, blocks, heads, [blocks - 1])
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1000))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(x)[-1][:, 0]).topk(5).indices


# --- background removal -----------------------------------------------------------------------------------------


class Nested(nn.Module):
    """U²-Net's block: a small U of its own; ``flat`` dilates where the others halve."""

    def __init__(self, inside: int, width: int, outside: int, depth: int, flat: bool = False) -> None:
        super().__init__()
        self.flat = flat
        self.first = convolved(inside, outside)
        steps = [1 << level if flat else 1 for level in range(depth)]
        steps[-1] = steps[-1] if flat else 2
        self.down = nn.ModuleList(
            convolved(width if level else outside, width, step) for level, step in enumerate(steps)
        )
        self.up = nn.ModuleList(
            convolved(2 * width, width if level else outside, steps[level]) for level in range(depth - 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        first = self.first(x)
        kept, y = [], first
        for level, block in enumerate(self.down):
            halved = 0 < level < len(self.down) - 1 and not self.flat
            y = block(functional.max_pool2d(y, 2, ceil_mode=True) if halved else y)
            kept.append(y)
        for level in range(len(self.up) - 1, -1, -1):
            beside = kept[level]
            y = y if y.shape == beside.shape else resized(y, beside.shape[2:])
            y = self.up[level](torch.cat([y, beside], 1))
        return first + y


class Remover(nn.Module):
    """U²-Net: six nested blocks down, five up, six maps that are merged into a matte; ``scale`` divides its widths."""

    def __init__(self, scale: int = 1) -> None:
        super().__init__()
        down = [(3, 32, 64, 7), (64, 32, 128, 6), (128, 64, 256, 5), (256, 128, 512, 4), (512, 256, 512, 4)]
        down.append((512, 256, 512, 4))
        up = [(128, 16, 64, 7), (256, 32, 64, 6), (512, 64, 128, 5), (1024, 128, 256, 4), (1024, 256, 512, 4)]
        small = [(a if a == 3 else a // scale, b // scale, c // scale, depth) for a, b, c, depth in (*down, *up)]
        self.down = nn.ModuleList(Nested(*each, flat=level > 3) for level, each in enumerate(small[:6]))
        self.up = nn.ModuleList(Nested(*each, flat=level > 3) for level, each in enumerate(small[6:]))
        ends = [each[2] for each in small[6:]] + [small[5][2]]
        self.sides = nn.ModuleList(nn.Conv2d(outside, 1, 3, padding=1) for outside in ends)
        self.merged = nn.Conv2d(6, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept, y = [], x
        for level, block in enumerate(self.down):
            y = block(functional.max_pool2d(y, 2, ceil_mode=True) if level else y)
            kept.append(y)
        maps = [self.sides[5](y)]
        for level in range(4, -1, -1):
            y = self.up[level](torch.cat([resized(y, kept[level].shape[2:]), kept[level]], 1))
            maps.append(self.sides[level](y))
        matte = self.merged(torch.cat([resized(each, x.shape[2:]) for each in maps], 1))
        return torch.sigmoid(matte)[:, 0].mul(255).to(torch.uint8)


# --- depth ------------------------------------------------------------------------------------------------------


class Fusion(nn.Module):
    """DPT's step up: what is there and what comes from the encoder, refined and doubled."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.beside, self.body = Residual(width), Residual(width)
        self.out = nn.Conv2d(width, width, 1)

    def forward(self, y: Tensor | None, beside: Tensor) -> Tensor:
        beside = self.beside(beside)
        y = self.body(beside if y is None else y + beside)
        return self.out(functional.interpolate(y, scale_factor=2.0, mode="bilinear", align_corners=True))


class Depth(nn.Module):
    """DPT-Large: a ViT-L/16 encoder whose tokens after four of its blocks become maps of four sizes, fused upwards."""

    def __init__(
        self,
        side: int = 512,
        patch: int = 16,
        width: int = 1024,
        blocks: int = 24,
        heads: int = 16,
        features: int = 256,
    ) -> None:
        super().__init__()
        self.places = side // patch
        quarter = blocks // 4
        self.encoder = Encoder(side, patch, width, blocks, heads, [quarter * part - 1 for part in (1, 2, 3, 4)])
        inner = (features, 2 * features, 4 * features, 4 * features)
        self.reassembled = nn.ModuleList(
            [
                nn.Sequential(nn.Conv2d(width, inner[0], 1), nn.ConvTranspose2d(inner[0], inner[0], 4, 4)),
                nn.Sequential(nn.Conv2d(width, inner[1], 1), nn.ConvTranspose2d(inner[1], inner[1], 2, 2)),
                nn.Conv2d(width, inner[2], 1),
                nn.Sequential(nn.Conv2d(width, inner[3], 1), nn.Conv2d(inner[3], inner[3], 3, 2, padding=1)),
            ]
        )
        self.thinned = nn.ModuleList(nn.Conv2d(each, features, 3, padding=1, bias=False) for each in inner)
        self.fusions = nn.ModuleList(Fusion(features) for _ in inner)
        self.narrowed = nn.Conv2d(features, features // 2, 3, padding=1)
        self.tail = nn.Sequential(
            nn.Conv2d(features // 2, 32, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(32, 1, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        maps = []
        for tokens, reassemble, thin in zip(self.encoder(x), self.reassembled, self.thinned, strict=True):
            placed = tokens[:, 1:].transpose(1, 2).unflatten(2, (self.places, self.places))
            maps.append(thin(reassemble(placed)))
        y = None
        for fusion, beside in zip(self.fusions, maps[::-1], strict=True):
            y = fusion(y, beside)
        depth = self.tail(resized(self.narrowed(y), x.shape[2:]))[:, 0]
        low, high = depth.amin((1, 2), keepdim=True), depth.amax((1, 2), keepdim=True)
        return ((depth - low) / (high - low + 1e-6)).mul(255).to(torch.uint8)

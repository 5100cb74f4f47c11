"""The four pipelines of Compass with transformers of random weights: no network is downloaded, sizes are as you say.

    headway fleet simulate examples/pipeline/compass.py --rate 2
    HEADWAY_EXAMPLE_SCALE=1 headway profile model examples/pipeline/compass.py --out compass.profile.toml

HEADWAY_EXAMPLE_SCALE multiplies the sizes that the paper states (arXiv 2402.17652; 20.8 GB in all). It is 0.001 unless
set, megabytes that a CPU runs in tests; 1 is for a GPU, with weights of 16 bits. A text is a string; a picture is
bytes, or a list of numbers of 0 to 255.
"""

import math
import os
from itertools import pairwise

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import headway as hw

SCALE = float(os.environ.get("HEADWAY_EXAMPLE_SCALE", "0.001"))
LARGE = SCALE >= 0.05
DTYPE = torch.bfloat16 if LARGE else torch.float32
HEAD, SYMBOLS, PATCHES = 64, 256, 196
LENGTH = 64 if LARGE else 16
"""Symbols of a text that a model reads."""
ANSWER = 32 if LARGE else 4
"""Symbols that a model writes."""
SIZES_GB = {"opt": 5.72, "marian": 0.8, "mt5": 2.0, "nli": 2.14, "vit": 1.7, "tts": 2.7, "detr": 1.8, "glpn": 3.9}
LAYERS = {"opt": 32, "marian": 12, "mt5": 24, "nli": 24, "vit": 24, "tts": 12, "detr": 12, "glpn": 24}


# --- a transformer of a given size ------------------------------------------------------------------------------


class Block(nn.Module):
    """Attention and two dense layers."""

    def __init__(self, width, causal):
        super().__init__()
        self.heads, self.causal = width // HEAD, causal
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.grow, self.shrink = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        """Return the vectors after this block: batch × length × width, as they came."""
        parts = self.mix(self.first(x)).unflatten(-1, (3, self.heads, HEAD)).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(*parts, is_causal=self.causal)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.shrink(functional.gelu(self.grow(self.second(x))))


class Transformer(nn.Module):
    """Symbols or patches in, scores of symbols out."""

    def __init__(self, width, layers, causal):
        super().__init__()
        self.embed = nn.Embedding(SYMBOLS, width)
        self.blocks = nn.ModuleList(Block(width, causal) for _ in range(layers))
        self.score = nn.Linear(width, SYMBOLS)

    def forward(self, symbols):
        """Return scores of each symbol at each place."""
        x = self.embed(symbols)
        for block in self.blocks:
            x = block(x)
        return self.score(x)

    def write(self, symbols, count):
        """Return so many symbols that go on from those given, the likeliest each time."""
        for _ in range(count):
            following = self(symbols)[:, -1].argmax(-1, keepdim=True)
            symbols = torch.cat([symbols, following], 1)
        return symbols[:, -count:]


def shape_of(name):
    """Return the width and the number of layers that make a model about as large as asked."""
    layers = LAYERS[name] if LARGE else 2
    wanted = SIZES_GB[name] * SCALE * 1e9 / DTYPE.itemsize
    return max(1, round(math.sqrt(wanted / layers / 12) / HEAD)) * HEAD, layers


def bytes_of(name):
    """Return the bytes of a model's weights."""
    width, layers = shape_of(name)
    numbers = layers * (12 * width**2 + 13 * width) + 2 * SYMBOLS * width + SYMBOLS
    return numbers * DTYPE.itemsize


def model(name, *, causal=False):
    """Return the model of a name: built when a worker needs it."""

    def build():
        with torch.device("meta" if LARGE else "cpu"):
            made = Transformer(*shape_of(name), causal).to(DTYPE).eval()
        if torch.empty(0).is_meta:  # whoever asks so has the weights already, and fills them in
            return made.to("meta")
        made = made.to_empty(device="cpu") if LARGE else made
        drawn = torch.randn(1_000_003, generator=torch.Generator().manual_seed(ord(name[0])))
        blocks = {}
        with torch.no_grad():
            for layer in made.modules():
                if isinstance(layer, nn.LayerNorm):
                    layer.reset_parameters()
                elif not list(layer.children()):
                    for weights in layer.parameters():
                        if (inputs := weights.shape[-1]) not in blocks:
                            blocks[inputs] = (drawn / math.sqrt(inputs)).to(DTYPE)
                        fill(weights.view(-1), blocks[inputs])
        return made

    return hw.model(name=name, memory=bytes_of(name), files=[])(build)  # it reads no files


def fill(weights, block):
    """Fill weights with a block of random numbers, again and again: gigabytes are filled in seconds."""
    for start in range(0, len(weights), len(block)):
        part = weights[start : start + len(block)]
        part.copy_(block[: len(part)])


opt, marian, mt5 = model("opt", causal=True), model("marian", causal=True), model("mt5", causal=True)
nli, vit, tts, detr, glpn = map(model, ("nli", "vit", "tts", "detr", "glpn"))


# --- between the world and symbols ------------------------------------------------------------------------------


def device_of(network):
    """Return where a network is."""
    return next(network.parameters()).device


def symbols_of(texts, network):
    """Return texts as rows of symbols, cut or filled up to one length."""
    rows = [text.encode()[-LENGTH:].rjust(LENGTH) for text in texts]
    return torch.tensor([list(row) for row in rows], device=device_of(network))


def text_of(row):
    """Return a row of symbols as a text."""
    return "".join(chr(32 + symbol % 95) for symbol in row.tolist())


def patches_of(images, network):
    """Return pictures as rows of symbols, one for each patch: the mean of its pixels."""
    rows = []
    for image in images:
        pixels = np.frombuffer(image, np.uint8) if isinstance(image, bytes | bytearray) else np.asarray(image)
        ends = np.linspace(0, len(pixels), PATCHES + 1).astype(int)
        rows.append([int(pixels[a:b].mean()) % SYMBOLS if b > a else 0 for a, b in pairwise(ends)])
    return torch.tensor(rows, device=device_of(network))


@torch.inference_mode()
def written(network, texts):
    """Return what a network writes after each text."""
    return [text_of(row) for row in network.write(symbols_of(texts, network), ANSWER).cpu()]


@torch.inference_mode()
def judged(network, texts):
    """Return a number from 0 to 1 for each text."""
    return torch.sigmoid(network(symbols_of(texts, network))[:, -1, 0].float()).tolist()


@torch.inference_mode()
def seen(network, images):
    """Return a map of numbers for each picture, one for each patch."""
    return list(network(patches_of(images, network))[..., 0].float().cpu().numpy())


def texts(count):
    """Return texts to measure with."""
    return [f"The boat number {number} lies beside the old harbour and waits for the tide." for number in range(count)]


def images(count):
    """Return pictures to measure with: 3 MB each, or less for small models."""
    pixels = 3_000_000 if LARGE else 30_000
    return [bytes((number + place) % 251 for place in range(1000)) * (pixels // 1000) for number in range(count)]


# --- tasks ------------------------------------------------------------------------------------------------------


@hw.task(models=[opt], max_batch=4, example=texts)
def opt_translation(network, inputs):
    """Return a draft for each text."""
    return written(network, inputs)


@hw.task(models=[marian], max_batch=4)
def marian_french(network, drafts):
    """Return French."""
    return written(network, drafts)


@hw.task(models=[mt5], max_batch=4)
def mt5_first(network, drafts):
    """Return Chinese."""
    return written(network, drafts)


@hw.task(models=[mt5], max_batch=4)
def mt5_second(network, drafts):
    """Return Japanese."""
    return written(network, drafts)


@hw.task(max_batch=4)
def aggregate_translations(marian_french, mt5_first, mt5_second):
    """Return all three."""
    rows = zip(marian_french, mt5_first, mt5_second, strict=True)
    return [{"french": first, "chinese": second, "japanese": third} for first, second, third in rows]


@hw.task(models=[opt], max_batch=4, example=texts)
def opt_answer(network, questions):
    """Return an answer to each question."""
    return written(network, questions)


@hw.task(models=[nli], max_batch=8)
def nli_answer(network, answers):
    """Return each answer with how well it can be believed."""
    return [{"answer": text, "belief": mark} for text, mark in zip(answers, judged(network, answers), strict=True)]


@hw.task(models=[vit], max_batch=8, example=images)
@torch.inference_mode()
def vit_caption(network, pictures):
    """Return a sentence for each picture."""
    return [text_of(row[:ANSWER]) for row in network(patches_of(pictures, network)).argmax(-1).cpu()]


@hw.task(models=[nli], max_batch=8)
def nli_caption(network, captions):
    """Return each sentence with how well it can be believed."""
    return [{"caption": text, "belief": mark} for text, mark in zip(captions, judged(network, captions), strict=True)]


@hw.task(models=[tts], max_batch=8)
@torch.inference_mode()
def tts_speech(network, captions):
    """Return the sound of each sentence, a byte a sample."""
    scores = network(symbols_of(captions, network)).flatten(1).float().cpu().numpy()
    return [(np.tanh(row) * 127).astype(np.int8).tobytes() for row in scores]


@hw.task(max_batch=8)
def aggregate_speech(nli_caption, tts_speech):
    """Return both: how long the sound is instead of the sound."""
    return [{**text, "samples": len(sound)} for text, sound in zip(nli_caption, tts_speech, strict=True)]


@hw.task(max_batch=4, example=images)
def perception_entry(pictures):
    """Return the pictures as bytes, decoded."""
    return [bytes(picture) for picture in pictures]


@hw.task(models=[detr], max_batch=4)
def detr_objects(network, pictures):
    """Return the patch in which each object is."""
    return [np.argsort(-scores)[:8] for scores in seen(network, pictures)]


@hw.task(models=[glpn], max_batch=4)
def glpn_depth(network, pictures):
    """Return how far each patch is."""
    return seen(network, pictures)


@hw.task(max_batch=4)
def aggregate_perception(detr_objects, glpn_depth):
    """Return where the objects are."""
    return [
        {"objects": objects.tolist(), "depth": depth[objects].round(3).tolist()}
        for objects, depth in zip(detr_objects, glpn_depth, strict=True)
    ]


translation = hw.graph(
    "translation", opt_translation >> {marian_french, mt5_first, mt5_second} >> aggregate_translations
)
question_answering = hw.graph("question-answering", opt_answer >> nli_answer)
image_to_speech = hw.graph("image-to-speech", vit_caption >> {nli_caption, tts_speech} >> aggregate_speech)
perception = hw.graph("perception-3d", perception_entry >> {detr_objects, glpn_depth} >> aggregate_perception)

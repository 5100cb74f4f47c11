"""A pipeline of tiny models: a picture gets a caption, the caption is judged and spoken, and both are joined.

    headway fleet simulate examples/pipeline/app.py --rate 5
    headway profile model examples/pipeline/app.py --device cpu --out examples/pipeline/app.profile.toml

A picture is a list of up to 64 numbers. The models have random weights, always the same, and run on a CPU within a
millisecond or two; with torch they are torch modules, without it numpy arrays.
"""

from itertools import pairwise

import numpy as np

import headway as hw

try:
    import torch
except ImportError:
    torch = None

PIXELS, SOUND = 64, 160
WORDS = ["a", "the", "red", "blue", "small", "large", "cat", "dog", "boat", "tree", "sleeps", "waits", "under", "moon"]
LABELS = ["plausible", "unclear", "unlikely"]


class Layers:
    """Dense layers in numpy, for a machine without torch."""

    def __init__(self, seed, widths):
        random = np.random.default_rng(seed)
        shapes = pairwise(widths)
        self.weights = [random.normal(0, 1 / a**0.5, (a, b)).astype(np.float32) for a, b in shapes]

    def __call__(self, rows):
        """Return the outputs for some rows."""
        for weights in self.weights[:-1]:
            rows = np.maximum(rows @ weights, 0)
        return rows @ self.weights[-1]


def network(seed, *widths):
    """Return dense layers of some widths with random weights."""
    if torch is None:
        return Layers(seed, widths)
    torch.manual_seed(seed)
    layers = []
    for a, b in pairwise(widths):
        layers += [torch.nn.Linear(a, b), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1]).eval()


def run(model, rows):
    """Return the outputs of a model for a batch of rows, as an array."""
    rows = np.array([(list(row) + [0.0] * PIXELS)[:PIXELS] for row in rows], np.float32)
    if torch is None:
        return model(rows)
    with torch.inference_mode():
        device = next(model.parameters()).device
        return model(torch.from_numpy(rows).to(device)).float().cpu().numpy()


def letters(text):
    """Return how often each kind of letter is in a text: what models of text see."""
    return np.bincount([ord(letter) % PIXELS for letter in text], minlength=PIXELS) / max(1, len(text))


@hw.model(memory="4MB")
def vit():
    """Build the model that sees."""
    return network(1, PIXELS, 1024, 880, len(WORDS))


@hw.model(memory="2MB")
def judge():
    """Build the model that says whether a sentence can be true."""
    return network(2, PIXELS, 512, 880, len(LABELS))


@hw.model(memory="3MB")
def voice():
    """Build the model that speaks."""
    return network(3, PIXELS, 768, 620, SOUND)


def pictures(count):
    """Return pictures to measure with."""
    return [[(7 * place + number) % 16 / 16 for place in range(PIXELS)] for number in range(count)]


@hw.task(models=[vit], max_batch=8, example=pictures)
def caption(model, images):
    """Return a sentence for each picture: its six likeliest words."""
    scores = run(model, images)
    return [" ".join(WORDS[word] for word in np.argsort(-row)[:6]) for row in scores]


@hw.task(models=[judge], max_batch=8)
def nli(model, texts):
    """Return each sentence with what can be said of it."""
    scores = run(model, [letters(text) for text in texts])
    return [(text, LABELS[int(row.argmax())]) for text, row in zip(texts, scores, strict=True)]


@hw.task(models=[voice], max_batch=4)
def speak(model, texts):
    """Return the sound of each sentence, in samples of eight bits."""
    waves = np.tanh(run(model, [letters(text) for text in texts]))
    return [(127 * wave).astype(np.int8).tolist() for wave in waves]


@hw.task(max_batch=8)
def combine(nli, speak):
    """Return both, for each picture."""
    return [{"caption": text, "judged": label, "sound": sound} for (text, label), sound in zip(nli, speak, strict=True)]


reading = hw.graph("reading", caption >> {nli, speak} >> combine, slo="600ms")

"""Record how long the steps of programs take alone on a GPU, to learn how noisy a measured slow-down is.

python -m bench.gpu_steps record FOLDER [--seconds 22]     on a machine with a GPU; one file a program
python -m bench.gpu_steps noise FOLDER                     anywhere: the noise of each way to compare, as CSV

A step is a whole request by the program's own clock: from before its first launch to the end of the wait that closes
it. ``noise`` cuts each recording into short stretches, calls every other one A and the rest B at random, and says how
far the ratio of A to B is from 1: the half-width of 95 % of many such draws. A stretch counts when it holds three
steps; one shorter than 50 ms when it holds one. The rows name the folder as the recording.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Longs = npt.NDArray[np.int64]
STRETCHES_MS = (10, 20, 50, 100, 250, 500)
SECONDS = (5, 10, 20)
DRAWS = 300
SHARES = (0.05, 0.1, 0.5)
COLUMNS = (
    *("recording", "program", "step_ms", "stretch_ms", "over_s"),
    *("held_share", "held_per_s", "estimator", "half_width_95"),
)


# --- programs -----------------------------------------------------------------------------------------------------


def _layer(width: int, heads: int, dtype: Any) -> Any:
    import torch

    layer = torch.nn.TransformerEncoderLayer(width, heads, 4 * width, batch_first=True, norm_first=True)
    return layer.to("cuda", dtype).eval()


def _stack(layers: int, width: int, heads: int, tokens: int) -> Callable[[], object]:
    """A transformer over so many tokens at once, bf16: prefill, or an encoder."""
    import torch

    torch.manual_seed(1)
    stack = torch.nn.Sequential(*(_layer(width, heads, torch.bfloat16) for _ in range(layers)))
    words = torch.randn(1, tokens, width, device="cuda", dtype=torch.bfloat16)
    return lambda: stack(words)


def _captured(layers: int, width: int, heads: int) -> Callable[[], object]:
    """One token through a decoder, captured as a graph, 16 tokens a request."""
    import torch

    torch.manual_seed(1)
    stack = torch.nn.Sequential(*(_layer(width, heads, torch.bfloat16) for _ in range(layers)))
    word = torch.randn(1, 1, width, device="cuda", dtype=torch.bfloat16)
    for _ in range(3):
        stack(word)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        stack(word)
    held = (stack, word)

    def request() -> object:
        assert held
        for _ in range(16):
            graph.replay()
        return None

    return request


def _unet() -> Callable[[], object]:
    """Convolutions down and up again with what was kept, as a diffusion step has them."""
    import torch
    from torch import nn

    torch.manual_seed(1)
    widths = (128, 256, 512, 512)
    down = [nn.Conv2d(a, b, 3, 2, 1) for a, b in zip((64, *widths), widths, strict=False)]
    up = [nn.ConvTranspose2d(b, a, 4, 2, 1) for a, b in zip((64, *widths), widths, strict=False)]
    same = [nn.Sequential(*(nn.Conv2d(w, w, 3, 1, 1) for _ in range(3))) for w in widths]
    parts = [nn.ModuleList(each).to("cuda", torch.bfloat16).eval() for each in (down, up, same)]
    image = torch.randn(1, 64, 64, 64, device="cuda", dtype=torch.bfloat16)

    def request() -> object:
        kept, x = [], image
        for shrink, stay in zip(parts[0], parts[2], strict=True):
            x = torch.relu(stay(shrink(x)))
            kept.append(x)
        for grow, before in zip(reversed(parts[1]), reversed(kept), strict=True):
            x = torch.relu(grow(x + before))
        return x

    return request


def _convnet() -> Callable[[], object]:
    import torch
    from torch import nn

    torch.manual_seed(1)
    layers: list[Any] = [nn.Conv2d(3, 64, 7, 2, 3), nn.ReLU()]
    for _ in range(12):
        layers += [nn.Conv2d(64, 64, 3, 1, 1), nn.BatchNorm2d(64), nn.ReLU()]
    net = nn.Sequential(*layers).cuda().eval()
    image = torch.randn(1, 3, 224, 224, device="cuda")
    return lambda: net(image)


def _in_turn(short: Callable[[], object], long: Callable[[], object]) -> Callable[[], object]:
    state = {"turn": 0}

    def request() -> object:
        state["turn"] += 1
        return (long if state["turn"] % 4 == 0 else short)()

    return request


PROGRAMS: dict[str, tuple[Callable[[], Callable[[], object]], float]] = {
    "prefill-512": (lambda: _stack(12, 1024, 16, 512), 0.0),
    "prefill-1024": (lambda: _stack(12, 1024, 16, 1024), 0.0),
    "prefill-1024-10ms": (lambda: _stack(12, 1024, 16, 1024), 0.010),
    "prefill-4096": (lambda: _stack(12, 1024, 16, 4096), 0.0),
    "unet": (_unet, 0.0),
    "vit-l": (lambda: _stack(24, 1024, 16, 197), 0.0),
    "decoder-graph": (lambda: _captured(24, 1024, 16), 0.0),
    "convnet": (_convnet, 0.0),
    "embedding-poisson": (lambda: _stack(6, 768, 12, 128), -0.5),
    "short-and-long": (lambda: _in_turn(_stack(6, 768, 12, 64), _stack(12, 1024, 16, 1024)), 0.0),
}
"""Each program, and the time between its requests; -0.5: random arrivals at half of what it can do."""


# --- recording ----------------------------------------------------------------------------------------------------


def record(folder: Path, seconds: float, only: str) -> None:
    """Play the programs that have no file yet, each alone, in a process of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in [only] if only else list(PROGRAMS):
        if (folder / f"{name}.npz").exists():
            continue
        command = [
            sys.executable,
            "-m",
            "bench.gpu_steps",
            "one",
            str(folder),
            "--only",
            name,
            "--seconds",
            str(seconds),
        ]
        done = subprocess.run(command, timeout=seconds + 60, check=False)
        print(json.dumps({"program": name, "status": done.returncode}), flush=True)


def one(folder: Path, seconds: float, name: str) -> None:
    """Play one program and write when each of its steps began and how long it took."""
    import torch

    os.sched_setaffinity(0, {2, 3})
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    maker, pause = PROGRAMS[name]
    request = maker()
    for _ in range(30):
        request()
        torch.cuda.synchronize()
    began, took = [], []
    draw = np.random.default_rng(0)
    usual = _usual(request)
    end = time.monotonic_ns() + int(seconds * 1e9)
    due = time.monotonic_ns()
    while (now := time.monotonic_ns()) < end:
        if pause:
            due = now + int(pause * 1e9) if pause > 0 else due + int(draw.exponential(usual / -pause))
            while time.monotonic_ns() < due:
                time.sleep(max(0.0, (due - time.monotonic_ns() - 100_000) / 1e9))
        start = time.monotonic_ns()
        request()
        torch.cuda.synchronize()
        began.append(start)
        took.append(time.monotonic_ns() - start)
    asked = ["nvidia-smi", "--query-gpu=clocks.sm,clocks.mem,power.draw,temperature.gpu", "--format=csv,noheader"]
    about = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    np.savez_compressed(folder / f"{name}.npz", began=np.array(began), took=np.array(took), about=np.array(about))
    print(json.dumps({"program": name, "steps": len(took), "p50_ms": float(np.median(took)) / 1e6, "gpu": about}))


def _usual(request: Callable[[], object]) -> float:
    import torch

    times = []
    for _ in range(50):
        start = time.monotonic_ns()
        request()
        torch.cuda.synchronize()
        times.append(time.monotonic_ns() - start)
    return float(np.median(times))


# --- noise --------------------------------------------------------------------------------------------------------


class Stretch(NamedTuple):
    """The steps that began in one stretch of time, and their median."""

    took: Longs
    median: float


Stretches = list[Stretch]


def _pooled(stretches: Stretches) -> Longs:
    return np.concatenate([each.took for each in stretches])


def _ratio_of_medians(a: Stretches, b: Stretches) -> float:
    return float(np.median(_pooled(a)) / np.median(_pooled(b)))


def _ratio_of_means(a: Stretches, b: Stretches) -> float:
    return float(_pooled(a).mean() / _pooled(b).mean())


def _median_of_pairs(a: Stretches, b: Stretches) -> float:
    """Each stretch A against the stretch B next to it in time; the median of the ratios of their medians."""
    return float(np.median([x.median / y.median for x, y in zip(a, b, strict=False)]))


def _like_with_like(a: Stretches, b: Stretches) -> float:
    """Steps of one size with steps of the same size: the mean over sizes of the ratio of medians."""
    left, right = _pooled(a), _pooled(b)
    edges = np.unique(np.quantile(np.concatenate((left, right)), (0, 0.5, 1)))
    whole = np.median(np.concatenate((left, right)))
    kinds = [lambda x: x < 2 * whole, lambda x: x >= 2 * whole] if edges[-1] > 2 * whole else [lambda x: x > 0]
    found = [
        (np.median(left[k(left)]) / np.median(right[k(right)]), k(left).sum())
        for k in kinds
        if k(left).any() and k(right).any()
    ]
    return float(sum(ratio * count for ratio, count in found) / sum(count for _, count in found))


ESTIMATORS = {
    "ratio of medians": _ratio_of_medians,
    "ratio of means": _ratio_of_means,
    "median of pairs": _median_of_pairs,
    "like with like": _like_with_like,
}


def noise(folder: Path) -> Iterator[tuple[object, ...]]:
    """Yield a row a program, length of stretch, time, share of the stretches that are A, and estimator.

    B are the stretches after those of A; where half of them are A, all others.
    """
    draw = np.random.default_rng(1)
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as kept:
            began, took = kept["began"], kept["took"]
        for stretch in STRETCHES_MS:
            parts = stretches_of(began, took, stretch)
            whole = (began[-1] - began[0]) / 1e9
            for seconds in SECONDS:
                wanted = round(len(parts) * seconds / whole)
                for share in SHARES:
                    for held, key, width in _draws(parts, seconds, wanted, share, draw):
                        step = round(float(np.median(took)) / 1e6, 3)
                        yield folder.name, path.stem, step, stretch, seconds, share, held, key, width


def stretches_of(began: Longs, took: Longs, stretch_ms: int) -> Stretches:
    """Return the stretches of this length that hold enough steps, in order."""
    which = (began - began[0]) // (stretch_ms * 1_000_000)
    parts = np.split(took, np.flatnonzero(np.diff(which)) + 1)
    least = 3 if stretch_ms >= 50 else 1
    return [Stretch(each, float(np.median(each))) for each in parts if len(each) >= least]


def _draws(
    parts: Stretches, seconds: int, wanted: int, share: float, draw: np.random.Generator
) -> Iterator[tuple[float, str, float]]:
    if len(parts) < wanted or wanted * share < 2:
        return
    held = max(2, round(wanted * share))
    found: dict[str, list[float]] = {key: [] for key in ESTIMATORS}
    for _ in range(DRAWS):
        first = int(draw.integers(0, len(parts) - wanted + 1))
        window = parts[first : first + wanted]
        chosen = np.sort(draw.choice(wanted - 1, held, replace=False))
        a = [window[at] for at in chosen]
        among = set(chosen.tolist())
        b = (
            [window[at + 1] for at in chosen]
            if share < 0.5
            else [each for at, each in enumerate(window) if at not in among]
        )
        for key, estimate in ESTIMATORS.items():
            found[key].append(abs(estimate(a, b) - 1))
    for key, values in found.items():
        yield round(held / seconds, 2), key, round(float(np.quantile(values, 0.95)), 4)


def main() -> None:
    """Read the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("record", "one", "noise"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=22.0)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    if given.what == "noise":
        print(",".join(COLUMNS))
        for row in noise(given.folder.resolve()):
            print(",".join(str(value) for value in row))
    elif given.what == "one":
        one(given.folder, given.seconds, given.only)
    else:
        record(given.folder, given.seconds, given.only)


if __name__ == "__main__":
    main()

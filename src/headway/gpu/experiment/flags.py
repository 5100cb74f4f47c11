"""Command-line flags of runs of programs on one GPU."""

from headway.runs.settings.flags import Flag

PROGRAMS = (
    *("alexnet", "bert", "bert-b32", "compiled", "densenet201", "googlenet", "gpt2", "graph", "graph-b64", "matmul"),
    *("resnet101-b64", "resnet50", "training", "vgg16", "vit"),
)
"""Programs that ship with headway; listed here so that help is shown without reading their files."""
WORK = (
    Flag(
        "high",
        "gpu.high",
        f"The high-priority program: {', '.join(PROGRAMS)}, or a .parquet; several separated by commas.",
        metavar="HIGH",
        several=True,
    ),
    Flag("low", "gpu.low", "Low-priority programs; NAME@3 gives one priority 3.", list, metavar="LOW"),
)
EXAMPLES = {
    "simulate": "resnet50 resnet101-b64 --policy headway --slo 1.05",
    "compare": "vgg16 matmul --policies time-slicing,mps,fikit,headway",
    "sweep": "resnet50 resnet101-b64 --policies mps,headway --vary gpu.think=0ms,5ms -o sweeps/gpu",
}
FLAGS = (
    Flag("think", "gpu.think", "Time between requests of high-priority programs: 5ms."),
    Flag("seconds", "gpu.seconds", "Simulated seconds: 2 if left out.", float),
    Flag("slo", "gpu.slo", "The target slow-down of high-priority programs, e.g. 1.05."),
    Flag("floor", "gpu.floor", "The share of the GPU that low-priority programs keep, e.g. 5%."),
)

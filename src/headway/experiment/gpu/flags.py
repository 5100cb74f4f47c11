"""Command-line flags of runs of programs on one GPU."""

from headway.experiment.flags import Flag

PROGRAMS = (
    *("alexnet", "bert", "bert-b32", "compiled", "densenet201", "googlenet", "gpt2", "graph", "graph-b64", "matmul"),
    *("resnet101-b64", "resnet50", "training", "vgg16", "vit"),
)
"""Those that come with headway; written out, for help is shown without reading any."""
WORK = (
    Flag(
        "high",
        "gpu.high",
        f"The program above: {', '.join(PROGRAMS)}, or a .parquet; several with commas.",
        metavar="HIGH",
        several=True,
    ),
    Flag("low", "gpu.low", "Programs below; NAME@3 is one of priority 3.", list, metavar="LOW"),
)
EXAMPLES = {
    "simulate": "resnet50 resnet101-b64 --policy headway --slo 1.05",
    "compare": "vgg16 matmul --policies time-slicing,mps,fikit,headway",
    "sweep": "resnet50 resnet101-b64 --policies mps,headway --vary gpu.think=0ms,5ms -o sweeps/gpu",
}
FLAGS = (
    Flag("think", "gpu.think", "Time between requests of those above: 5ms."),
    Flag("seconds", "gpu.seconds", "How long they are played: 2 if left out.", float),
    Flag("slo", "gpu.slo", "The slow-down that headway aims at, e.g. 1.05."),
    Flag("floor", "gpu.floor", "The share that those below keep, e.g. 5%."),
)

"""The settings of a run of programs on one GPU that have a flag."""

from headway.experiment.flags import Flag

FLAGS = (
    Flag("think", "gpu.think", "Time between the requests of the programs above, e.g. 5ms."),
    Flag("seconds", "gpu.seconds", "How long they are played: 2 if left out.", float),
    Flag("slo", "gpu.slo", "The slow-down that headway aims at, e.g. 1.05."),
    Flag("floor", "gpu.floor", "The share that those below keep under headway, e.g. 5%."),
)

"""The settings that runs of every scale have."""

from headway.experiment.flags import Flag

RUN, STATISTICS = "Run", "Statistics"

SEED = Flag("seed", "run.seed", "Seed of everything that is drawn.", int, RUN)
OUT = Flag("out", "run.out", "New folder for the tape and the results.", panel=RUN, metavar="RUN")
SEEDS = Flag("seeds", "measure.seeds", "So many runs, from --seed on.", int, STATISTICS, least=1, most=1000)
BASELINE = Flag("baseline", "measure.baseline", "Compare with this policy; the first if left out.", panel=STATISTICS)
CONFIDENCE = Flag("confidence", "measure.confidence", "Of intervals: 0.95 if left out, 0 for none.", float, STATISTICS)
WARMUP = Flag(
    "warmup", "measure.warmup", "Do not measure what comes first: 10%, or jobs of the first 2d.", panel=STATISTICS
)
MEASURED = (SEEDS, BASELINE, CONFIDENCE)
ALL = (SEED, OUT, *MEASURED, WARMUP)

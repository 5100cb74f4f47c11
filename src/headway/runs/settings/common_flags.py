"""Define the flags that runs of every scale have."""

from headway.runs.settings.flags import Flag

RUN = STATISTICS = "Run and statistics"

POLICY = Flag("policy", "policy.name", "Who decides (headway policies); your own: ./mine.py:MyPolicy.")
SEEDS = Flag("seeds", "measure.seeds", "So many runs, from --seed on.", int, metavar="COUNT", least=1, most=1000)
OUT = Flag("out", "run.out", "New folder for the tape and the results.", metavar="RUN")
SEED = Flag("seed", "run.seed", "Seed of everything that is drawn.", int, RUN)
BASELINE = Flag("baseline", "measure.baseline", "Compare with this policy; else the first.", panel=STATISTICS)
CONFIDENCE = Flag("confidence", "measure.confidence", "Of intervals: 0.95 if left out, 0 for none.", float, STATISTICS)
WARMUP = Flag("warmup", "measure.warmup", "Do not measure the first 10%, or the first 2d.", panel=STATISTICS)
MEASURED = (SEEDS, BASELINE, CONFIDENCE)
ALL = (POLICY, SEED, OUT, *MEASURED)

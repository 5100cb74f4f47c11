"""Functions for a user's own program: training (``step``, ``steps``), a cache of fixed hit rate, pipelines.

It needs only the standard library, and torch where the program already uses it. A profiler or a queue sets environment
variables; without them nothing is reported:

HEADWAY_PROGRESS     the file that ``steps`` writes the share to that is done
HEADWAY_CHECKPOINTS  the folder that ``steps`` keeps checkpoints in
HEADWAY_SAVED        the file that ``steps`` makes when it has saved and ends the program
HEADWAY_STEPS        the file that ``step`` appends a record to
HEADWAY_CACHE        the file that ``CachedDataset`` appends a line about itself to
HEADWAY_CACHE_BYTES  the budget of ``CachedDataset``, whatever the program says
HEADWAY_CPUS         how many CPUs the program has, a fraction perhaps, for it to choose its threads and workers by
"""

"""What a user's own training program imports: how far it is (``step``, ``steps``) and a cache of fixed hit rate.

It stands alone: the standard library, and torch only where the program already uses it. The environment says what a
profiler wants to know; without it nothing here does anything but its plain work:

HEADWAY_STEPS        the file that ``step`` appends a record to
HEADWAY_CACHE        the file that ``CachedDataset`` appends a line about itself to
HEADWAY_CACHE_BYTES  the budget of ``CachedDataset``, whatever the program says
HEADWAY_CPUS         how many CPUs the program has, a fraction perhaps, for it to choose its threads and workers by
"""

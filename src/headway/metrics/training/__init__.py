"""What a training tape says: a table a job, step functions over time, fragmentation, tables a tenant, one summary.

Everything is a pure function of a tape, its workload and its cluster. ``Ledger(tape, jobs, cluster)`` takes the tape
apart once; every other function takes a ledger, or, like ``summarise``, the three things themselves.
"""

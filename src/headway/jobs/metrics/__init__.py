"""Compute metrics of a training tape: a table of jobs, step functions, fragmentation, tenants, one summary.

Everything is a pure function of a tape, its workload and its cluster. ``Ledger(tape, jobs, cluster)`` takes the tape
apart once; every other function takes a ledger, or, like ``summarise``, the three things themselves.
"""

"""Metrics of a serving tape: latency, slow-down, deadlines, cache hits, memory, cost, and one flat summary.

All are pure functions of a tape, its workload, its catalogue and its fleet. ``Ledger(catalogue, fleet, requests,
tape)`` reads the tape into arrays once; ``summarise`` takes the same four arguments.
"""

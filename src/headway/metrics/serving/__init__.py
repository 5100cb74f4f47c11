"""What a serving tape says: latency, slow-down, deadlines, cache hits, memory, cost; one flat summary.

Everything is a pure function of a tape, its workload, its catalogue and its fleet. ``Ledger(catalogue, fleet,
requests, tape)`` takes the tape apart once; ``summarise`` takes the four things themselves.
"""

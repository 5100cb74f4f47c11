"""Compute numbers from tapes: pure functions of a tape, its workload and its cluster, for simulated and live runs."""

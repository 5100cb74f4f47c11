"""Numbers from tapes: pure functions of a tape, its workload and its cluster, the same for simulated and live runs."""

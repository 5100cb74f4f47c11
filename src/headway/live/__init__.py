"""Live executors: a GPU shared by real programs, and sweeps on a Ray cluster."""

"""What all scales need of a machine: its GPUs, processes, limits, locks, MPS and files that users share."""

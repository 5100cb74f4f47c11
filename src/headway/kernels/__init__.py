"""Kernels on one GPU: programs of different priority, and when each may launch; microseconds."""

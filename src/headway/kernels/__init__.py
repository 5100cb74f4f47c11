"""Kernels on one GPU: programs of different priority, and who may launch when. Microseconds."""

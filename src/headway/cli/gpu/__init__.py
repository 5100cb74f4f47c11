"""Commands of one GPU: share, predict, and profiles of kernels."""

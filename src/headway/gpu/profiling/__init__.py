"""Record the kernels of a program, and sum up where it leaves the GPU idle."""

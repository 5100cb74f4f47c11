"""Keep profiles of real programs, as measured on a machine, and tables of pairs that share a GPU.

What measures is in the trees: ``jobs.profiling``, ``fleet.profiling`` and ``gpu.profiling``. Everything here runs where
GPUs are, so it needs the standard library and numpy, nothing more.
"""

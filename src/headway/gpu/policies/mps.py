"""NVIDIA's MPS, and MPS with stream priorities: no launch is gated, and kernels overlap on the GPU.

These are the two baselines of every table. With priorities a waiting block of the program above is placed before those
of programs below; blocks that are on the GPU already stay to their end.
"""

from headway.gpu.policies.parts import KernelsPolicy


class Mps(KernelsPolicy):
    """No gate; the GPU places blocks in order of launch."""

    name = "mps"
    gating = False


class MpsPriority(KernelsPolicy):
    """No gate; the GPU places blocks of higher priority first."""

    name = "mps-priority"
    gating = False
    raised = True

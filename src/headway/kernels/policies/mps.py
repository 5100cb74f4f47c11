"""NVIDIA's MPS, and MPS with stream priorities: everybody launches at once, and kernels overlap on the GPU.

The two baselines of every table. With priorities a waiting block of the program above is placed before those of the
programs below; blocks that are on the GPU already stay there to their end.
"""

from headway.kernels.policies.parts import KernelsPolicy


class Mps(KernelsPolicy):
    """No gate; the GPU places blocks in the order in which kernels came."""

    name = "mps"
    gating = False


class MpsPriority(KernelsPolicy):
    """No gate; the GPU places blocks of higher priority first."""

    name = "mps-priority"
    gating = False
    raised = True

"""The driver's default between processes: one program at a time, a slice of about a millisecond each, no overlap."""

from headway.gpu.model.device import Sharing
from headway.gpu.policies.parts import KernelsPolicy


class TimeSlicing(KernelsPolicy):
    """No gate; clients with work take turns, and a switch costs time."""

    name = "time-slicing"
    sharing = Sharing.SLICES
    gating = False

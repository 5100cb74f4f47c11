"""The rules of a gate: what the dial sets for each client, and the reflex goes by."""

from dataclasses import dataclass

from headway.gpu.control.slowdown import MILLION


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one client's gate: the fields of the shared block."""

    gate: int = 1
    hold: int = 0
    watched: int = 0
    threshold_ns: int = 4_000
    latency_ns: int = 6_000
    depth_ns: int = 120_000
    idle_depth_ns: int = 8_000_000
    silence_ns: int = 100_000_000
    absorb_ppm: int = 500_000
    overlap_ppm: int = 500_000
    credit_ppm: int = 10_000
    credit_cap_ns: int = 2_000_000
    floor_ppm: int = 0
    whole: int = 0
    sample_every: int = 256
    raised: int = 0
    scale_ppm: int = MILLION
    longest_ns: int = 0
    """A longer kernel is launched only with no client above at work, or owed by the floor; 0: no limit."""

"""FaST-GShare: pods with a share of a GPU each, their number by throughput, their place by maximal rectangles.

Reference: docs/reference/policies/fleet/fast-gshare.md.
"""

from headway.fleet.policies.fast_gshare.policy import FastGshare

__all__ = ["FastGshare"]

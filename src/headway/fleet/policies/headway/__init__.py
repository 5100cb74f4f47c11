"""Headway's own serving policy: placement, residency and configuration decided together.

Reference: docs/reference/policies/fleet/headway.md.
"""

from headway.fleet.policies.headway.policy import Headway

__all__ = ["Headway"]

"""Aquatope: sizes by Bayesian optimisation before the load, a forecast warm pool (Zhou, Zhang and Delimitrou, 2023).

Reference: docs/reference/policies/fleet/aquatope.md.
"""

from headway.fleet.policies.aquatope.policy import Aquatope

__all__ = ["Aquatope"]

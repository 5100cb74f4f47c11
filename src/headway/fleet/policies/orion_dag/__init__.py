"""Orion for GPUs: sizes from latency distributions of the whole graph, bundles of parallel calls, processes ahead.

Reference: docs/reference/policies/fleet/orion-dag.md.
"""

from headway.fleet.policies.orion_dag.policy import OrionDag

__all__ = ["OrionDag"]

"""Builds serving policies from their names, with options in brackets: ``compass(adjust=off)``.

To add a policy, write its module and add its class to ``POLICIES``.
"""

from collections.abc import Mapping
from typing import Any

from headway.core.named import chosen, described, made
from headway.fleet.policies.aquatope import Aquatope
from headway.fleet.policies.checked import checked
from headway.fleet.policies.compass.hash import Hash
from headway.fleet.policies.compass.heft import Heft
from headway.fleet.policies.compass.jit import Jit
from headway.fleet.policies.compass.policy import Compass
from headway.fleet.policies.esg.exact import Exact
from headway.fleet.policies.esg.plan_once import PlanOnce
from headway.fleet.policies.esg.policy import Esg
from headway.fleet.policies.esg.stagewise import Stagewise
from headway.fleet.policies.fast_gshare import FastGshare
from headway.fleet.policies.headway import Headway
from headway.fleet.policies.infless import Infless
from headway.fleet.policies.orion_dag import OrionDag
from headway.fleet.policies.parts import ServingPolicy

POLICIES: dict[str, type[ServingPolicy]] = {
    policy.name: policy
    for policy in (
        Compass,
        Hash,
        Heft,
        Jit,
        Headway,
        Esg,
        Stagewise,
        PlanOnce,
        Exact,
        Infless,
        OrionDag,
        FastGshare,
        Aquatope,
        #
    )
}


def build(spec: str, *, authors: bool = False, defaults: Mapping[str, Any] | None = None) -> ServingPolicy:
    """Return the policy that a string names. ``authors``: options that are not given as in the papers' own programs."""
    policy, options = chosen(spec, POLICIES, kind="serving policy", example="compass or compass(adjust=off)")
    return made(checked(policy), policy.name, options, {**(defaults or {}), **(policy.authors if authors else {})})


def describe(policy: ServingPolicy) -> str:
    """Return the string that builds the same policy: its name, and what differs from the defaults."""
    return described(policy, policy.name)

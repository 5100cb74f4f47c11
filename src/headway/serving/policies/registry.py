"""Builds serving policies from their names, with options in brackets: ``compass(adjust=off)``.

To add a policy, write its module and add its class to ``POLICIES``.
"""

from collections.abc import Mapping
from typing import Any

from headway.core.named import chosen, described, made
from headway.serving.policies.aquatope import Aquatope
from headway.serving.policies.checked import checked
from headway.serving.policies.compass import Compass
from headway.serving.policies.esg import Esg
from headway.serving.policies.exact import Exact
from headway.serving.policies.fast_gshare import FastGshare
from headway.serving.policies.hash import Hash
from headway.serving.policies.headway import Headway
from headway.serving.policies.heft import Heft
from headway.serving.policies.infless import Infless
from headway.serving.policies.jit import Jit
from headway.serving.policies.orion_dag import OrionDag
from headway.serving.policies.parts import ServingPolicy
from headway.serving.policies.plan_once import PlanOnce
from headway.serving.policies.stagewise import Stagewise

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

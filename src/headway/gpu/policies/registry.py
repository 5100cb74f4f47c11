"""Builds policies for kernels on one GPU from their names, with options in brackets: ``headway(slo=1.05)``.

To add a policy, write its module and add its class to ``POLICIES``.

``plugins.py`` adds policies from users' files.
"""

from collections.abc import Mapping
from typing import Any

from headway.core.named import chosen, described, made
from headway.gpu.policies.checked import checked
from headway.gpu.policies.fikit import Fikit
from headway.gpu.policies.headway import Headway
from headway.gpu.policies.mps import Mps, MpsPriority
from headway.gpu.policies.parts import KernelsPolicy
from headway.gpu.policies.strict import Exclusive, Strict
from headway.gpu.policies.time_slicing import TimeSlicing
from headway.gpu.policies.xsched import XSched

POLICIES: dict[str, type[KernelsPolicy]] = {
    policy.name: policy
    for policy in (
        Exclusive,
        TimeSlicing,
        Mps,
        MpsPriority,
        Strict,
        XSched,
        Fikit,
        Headway,
        #
    )
}


def build(spec: str, *, defaults: Mapping[str, Any] | None = None) -> KernelsPolicy:
    """Return the policy that a string names. ``defaults``: options that are not given, where the policy has them."""
    policy, options = chosen(spec, POLICIES, kind="kernel policy", example="mps or headway(slo=1.05)")
    return made(checked(policy), policy.name, options, defaults or {})


def describe(policy: KernelsPolicy) -> str:
    """Return the string that builds the same policy: its name, and what differs from the defaults."""
    return described(policy, policy.name)

"""The names of all policies of kernels; options in brackets, ``headway(slo=1.05)``. To add one: its file, one line.

One in the user's own file is put here by ``formats/plugins.py``.
"""

import inspect
import re
from collections.abc import Mapping
from typing import Any, get_type_hints

from headway.errors import ExperimentError, InputError, unknown_name
from headway.kernels.policies.fikit import Fikit
from headway.kernels.policies.headway import Headway
from headway.kernels.policies.mps import Mps, MpsPriority
from headway.kernels.policies.parts import KernelsPolicy
from headway.kernels.policies.strict import Exclusive, Strict
from headway.kernels.policies.time_slicing import TimeSlicing
from headway.kernels.policies.xsched import XSched
from headway.units import Duration, exact_duration, parse_duration

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

_SPEC = re.compile(r"\s*([^()]+?)\s*(?:\(([^()]*)\))?\s*")
_SWITCHES = {"on": True, "true": True, "off": False, "false": False}


def build(spec: str, *, defaults: Mapping[str, Any] | None = None) -> KernelsPolicy:
    """The policy that a string names. ``defaults``: options that are not given, where the policy has them."""
    matched = _SPEC.fullmatch(spec)
    if matched is None:
        raise ExperimentError(f"policy {spec!r} is not understood: write it like mps or headway(slo=1.05)")
    name, options = matched[1], matched[2]
    if name not in POLICIES:
        raise ExperimentError(unknown_name("kernel policy", name, POLICIES))
    made = POLICIES[name]
    known = inspect.signature(made).parameters
    given: dict[str, Any] = {key: value for key, value in (defaults or {}).items() if key in known}
    for option in (options or "").split(",") if options else ():
        key, equals, value = (piece.strip() for piece in option.partition("="))
        if key not in known:
            raise ExperimentError(f"policy {name}: {unknown_name('option', key, known)}")
        if not equals or not value:
            raise ExperimentError(f"policy {name}: option {key} has no value, e.g. {key}={known[key].default}")
        given[key] = _read(name, key, value, get_type_hints(made.__init__).get(key, str))
    for key, parameter in known.items():
        if parameter.default is inspect.Parameter.empty and key not in given:
            raise ExperimentError(f"policy {name}: option {key} has no default and is not given")
    policy = made(**given)
    for key in known:
        if not hasattr(policy, key):
            raise ExperimentError(f"policy {name}: option {key} must be stored under its name, self.{key}")
    return policy


def _read(name: str, key: str, text: str, kind: Any) -> Any:
    """An option's value by its type; a share may be written as 5%."""
    try:
        if kind is bool:
            return _SWITCHES[text.lower()]
        if kind is Duration:
            return Duration(parse_duration(text, what=f"policy {name}: option {key}"))
        if kind is float and text.endswith("%"):
            return float(text[:-1]) / 100
        return kind(text)
    except InputError:
        raise
    except (KeyError, ValueError):
        wanted = "on or off" if kind is bool else "a number" if kind in (int, float) else "a name"
        raise ExperimentError(f"policy {name}: option {key}={text} is not {wanted}") from None


def describe(policy: KernelsPolicy) -> str:
    """The string that builds the same policy: its name, and what differs from the defaults."""
    hints = get_type_hints(type(policy).__init__)
    given = []
    for key, parameter in inspect.signature(type(policy)).parameters.items():
        value = getattr(policy, key)
        if value != parameter.default:
            text = "on" if value is True else "off" if value is False else str(value)
            given.append(f"{key}={exact_duration(value) if hints.get(key) is Duration else text}")
    return policy.name + (f"({','.join(given)})" if given else "")

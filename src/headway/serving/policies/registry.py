"""The names of all serving policies; options in brackets, ``compass(adjust=off)``. To add one: its file, one line."""

import inspect
import re
from collections.abc import Mapping
from typing import Any, get_type_hints

from headway.errors import ExperimentError, unknown_name
from headway.serving.policies.compass import Compass
from headway.serving.policies.esg import Esg
from headway.serving.policies.exact import Exact
from headway.serving.policies.hash import Hash
from headway.serving.policies.headway import Headway
from headway.serving.policies.heft import Heft
from headway.serving.policies.jit import Jit
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
        #
    )
}

_SPEC = re.compile(r"\s*([^()]+?)\s*(?:\(([^()]*)\))?\s*")
_SWITCHES = {"on": True, "true": True, "off": False, "false": False}


def build(spec: str, *, authors: bool = False, defaults: Mapping[str, Any] | None = None) -> ServingPolicy:
    """The policy that a string names. ``authors``: options that are not given as in the papers' own programs."""
    matched = _SPEC.fullmatch(spec)
    if matched is None:
        raise ExperimentError(f"policy {spec!r} is not understood: write it like compass or compass(adjust=off)")
    name, options = matched[1], matched[2]
    if name not in POLICIES:
        raise ExperimentError(unknown_name("serving policy", name, POLICIES))
    made = POLICIES[name]
    known = inspect.signature(made).parameters
    given: dict[str, Any] = {key: value for key, value in (defaults or {}).items() if key in known}
    if authors:
        given.update(made.authors)
    for option in (options or "").split(",") if options else ():
        key, equals, value = (piece.strip() for piece in option.partition("="))
        if key not in known:
            raise ExperimentError(f"policy {name}: {unknown_name('option', key, known)}")
        if not equals or not value:
            raise ExperimentError(f"policy {name}: option {key} has no value, e.g. {key}={known[key].default}")
        given[key] = _read(name, key, value, get_type_hints(made.__init__).get(key, str))
    return made(**given)


def _read(name: str, key: str, text: str, kind: Any) -> Any:
    """An option's value by its type."""
    try:
        if kind is bool:
            return _SWITCHES[text.lower()]
        return kind(text)
    except (KeyError, ValueError):
        wanted = "on or off" if kind is bool else "a number" if kind in (int, float) else "a name"
        raise ExperimentError(f"policy {name}: option {key}={text} is not {wanted}") from None


def describe(policy: ServingPolicy) -> str:
    """The string that builds the same policy: its name, and what differs from the defaults."""
    given = []
    for key, parameter in inspect.signature(type(policy)).parameters.items():
        value = getattr(policy, key)
        if value != parameter.default:
            given.append(f"{key}={'on' if value is True else 'off' if value is False else value}")
    return policy.name + (f"({','.join(given)})" if given else "")

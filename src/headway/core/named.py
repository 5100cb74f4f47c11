"""A policy by its name and options, ``headway(slo=1.05)``: read from such a string, and written as one.

Serving and kernels name theirs so; training's are made of parts and have a grammar of their own.
"""

import inspect
import re
from collections.abc import Mapping
from typing import Any, TypeVar, get_type_hints

from headway.errors import ExperimentError, InputError, unknown_name
from headway.units import Duration, exact_duration, parse_duration

Named = TypeVar("Named")

_SPEC = re.compile(r"\s*([^()]+?)\s*(?:\(([^()]*)\))?\s*")
_SWITCHES = {"on": True, "true": True, "off": False, "false": False}


def chosen(spec: str, policies: Mapping[str, type[Named]], *, kind: str, example: str) -> tuple[type[Named], str]:
    """Return the class that a string names among ``policies``, and the text of its options."""
    matched = _SPEC.fullmatch(spec)
    if matched is None:
        raise ExperimentError(f"policy {spec!r} is not understood: write it like {example}")
    if matched[1] not in policies:
        raise ExperimentError(unknown_name(kind, matched[1], policies))
    return policies[matched[1]], matched[2] or ""


def made(policy: type[Named], name: str, options: str, defaults: Mapping[str, Any]) -> Named:
    """Return a policy with the options of a text; ``defaults``: those not given, where the policy has them."""
    known = inspect.signature(policy).parameters
    given: dict[str, Any] = {key: value for key, value in defaults.items() if key in known}
    for option in options.split(",") if options else ():
        key, equals, value = (piece.strip() for piece in option.partition("="))
        if key not in known:
            raise ExperimentError(f"policy {name}: {unknown_name('option', key, known)}")
        if not equals or not value:
            raise ExperimentError(f"policy {name}: option {key} has no value, e.g. {key}={known[key].default}")
        given[key] = _read(name, key, value, get_type_hints(policy.__init__).get(key, str))
    for key, parameter in known.items():
        if parameter.default is inspect.Parameter.empty and key not in given:
            raise ExperimentError(f"policy {name}: option {key} has no default and is not given")
    one = policy(**given)
    for key in known:
        if not hasattr(one, key):
            raise ExperimentError(f"policy {name}: option {key} must be stored under its name, self.{key}")
    return one


def _read(name: str, key: str, text: str, kind: Any) -> Any:
    """Return an option's value by its type; a share may be written as 5%."""
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


def described(policy: object, name: str) -> str:
    """Return the string that makes the same policy: its name, and what differs from the defaults."""
    hints = get_type_hints(type(policy).__init__)
    given = []
    for key, parameter in inspect.signature(type(policy)).parameters.items():
        value = getattr(policy, key)
        if value != parameter.default:
            text = "on" if value is True else "off" if value is False else str(value)
            given.append(f"{key}={exact_duration(value) if hints.get(key) is Duration else text}")
    return name + (f"({','.join(given)})" if given else "")

"""Policy strings such as ``headway(slo=1.05)``: read a name and options, and write them.

Policies of serving and kernels use this form; training's are composed of parts and have their own grammar.
"""

import inspect
import re
from collections.abc import Mapping
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from headway.core.outside import place_of
from headway.errors import ExperimentError, InputError, unknown_name
from headway.units import Duration, exact_duration, parse_duration

Named = TypeVar("Named")

_SPEC = re.compile(r"\s*([^()]+?)\s*(?:\(([^()]*)\))?\s*")
_SWITCHES = {"on": True, "true": True, "off": False, "false": False}
_READABLE = (int, float, bool, str, Duration)


def chosen(spec: str, policies: Mapping[str, type[Named]], *, kind: str, example: str) -> tuple[type[Named], str]:
    """Return the class that a string names among ``policies``, and the text of its options."""
    if spec.strip() in policies:  # a policy given as an object: its full name is a key
        return policies[spec.strip()], ""
    matched = _SPEC.fullmatch(spec)
    if matched is None:
        raise ExperimentError(f"{kind} {spec!r} is not understood: write it like {example}")
    if matched[1] not in policies:
        raise ExperimentError(unknown_name(kind, matched[1], policies))
    return policies[matched[1]], matched[2] or ""


def made(policy: type[Named], name: str, options: str, defaults: Mapping[str, Any], *, kind: str = "policy") -> Named:
    """Return a policy with the options of a text; ``defaults``: values of options not given, if the policy has them.

    ``kind``: what messages call it.
    """
    known, whole = _options(policy), f"{kind} {name}"
    given: dict[str, Any] = {key: value for key, value in defaults.items() if key in known}
    for option in options.split(",") if options else ():
        key, equals, value = (piece.strip() for piece in option.partition("="))
        if key not in known:
            raise ExperimentError(f"{whole}: {unknown_name('option', key, known)}")
        if not equals or not value:
            raise ExperimentError(f"{whole}: option {key} has no value, e.g. {key}={known[key].default}")
        given[key] = _read(whole, key, value, readable(policy, name, key))
    return built(policy, name, given)


def readable(policy: type, name: str, key: str, *, tuples: bool = False) -> Any:
    """Return the type of an option; raise where text cannot be read as it. ``tuples``: allow tuples of such types."""
    kind = get_type_hints(policy.__init__).get(key)  # type: ignore[misc]
    item = get_args(kind)[0] if tuples and get_origin(kind) is tuple and get_args(kind)[1:] == (...,) else kind
    if item in _READABLE:
        return kind
    types = [readable_type.__name__ for readable_type in _READABLE] + ["tuple[int, ...]"] * tuples
    found = "has no type" if kind is None else f"is of type {getattr(kind, '__name__', None) or kind}"
    raise ExperimentError(
        f"policy {name}: option {key} {found}, which cannot be read from text: declare it as {', '.join(types[:-1])} "
        f"or {types[-1]}, or give the policy as an object from Python{place_of(policy)}"
    )


def built(policy: type[Named], name: str, given: Mapping[str, Any]) -> Named:
    """Return a policy with these options; raise where one is missing, or not stored under its name."""
    for key, parameter in _options(policy).items():
        if parameter.default is inspect.Parameter.empty and key not in given:
            raise ExperimentError(f"policy {name}: option {key} has no default and is not given{place_of(policy)}")
    made = policy(**given)
    stored_options(made, name)
    return made


def stored_options(policy: object, name: str) -> dict[str, Any]:
    """Return a policy's options and their values: what its constructor took, stored under the same names."""
    known = _options(type(policy))
    for key in known:
        if not hasattr(policy, key):
            rule = f"option {key} must be stored under its name, self.{key}"
            raise ExperimentError(f"policy {name}: {rule}{place_of(type(policy))}")
    return {key: getattr(policy, key) for key in known}


def in_full(policy: object, name: str) -> str:
    """Return a policy's name and the options that differ from their defaults, as Python shows them."""
    known = _options(type(policy))
    changed = [f"{k}={v!r}" for k, v in stored_options(policy, name).items() if not _same(v, known[k].default)]
    return name + (f"({' '.join(', '.join(changed).splitlines())})" if changed else "")


def _same(value: Any, default: Any) -> bool:
    """Return whether an option has its default; values such as arrays, that compare by item, count as different."""
    try:
        return bool(value == default)
    except Exception:  # noqa: BLE001 - whatever the class of the value raises
        return False


def _options(policy: type) -> dict[str, inspect.Parameter]:
    """Return the named parameters of a policy's constructor."""
    unnamed = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {
        key: parameter
        for key, parameter in inspect.signature(policy).parameters.items()
        if parameter.kind not in unnamed
    }


def _read(whole: str, key: str, text: str, kind: Any) -> Any:
    """Return an option's value by its type; a share may be written as 5%. ``whole``: whose option it is."""
    try:
        if kind is bool:
            return _SWITCHES[text.lower()]
        if kind is Duration:
            return Duration(parse_duration(text, what=f"{whole}: option {key}"))
        if kind is float and text.endswith("%"):
            return float(text[:-1]) / 100
        return kind(text)
    except InputError:
        raise
    except (KeyError, ValueError):
        wanted = "on or off" if kind is bool else "a number" if kind in (int, float) else "a name"
        raise ExperimentError(f"{whole}: option {key}={text} is not {wanted}") from None


def described(policy: object, name: str) -> str:
    """Return the string that makes the same policy: its name, and what differs from the defaults."""
    hints = get_type_hints(type(policy).__init__)
    given = []
    for key, parameter in _options(type(policy)).items():
        value = getattr(policy, key)
        if not _same(value, parameter.default):
            text = "on" if value is True else "off" if value is False else str(value)
            given.append(f"{key}={exact_duration(value) if hints.get(key) is Duration else text}")
    return name + (f"({','.join(given)})" if given else "")

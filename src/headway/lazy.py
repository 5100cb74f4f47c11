"""Import the public names of a package when they are asked for: importing the package costs next to nothing."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def public(package: str, places: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package whose public names lie in modules of headway.

    A place is a module, ``jobs.policies.parts``; behind a colon the name that a thing has there, if it has another,
    ``fleet.policies.parts:ServingPolicy``. It is empty where the name is a package below this one.
    """
    names = vars(sys.modules[package])

    def found(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, other = places[name].partition(":")
        if not module:
            return import_module(f"{package}.{name}")
        names[name] = getattr(import_module(f"headway.{module}"), other or name)
        return names[name]

    return found, lambda: sorted({*places, *(name for name in names if name.startswith("__"))}), sorted(places)

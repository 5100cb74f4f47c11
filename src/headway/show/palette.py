"""Put real colours into a figure for a notebook; a page does it in the browser, light or dark."""

import re
from importlib import resources
from typing import Any


def coloured(value: Any) -> Any:
    """Return a figure with the names of colours, ``@s0`` or ``@s0/0.2``, replaced by those of the light page."""
    style = resources.files("headway.show").joinpath("page.css").read_text(encoding="utf-8")
    variables = re.findall(r"--([\w-]+): (#[0-9a-f]{6})", style)
    return _coloured(value, dict(reversed(variables)))  # the first of each name


def _coloured(value: Any, palette: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _coloured(item, palette) for key, item in value.items()}
    if isinstance(value, list):
        return [_coloured(item, palette) for item in value]
    if not isinstance(value, str) or not value.startswith("@"):
        return value
    name, _, opacity = value[1:].partition("/")
    if name not in palette:
        return value
    red, green, blue = (int(palette[name][at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity or 1})"

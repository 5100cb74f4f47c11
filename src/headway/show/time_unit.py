"""Choose the unit that times are shown in, the same in tables and pictures."""

_UNITS = (("h", 3600), ("min", 60), ("s", 1))


def time_unit(longest_s: float) -> tuple[str, int]:
    """Return one unit for times up to this long, and its length in seconds, so that they compare at a glance."""
    return next((name, size) for name, size in _UNITS if longest_s >= 2 * size or size == 1)


def in_unit(value_s: float | None, unit: str, size: int) -> str:
    """Return a time in a unit of so many seconds; a dash where there is none."""
    return "–" if value_s is None else f"{value_s / size:,.2f} {unit}"

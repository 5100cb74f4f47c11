"""Several runs side by side: how far each is from the first.

It takes the flat objects that ``--json`` prints, so what a table shows is what a script reads.
"""

from collections.abc import Mapping, Sequence
from typing import Any


def changes(runs: Sequence[Mapping[str, Any]], key: str) -> list[float | None]:
    """How far a number of each run is from that of the first: -0.25 is a quarter less.

    None for the first itself, and where either is unknown or the first is 0.
    """
    return [None if index == 0 else _change(run.get(key), runs[0].get(key)) for index, run in enumerate(runs)]


def _change(value: float | None, reference: float | None) -> float | None:
    return None if value is None or not reference else value / reference - 1

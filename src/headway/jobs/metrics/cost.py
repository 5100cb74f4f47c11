"""Compute what the GPUs that jobs held cost and how much energy they took, by type of GPU.

Prices are for an hour of one GPU, watts are of one GPU while a job holds it. GPUs that stand idle are not counted.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from headway.errors import ExperimentError, unknown_name
from headway.jobs.metrics.ledger import Ledger
from headway.jobs.metrics.window import Window
from headway.jobs.model.cluster import Cluster
from headway.units import HOUR, WHOLE_GPU_MILLI

_MOST = 10**9


def rates(texts: str | Iterable[str], flag: str, cluster: Cluster) -> dict[str, float]:
    """Parse ``h100=3.2,a100=1.8`` into a number for each type of GPU; refuse types that the cluster has not."""
    kinds = sorted({node.gpu_type for node in cluster.nodes if node.gpus})
    found: dict[str, float] = {}
    for part in (part for text in ([texts] if isinstance(texts, str) else texts) for part in text.split(",") if text):
        kind, _, number = (piece.strip() for piece in part.rpartition("="))
        try:
            value = float(number)
        except ValueError:
            value = -1.0
        if not kind or not 0 <= value < _MOST:
            raise ExperimentError(f"{flag} {part!r} is not understood: write it like {flag} {kinds[0]}=3.2")
        if kind not in kinds:
            raise ExperimentError(unknown_name(f"{flag}: GPU type", kind, kinds))
        if kind in found:
            raise ExperimentError(f"{flag}: {kind} is given twice")
        found[kind] = value
    return found


def held_hours(ledger: Ledger, window: Window | None) -> dict[str, float]:
    """Return the GPU-hours that measured jobs held, by the type of the GPUs that they held."""
    kinds = [node.gpu_type for node in ledger.cluster.nodes]
    measured = np.zeros(len(ledger.jobs), dtype=np.bool_)
    measured[slice(None) if window is None else window.jobs] = True
    length = (ledger.hold_end - ledger.hold_start)[ledger.place_hold] / HOUR
    hours = ledger.place_width / WHOLE_GPU_MILLI * length * measured[ledger.hold_job[ledger.place_hold]]
    by_node = np.bincount(ledger.place_node, weights=hours, minlength=len(kinds))
    found = {node.gpu_type: 0.0 for node in ledger.cluster.nodes if node.gpus}
    for kind, amount in zip(kinds, by_node.tolist(), strict=True):
        if kind in found:
            found[kind] += amount
    return found


def costs(
    ledger: Ledger, window: Window | None, price: Mapping[str, float], watts: Mapping[str, float]
) -> dict[str, Any]:
    """Return a row a type of GPU and the sums; nothing where neither prices nor watts are given."""
    if not price and not watts:
        return {}
    rows = []
    for kind, hours in sorted(held_hours(ledger, window).items()):
        row: dict[str, Any] = {"gpu_type": kind, "gpu_hours": hours}
        row["cost"] = hours * price[kind] if kind in price else None
        row["energy_kwh"] = hours * watts[kind] / 1000 if kind in watts else None
        rows.append(row)
    sums = {key: sum(row[key] for row in rows if row[key] is not None) for key in ("cost", "energy_kwh")}
    return {"costs": rows, **{key: value for key, value in sums.items() if (price if key == "cost" else watts)}}


def with_sum(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the rows of a result by type of GPU and, where there are several, one of all."""
    rows = list(result.get("costs") or ())
    if len(rows) > 1:
        sums = {key: result.get(key) for key in ("cost", "energy_kwh")}
        rows.append({"gpu_type": "all", "gpu_hours": sum(each["gpu_hours"] for each in rows), **sums})
    return rows


def uncounted(result: Mapping[str, Any]) -> Iterator[str]:
    """Say which types of GPU that were held have no price, or no watts, where others have."""
    for key, flag, word in (("cost", "--price", "cost"), ("energy_kwh", "--watts", "energy")):
        left = [each["gpu_type"] for each in result.get("costs") or () if each[key] is None and each["gpu_hours"]]
        if left and result.get(key) is not None:
            yield f"{flag} is not given for {', '.join(left)}: the {word} in all is without that"

"""Choose the panels of the figure over time: what is in use, what waits, and how scattered the free GPUs are."""

from collections.abc import Iterator

import numpy as np

from headway.jobs.metrics.host import FIELDS
from headway.jobs.show.page.measured import Comparison
from headway.statistics.series import Series

Panel = tuple[str, str, list[Series]]
"""A title, ``%`` for shares, and a line for each run."""
_HOST = (("CPUs", "cpus"), ("memory", "memory_bytes"), ("storage bandwidth", "storage"))


def panels_of(compared: Comparison) -> list[Panel]:
    """Return all panels, from top to bottom."""
    runs = compared.runs
    return [
        ("GPUs in use, % of all", "%", [_share(run.lines.allocated, run.ledger.cluster.gpus) for run in runs]),
        *_host(compared),
        ("jobs waiting", "", [run.lines.waiting for run in runs]),
        ("GPUs that waiting jobs ask for", "", [run.lines.waiting_gpus for run in runs]),
        ("free GPUs on nodes partly in use, %", "%", [run.fragments.levels["node"] for run in runs]),
    ]


def _host(compared: Comparison) -> Iterator[Panel]:
    """Yield panels of CPUs, memory and storage bandwidth, where nodes count them and jobs hold any."""
    for (name, line), (field, unit) in zip(_HOST, FIELDS, strict=True):
        held: list[Series | None] = [getattr(run.lines, line) for run in compared.runs]
        if any(series is not None and series.values.any() for series in held):
            there = [
                sum(getattr(node, field) or 0 for node in run.ledger.cluster.nodes) / unit for run in compared.runs
            ]
            lines = [_share(series, capacity) for series, capacity in zip(held, there, strict=True)]
            yield f"{name} in use, % of all", "%", lines


def _share(series: Series | None, capacity: float) -> Series:
    """Return a step function as a part of what there is; nothing of what is not counted."""
    if series is None or not capacity:
        return Series(np.empty(0, np.int64), np.empty(0, np.int64))
    return Series(series.times, series.values / (series.unit * capacity))

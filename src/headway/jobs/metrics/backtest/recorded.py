"""Compute the recorded past of a site as numbers beside those of runs: what really happened to the measured jobs.

A job that started counts with its real wait; it then ran for as long as the log says, so its JCT is exact. One that was
requeued waited again, and ran in vain before: both count as they do in runs. How full the cluster was is taken from the
same starts, while measured jobs arrived.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headway.jobs.metrics.backtest.errors import labelled
from headway.jobs.metrics.groups import GROUPS
from headway.jobs.metrics.summary import spread
from headway.jobs.metrics.window import Window
from headway.jobs.model.job import Job
from headway.statistics.series import IntArray
from headway.units import SECOND, WHOLE_GPU_MILLI

_LABELS = {"tenant": "account"}
"""What a group is called in ``labelled``, where that is another word."""


def recorded_past(
    jobs: Sequence[Job],
    waits: Sequence[int],
    gpus: int,
    window: Window | None,
    unfinished: Sequence[int] = (),
    requeued: Sequence[tuple[int, int]] = (),
    eligible: Sequence[int] = (),
) -> dict[str, Any]:
    """Return the numbers of the past, by the keys that runs have, and means by group; waits below 0 are not known.

    ``unfinished``: by job how long it has run where it has not ended, else below 0. Such a job held GPUs so long, and
    counts nowhere else. ``requeued``: by job how long after its first start the last attempt began, and for how much of
    that it had run. ``eligible``: by job how long after its arrival it was eligible, from when on it waited.
    """
    first_wait = np.array(waits, dtype=np.int64)
    ran = np.fromiter((job.ends_after for job in jobs), np.int64, len(jobs))
    so_far = np.array(unfinished, dtype=np.int64) if len(unfinished) else np.full(len(jobs), -1)
    ran = np.where(so_far >= 0, so_far, ran)
    later, lost = np.array(requeued, dtype=np.int64).T if len(requeued) else np.zeros((2, len(jobs)), np.int64)
    wait, jct = first_wait + later - lost, first_wait + later + ran
    chosen = np.zeros(len(jobs), dtype=np.bool_)
    chosen[slice(None) if window is None else window.jobs] = True
    submit = np.fromiter((job.submit for job in jobs), np.int64, len(jobs))
    measured = submit[chosen]
    known = chosen & (first_wait >= 0) & (so_far < 0)
    ends, waited = spread(jct[known], SECOND), spread(wait[known], SECOND)
    labels = labelled(jobs, {})
    edges = (int(measured[0]), int(measured[-1])) if len(measured) else (0, 0)
    start = submit + first_wait + (np.array(eligible, dtype=np.int64) if len(eligible) else 0)
    held = [(start + later, ran), (start, lost)]  # of several attempts before the last one: all at once
    return {
        "jobs": int(known.sum()),
        "jct_mean_s": ends.mean,
        "jct_p50_s": ends.p50,
        "jct_p99_s": ends.p99,
        "wait_mean_s": waited.mean,
        "wait_p50_s": waited.p50,
        "wait_p99_s": waited.p99,
        "gpu_utilisation_while_arriving": _used(jobs, held, first_wait >= 0, edges, gpus),
        **{key: _by_group(labels[_LABELS.get(name, name)], name, wait, jct, known) for name, key in GROUPS.items()},
    }


def _used(
    jobs: Sequence[Job], held: Sequence[tuple[IntArray, IntArray]], known: Any, edges: tuple[int, int], gpus: int
) -> float | None:
    """Return the share of GPU time that was held between two instants, by starts and lengths of holds."""
    first, last = edges
    if last <= first or not gpus:
        return None
    width = np.fromiter((job.width_milli for job in jobs), np.int64, len(jobs))
    within = np.zeros(len(jobs))
    for start, ran in held:
        within += np.clip(np.minimum(start + ran, last) - np.maximum(start, first), 0, None)
    return float((within * width)[known].sum()) / (WHOLE_GPU_MILLI * gpus * (last - first))


def _by_group(labels: Sequence[str], name: str, wait: IntArray, jct: IntArray, known: Any) -> list[Mapping[str, Any]]:
    members: dict[str, list[int]] = {}
    for at in np.flatnonzero(known).tolist():
        members.setdefault(labels[at], []).append(at)
    if len(members) < 2:
        return []
    return [
        {
            name: group,
            "jobs": len(places),
            "jct_mean_s": float(jct[places].mean()) / SECOND,
            "wait_mean_s": float(wait[places].mean()) / SECOND,
        }
        for group, places in sorted(members.items())
    ]

"""Slow-downs of two networks that share one GPU, each with its share of the SMs, against running alone.

The SMs are divided; memory bandwidth, the L2 cache and power are not. The table shows the effect of those.
"""

import time
from itertools import combinations_with_replacement
from statistics import median

from headway.errors import ProfileError
from headway.fleet.profiling.process import Worker
from headway.fleet.profiling.session import Log, Session

SHARE = 3
WARM_S = 0.6
LEAST_RUNS = 3


def measure(session: Session, *, batch: int = 4, share: int = SHARE, window_s: float = 1.5) -> None:
    """Measure all pairs of a session's networks that are not in its log, each network alone first."""
    names = list(session.factories)
    alone = [name for name in names if not session.log.all("alone", name=name, batch=batch, share=share)]
    pairs = [
        pair
        for pair in combinations_with_replacement(names, 2)
        if not session.log.all("beside", names=list(pair), batch=batch, share=share)
    ]
    if not alone and not pairs:
        return
    if share not in session.shares:
        raise ProfileError(f"share {share}: MPS does not divide this GPU, so nothing runs side by side")
    with session.worker(share) as left, session.worker(share) as right:
        for name, factory in session.factories.items():
            for worker in (left, right):
                worker.ask("load", name=name, factory=factory)
        for name in alone:
            session.in_time()
            taken = [_windows([worker], [name], batch, window_s)[0] for worker in (left, right)]
            session.log.keep("alone", name=name, batch=batch, share=share, ns=taken)
        for pair in pairs:
            session.in_time()
            taken = _windows([left, right], list(pair), batch, window_s)
            session.log.keep("beside", names=list(pair), batch=batch, share=share, ns=taken)


def _windows(workers: list[Worker], names: list[str], batch: int, window_s: float) -> list[list[int]]:
    """Return the run times of each network within one window, each on its own CPUs."""
    begin = time.monotonic_ns() + round(WARM_S * 1e9)
    end = begin + round(window_s * 1e9)
    all_cpus = workers[0].about["cpus"]
    half = max(1, min(4, len(all_cpus) // 2))
    for place, (worker, name) in enumerate(zip(workers, names, strict=True)):
        cpus = all_cpus[half * place :][:half] or all_cpus
        worker.tell("window", name=name, batch=batch, cpus=cpus, begin_ns=begin, end_ns=end)
    taken: list[list[int]] = [worker.answer()["ns"] for worker in workers]
    for name, times in zip(names, taken, strict=True):
        if len(times) < LEAST_RUNS:
            raise ProfileError(f"{name} ran {len(times)} times in {window_s:g} s: give a longer window")
    return taken


def slowdowns(log: Log, *, batch: int = 4, share: int = SHARE) -> dict[tuple[str, str], float]:
    """Return by (network, co-runner) the median time of the network over its time alone, in the same process."""
    alone = {row["name"]: [median(taken) for taken in row["ns"]] for row in log.all("alone", batch=batch, share=share)}
    ratios_of: dict[tuple[str, str], list[float]] = {}
    for row in log.all("beside", batch=batch, share=share):
        names = row["names"]
        for place, taken in enumerate(row["ns"]):
            ratio = median(taken) / alone[names[place]][place]
            ratios_of.setdefault((names[place], names[1 - place]), []).append(ratio)
    return {pair: sum(ratios) / len(ratios) for pair, ratios in ratios_of.items()}

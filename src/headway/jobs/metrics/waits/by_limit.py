"""Measure how long jobs waited behind limits: the tape is walked once, and who is held back is counted at each step.

Who a limit holds back follows from the jobs that run and wait, whatever the policy: no policy is asked. Where several
limits would stop a job, the first of them counts, in the order in which the cluster declares them.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from headway.core.tape import Tape
from headway.jobs.audit.replay import Walk
from headway.jobs.metrics.ledger import Ledger
from headway.jobs.metrics.waits.intervals import waits
from headway.jobs.policies.registry import build
from headway.jobs.rules.limits.limit import THROTTLE
from headway.statistics.series import exact_sum
from headway.units import HOUR

ALL_ARRAYS = f"{THROTTLE}, all arrays"
"""What the throttles of arrays are called together: a site has hundreds of them."""


def by_limit(ledger: Ledger, tape: Tape) -> list[dict[str, str | float]]:
    """Return a row a limit that held jobs back: job-hours waited behind it, and their share of all waiting."""
    waited: dict[str, int] = {}
    walk = Walk(ledger.cluster, ledger.jobs, tape, build("fifo"))
    last = 0
    behind: list[tuple[str, int]] = []
    for step in walk:
        walk.act()
        for address, count in behind:
            waited[address] = waited.get(address, 0) + count * (step.time - last)
        last = step.time
        limits = walk.state.limits
        behind = [] if limits is None else [(each.rule.address, count) for each, count in limits.waiting_behind()]
    stretches = waits(ledger, None)
    total = exact_sum(stretches.end - stretches.start)
    rows = sorted(waited.items(), key=lambda each: (-each[1], each[0]))
    return [
        {"limit": address, "job_hours": time / HOUR, "share": time / total if total else 0.0} for address, time in rows
    ]


def folded(limits: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return job-hours and share by limit, those of the throttles of arrays added up."""
    rows: dict[str, dict[str, float]] = {}
    for each in limits:
        name = ALL_ARRAYS if each["limit"].startswith(f"{THROTTLE}@array:") else each["limit"]
        row = rows.setdefault(name, {"job_hours": 0.0, "share": 0.0})
        for key in row:
            row[key] += each[key]
    return rows

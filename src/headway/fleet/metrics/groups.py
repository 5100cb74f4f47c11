"""Numbers of the requests of each graph, class and tenant: one row a group, from the same ledger as the summary.

Every request is in one group of each kind, so that counts over all groups sum to those of the whole run, exactly.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from headway.fleet.metrics.cost import Costs
from headway.fleet.metrics.ledger import BoolArray, Ledger
from headway.fleet.model.request import Groups
from headway.statistics.series import IntArray
from headway.units import SECOND

Row = dict[str, Any]
Positions = npt.NDArray[np.intp]


class GroupRows:
    """Makes the rows of a run; ``measured``: the requests after the warm-up, ``ideal``: by graph, its critical path."""

    def __init__(self, ledger: Ledger, measured: BoolArray, ideal: IntArray, cost: Costs) -> None:
        self._ledger, self._measured, self._ideal, self._cost = ledger, measured, ideal, cost

    def graphs(self) -> list[Row]:
        """Return a row for each graph."""
        names = [graph.name for graph in self._ledger.catalogue.graphs]
        parts = self._split(self._ledger.graph, names)
        return [self._short("graph", name, at) for name, at in zip(names, parts, strict=True)]

    def named(self, groups: Groups) -> dict[str, list[Row]]:
        """Return rows by class, where requests have classes, and by tenant, where more than one sent requests."""
        ledger, rows = self._ledger, {}
        if groups.classes:
            parts = self._split(ledger.class_id, groups.classes)
            rows["classes"] = [self._long("class", name, at) for name, at in zip(groups.classes, parts, strict=True)]
        seen = np.unique(ledger.tenant)
        if len(seen) > 1:
            tenants = groups.tenants or [str(number) for number in range(int(seen[-1]) + 1)]
            split = zip(tenants, self._split(ledger.tenant, tenants), strict=True)
            rows["tenants"] = [self._long("tenant", name, at) for name, at in split if len(at)]
        return rows

    def _split(self, ids: IntArray, names: Sequence[str]) -> list[Positions]:
        """Return by group the positions of its requests that arrived."""
        arrived = np.flatnonzero(self._ledger.arrived)
        order = arrived[np.argsort(ids[arrived], kind="stable")]
        bounds = np.searchsorted(ids[order], np.arange(len(names) + 1))
        return [order[bounds[index] : bounds[index + 1]] for index in range(len(names))]

    def _short(self, key: str, name: str, at: Positions) -> Row:
        """Return the numbers of some requests."""
        ledger, measured = self._ledger, at[self._measured[at]]
        dropped, answered = at[ledger.dropped[at]], measured[ledger.answered[measured]]
        latency = ledger.latency[answered]
        slow = latency / self._ideal[ledger.graph[answered]]
        due, in_time = self._due(measured)
        paid = float(self._cost.requests_usd[measured].sum())
        return {
            key: name,
            "requests": len(at),
            "measured": len(measured),
            "dropped": len(dropped),
            "dropped_warmup": int((~self._measured[dropped]).sum()),
            "slowdown_mean": float(slow.mean()) if len(slow) else None,
            "latency_p99_s": float(np.percentile(latency / SECOND, 99)) if len(latency) else None,
            "slo_hit_rate": in_time / due if due else None,
            "cost_per_request_usd": paid / len(answered) if len(answered) else None,
        }

    def _long(self, key: str, name: str, at: Positions) -> Row:
        """Return the numbers of a class or tenant: also counts that sum to the whole, latencies and total cost."""
        ledger, measured = self._ledger, at[self._measured[at]]
        latency = ledger.latency[measured[ledger.answered[measured]]] / SECOND
        due, in_time = self._due(measured)
        return self._short(key, name, at) | {
            "completed": int(ledger.answered[at].sum()),
            "due": due,
            "in_time": in_time,
            "latency_mean_s": float(latency.mean()) if len(latency) else None,
            "latency_p50_s": float(np.percentile(latency, 50)) if len(latency) else None,
            "latency_p95_s": float(np.percentile(latency, 95)) if len(latency) else None,
            "cost_usd": float(self._cost.requests_usd[at].sum()),
        }

    def _due(self, measured: Positions) -> tuple[int, int]:
        """Return how many requests had a deadline that counts, and how many of them were answered by it."""
        ledger = self._ledger
        deadline = ledger.deadline[measured]
        due = (deadline > 0) & ((ledger.ended_by[measured] > 0) | (deadline <= ledger.horizon))
        in_time = due & ledger.answered[measured] & (ledger.end[measured] <= deadline)
        return int(due.sum()), int(in_time.sum())

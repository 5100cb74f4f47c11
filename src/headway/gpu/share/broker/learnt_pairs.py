"""What the broker has learnt of pairs of programs: recalled when it starts, kept from time to time and at the end.

Of each pair (program above, program below with its limit on SMs) that is the boldness at which the dial kept to the
aim, how the program below went once the dial had settled (``gpu/control/sms_outcomes.py``), and by how much its kernels
slow the program above beyond waiting (``gpu/control/contention.py``).

A store may be slow. Until it has been read nothing is saved, for that would replace what it holds; pairs that have
begun meanwhile began at the floor, and what is stored of their boldness stays unless they reach more.
"""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from typing import Any

from headway.errors import HeadwayError
from headway.gpu.control.dial import Dial
from headway.gpu.control.sms_outcomes import ALL_PPM, Counted, Harvests, harvests, outcomes_of
from headway.gpu.share.block import slot_profiles
from headway.gpu.share.block.block import Slot
from headway.gpu.share.block.slot_contention import SlotContention
from headway.gpu.share.broker.background_store import BackgroundStore

_EVERY_NS = 1_000_000_000
_RECALL_S = 0.3
Pair = tuple[str, str]


class LearntPairs:
    """Follows the pairs on one GPU."""

    def __init__(self, dial: Dial, store: BackgroundStore, say: Callable[[str], None]) -> None:
        """Let the dial begin with what was learnt before."""
        self._dial, self._store = dial, store
        self.harvests = Harvests()
        self._limits: dict[str, int] = {}
        self._counted_ns = 0
        self._saved: dict[Pair, dict[str, Any]] = {}
        self._began: dict[Pair, int] = {}
        """Pairs that began at the floor, for their row had not been read: the boldness in it."""
        self._say, self._stored = say, dict[Pair, dict[str, Any]]()
        self.contention = SlotContention(dial, self._stored)
        self._read: Future[dict[Pair, dict[str, Any]]] | None = store.learnt()
        wait([self._read], timeout=_RECALL_S)
        self._recall(set())

    def _recall(self, there: set[str]) -> bool:
        """Return whether the store has been read; take in what was learnt before, once. ``there``: running programs."""
        if self._read is None:
            return True
        if not self._read.done():
            return False
        read, self._read = self._read, None
        try:
            self._stored.update(read.result())
        except (OSError, ValueError, HeadwayError) as problem:
            self._say(f"what was learnt of pairs cannot be read: {problem}")
        for pair, row in self._stored.items():
            self._saved[pair] = row
            if "boldness_ppm" in row:
                if pair in self._dial.learnt or there.issuperset(pair):
                    self._began[pair] = row["boldness_ppm"]
                self._dial.learnt.setdefault(pair, row["boldness_ppm"])
            if isinstance(aim := row.get("aim_ppm"), int) and aim > 0:
                self._dial.learnt_aims.setdefault(pair, aim)
        return True

    def turn(self, now_ns: int, clients: Mapping[int, Slot]) -> None:
        """Learn from what holds have told; read the counters of all clients, once a second."""
        if self._read is None or self._recall({slot_profiles.key(slot) for slot in clients.values()}):
            self.contention.turn(now_ns, clients)
        if now_ns - self._counted_ns < _EVERY_NS:
            return
        self._counted_ns = now_ns
        counted = []
        for index, slot in clients.items():
            ledger, program = slot.ledger, slot_profiles.key(slot)
            self._limits[program] = slot.sms_ppm or ALL_PPM
            launches = ledger.kernels + ledger.graphs + ledger.copies
            counted.append(
                Counted(index, slot.priority, slot.since_ns, program, launches, ledger.work_ns, ledger.waited_ns)
            )
        self.harvests.count(now_ns, int(time.time()), counted, self._dial)

    def keep(self) -> None:
        """Save what is new; nothing before the store has been read."""
        if self._read is not None:
            return
        rows: dict[Pair, dict[str, Any]] = {
            pair: {"boldness_ppm": boldness} for pair, boldness in self._dial.learnt.items()
        }
        for pair, aim in self._dial.learnt_aims.items():
            rows.setdefault(pair, {})["aim_ppm"] = aim
        for pair, boldness in self._began.items():
            if rows.get(pair, {}).get("boldness_ppm", boldness) < boldness:
                del rows[pair]
        for pair, outcome in self.harvests.outcomes.items():
            limit = self._limits.get(pair[1], ALL_PPM)
            rows.setdefault(pair, {}).update({"sms_ppm": limit, **outcome._asdict()})
        for pair, row in self.contention.rows().items():
            rows.setdefault(pair, {}).update(row)
        new = {pair: row for pair, row in rows.items() if row != _part(self._saved.get(pair, {}), row)}
        self._store.save_learnt(new)
        for pair, row in new.items():
            self._saved[pair] = {**self._saved.get(pair, {}), **row}

    def told(self, clients: Mapping[int, Slot]) -> dict[str, dict[str, int]]:
        """Return for each client below, by its index, the share of the GPU's time that it had with each limit."""
        rows = {pair: row for pair, row in self._saved.items() if pair not in self.harvests.outcomes}
        for pair, outcome in self.harvests.outcomes.items():
            rows[pair] = {"sms_ppm": self._limits.get(pair[1], ALL_PPM), **outcome._asdict()}
        highest = min(clients.values(), key=lambda slot: slot.priority, default=None)
        found: dict[str, dict[str, int]] = {}
        for index, slot in clients.items():
            if highest is not None and slot.priority > highest.priority:
                known = outcomes_of(rows, slot_profiles.text(slot.program), slot_profiles.key(highest))[1]
                found[str(index)] = {str(limit): ppm for limit, ppm in sorted(harvests(known).items())}
        return found


def _part(row: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in names if name in row}

"""Parse the values in Slurm's cells: time spans, sizes, trackable resources, generic resources, states.

Everything here takes one cell and returns a value, or None where the cell cannot be understood; who reads the file
knows the line and says so. Slurm counts in powers of two: its M is 2**20 bytes.
"""

import re
from dataclasses import dataclass, field
from enum import Enum

from headway.units import DAY, HOUR, MINUTE, SECOND

NOTHING = frozenset({"", "(null)", "null", "none", "n/a", "unknown", "none assigned", "invalid", "not_set"})
"""What stands in a cell, in lower case, where there is no value."""
_ENDLESS = frozenset({"unlimited", "infinite", "partition_limit"})
_MEBIBYTE = 2**20
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}
_SPAN = re.compile(r"(?:(\d{1,9})-)?(\d{1,12})(?::(\d{1,9}))?(?::(\d{1,9})(?:\.(\d{1,9}))?)?")
_SIZE = re.compile(r"(\d{1,15})(?:\.(\d{1,6}))?([KMGTP]?)B?", re.IGNORECASE)
_PLAIN = ("cpu", "mem", "node")
_MOST_DIGITS = 20
_GRES_PREFIX = re.compile(r"^(?:per_(?:node|job|task|socket)\s*:)?(?:gres\s*[:/])?", re.IGNORECASE)
_ODD_COUNT = re.compile(r"|[+-].*|[0-9]*[.,][0-9]+")
"""What stands where a count should, and is no name of a type: nothing, a sign, a fraction."""
_IN_BRACKETS = re.compile(r"\([^)]*\)")


def absent(text: str | None) -> bool:
    """Return whether a cell says that there is nothing to say."""
    return text is None or text.strip().lower() in NOTHING


def span(text: str) -> int | None:
    """Parse ``1-00:00:00``, ``12:30``, ``00:05:00.250`` or plain minutes into nanoseconds; 0 for no limit."""
    plain = text.strip()
    if plain.lower() in _ENDLESS or absent(plain):
        return 0
    match = _SPAN.fullmatch(plain)
    if match is None:
        return None
    days, *rest, fraction = match.groups()
    numbers = [int(part) for part in rest if part is not None]
    # With days the first number is hours, whatever follows; without, one number is minutes and two are minutes:seconds.
    units = (HOUR, MINUTE, SECOND) if days is not None or len(numbers) == 3 else (MINUTE, SECOND)
    whole = sum(number * unit for number, unit in zip(numbers, units, strict=False))
    return whole + int(days or 0) * DAY + (int(fraction.ljust(9, "0")) if fraction else 0)


def size(text: str, unit: int = _MEBIBYTE) -> int | None:
    """Parse ``64G``, ``62.50G`` or ``4096`` into bytes; a number without a letter counts in ``unit``."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return None
    whole, fraction, letter = match.groups()
    each = _UNITS[letter.upper()] if letter else unit
    return int(whole) * each + (round(int(fraction) * each / 10 ** len(fraction)) if fraction else 0)


def requested_memory(text: str, cpus: int, nodes: int) -> int | None:
    """Parse a ``ReqMem`` into bytes for the whole job: ``4Gc`` is a CPU's, ``64Gn`` a node's, ``64G`` the job's."""
    plain = text.strip()
    times = {"c": cpus, "n": nodes}.get(plain[-1:], 1)
    amount = size(plain[:-1] if plain[-1:] in ("c", "n", "?") else plain)
    return None if amount is None else amount * max(1, times)


@dataclass(frozen=True, slots=True)
class Resources:
    """What one TRES or GRES text says; None where it says nothing."""

    gpus: int | None = None
    gpu_types: tuple[str, ...] = ()
    """Types it names, where they account for all the GPUs."""
    cpus: int | None = None
    memory_bytes: int | None = None
    nodes: int | None = None
    parts: bool = False
    """Whether it asks for shards or MPS, parts of GPUs."""


@dataclass(slots=True)
class _Count:
    total: int | None = None
    typed: dict[str, int] = field(default_factory=dict)

    def resources(self) -> Resources:
        kinds = {kind: count for kind, count in self.typed.items() if count}
        total = self.total if self.total is not None else (sum(kinds.values()) if self.typed else None)
        return Resources(total, tuple(sorted(kinds)) if sum(kinds.values()) == total else ())


def tres(text: str) -> Resources | None:
    """Parse ``billing=8,cpu=8,gres/gpu:a100=4,gres/gpu=4,mem=64G,node=2``; None where a needed part is unreadable."""
    if absent(text):
        return Resources()
    plain: dict[str, int] = {}
    gpus = _Count()
    parts = False
    for name, _, amount in (part.partition("=") for part in text.split(",")):
        key = name.strip().lower()
        if key not in _PLAIN and not key.startswith("gres"):
            continue
        number = size(amount) if key == "mem" else _whole(amount)
        kind = key if key in _PLAIN else _gpu_kind(name.strip())
        if kind is None:
            parts = parts or (key.startswith(("gres/shard", "gres/mps")) and number != 0)
        elif number is None:
            return None
        elif key in _PLAIN:
            plain[key] = number
        elif kind:
            gpus.typed[kind] = number
        else:
            gpus.total = number
    resources = gpus.resources()
    return Resources(resources.gpus, resources.gpu_types, plain.get("cpu"), plain.get("mem"), plain.get("node"), parts)


def _whole(text: str) -> int | None:
    return int(text) if text.strip().isdecimal() and len(text) < _MOST_DIGITS else None


def _gpu_kind(name: str) -> str | None:
    """Return the type in ``gres/gpu:a100``, nothing for ``gres/gpu``; None for what is no GPU."""
    rest = name[5:] if name[:5].lower() in ("gres/", "gres:") else ""
    if rest[:3].lower() != "gpu" or rest[3:4] not in ("", ":", "/"):
        return None
    return rest[4:]


def gres(text: str) -> Resources | None:
    """Parse the GPUs of generic resources: ``gpu:a100:4(S:0-1),gpu:2``, ``gres:gpu:2``, ``gres/gpu:a100:1``."""
    if absent(text):
        return Resources()
    counted = _Count()
    for part in _IN_BRACKETS.sub("", text).split(","):
        kind, *words = re.split(r"[:=]", _GRES_PREFIX.sub("", part.strip(), count=1))
        if kind.lower() != "gpu":
            continue
        count = 1
        if words and (words[-1].isdecimal() or _ODD_COUNT.fullmatch(words[-1])):
            number = _whole(words.pop())
            if number is None:
                return None
            count = number
        name = ":".join(words)
        if name:
            counted.typed[name] = counted.typed.get(name, 0) + count
        else:
            counted.total = (counted.total or 0) + count
    if counted.total is not None:  # beside an untyped amount the typed ones are further devices
        counted.total += sum(counted.typed.values())
    return counted.resources()


class Fate(Enum):
    """What became of a job, or of one attempt of it."""

    FINISHED = "finished"
    FAILED = "failed"
    BROKEN = "broken"
    """Ended by the cluster, not by itself: a node failed or did not boot."""
    CANCELLED = "cancelled"
    EVICTED = "evicted"
    """Preempted or sent back to the queue."""
    RUNNING = "running"
    WAITING = "waiting"
    ELSEWHERE = "elsewhere"
    """A twin that another cluster of a federation ran."""


FATES: dict[str, Fate] = {
    "COMPLETED": Fate.FINISHED,
    "FAILED": Fate.FAILED,
    "OUT_OF_MEMORY": Fate.FAILED,
    "TIMEOUT": Fate.FAILED,
    "DEADLINE": Fate.FAILED,
    "LAUNCH_FAILED": Fate.BROKEN,
    "BOOT_FAIL": Fate.BROKEN,
    "NODE_FAIL": Fate.BROKEN,
    "RECONFIG_FAIL": Fate.BROKEN,
    "CANCELLED": Fate.CANCELLED,
    "PREEMPTED": Fate.EVICTED,
    "REQUEUED": Fate.EVICTED,
    "RUNNING": Fate.RUNNING,
    "COMPLETING": Fate.RUNNING,
    "CONFIGURING": Fate.RUNNING,
    "POWER_UP_NODE": Fate.RUNNING,
    "RESIZING": Fate.RUNNING,
    "SIGNALING": Fate.RUNNING,
    "STAGE_OUT": Fate.RUNNING,
    "STOPPED": Fate.RUNNING,
    "SUSPENDED": Fate.RUNNING,
    "PENDING": Fate.WAITING,
    "REQUEUE_FED": Fate.WAITING,
    "REQUEUE_HOLD": Fate.WAITING,
    "RESV_DEL_HOLD": Fate.WAITING,
    "SPECIAL_EXIT": Fate.WAITING,
    "REVOKED": Fate.ELSEWHERE,
}
"""Every state of a job, as Slurm writes it in full."""

_SHORT = {
    "BF": "BOOT_FAIL",
    "CA": "CANCELLED",
    "CD": "COMPLETED",
    "CF": "CONFIGURING",
    "CG": "COMPLETING",
    "DL": "DEADLINE",
    "F": "FAILED",
    "NF": "NODE_FAIL",
    "OOM": "OUT_OF_MEMORY",
    "PD": "PENDING",
    "PR": "PREEMPTED",
    "R": "RUNNING",
    "RD": "RESV_DEL_HOLD",
    "RF": "REQUEUE_FED",
    "RH": "REQUEUE_HOLD",
    "RQ": "REQUEUED",
    "RS": "RESIZING",
    "RV": "REVOKED",
    "S": "SUSPENDED",
    "SE": "SPECIAL_EXIT",
    "SI": "SIGNALING",
    "SO": "STAGE_OUT",
    "ST": "STOPPED",
    "TO": "TIMEOUT",
}


def fate(state: str) -> Fate | None:
    """Return the fate behind ``COMPLETED``, ``CA`` or ``CANCELLED by 1003``; None for a word that is no state."""
    word = re.split(r"[ ,+]", state.strip().upper(), maxsplit=1)[0]
    return FATES.get(_SHORT.get(word, word))

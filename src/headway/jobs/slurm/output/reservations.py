"""Parse reservations as ``scontrol show reservation`` prints them, and say which of them overlap."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import combinations, product

from headway.errors import ExperimentError, InputError
from headway.jobs.slurm.output.cells import absent
from headway.jobs.slurm.output.lists import hosts
from headway.jobs.slurm.output.records import Reservation
from headway.units import SECOND

_MEANT = frozenset({"OVERLAP", "MAINT"})
"""Flags with which Slurm lets reservations share nodes."""


def instant(text: str) -> int | None:
    """Parse a time, local or in seconds since 1970, into nanoseconds; None where it is no time."""
    if text.isdecimal() and 9 <= len(text) <= 11:
        return int(text) * SECOND
    try:
        told = datetime.fromisoformat(text)
    except ValueError:
        return None
    return round((told if told.tzinfo else told.replace(tzinfo=UTC)).timestamp()) * SECOND


def dated(at: int) -> str:
    """Return a time as Slurm writes it."""
    return datetime.fromtimestamp(at // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def reservation(record: dict[str, str], place: str) -> Reservation:
    """Return a reservation from its keys."""
    name = record["ReservationName"]
    times = {key: instant(record.get(key, "")) for key in ("StartTime", "EndTime")}
    for key, at in times.items():
        if at is None:
            raise ExperimentError(f"{place}: reservation {name}: {key} {record.get(key, '')!r} is not a time")
    start, end = (at for at in times.values() if at is not None)
    if end <= start:
        raise ExperimentError(f"{place}: reservation {name} ends at {dated(end)}, not after it starts")
    try:
        nodes = hosts(record.get("Nodes", ""))
    except InputError as problem:
        raise ExperimentError(f"{place}: reservation {name}: {problem}") from None
    flags = frozenset(part for part in record.get("Flags", "").upper().split(",") if not absent(part))
    count = record.get("NodeCnt", "")
    return Reservation(
        name,
        start,
        end,
        nodes,
        _names(record.get("Users", "")),
        _names(record.get("Accounts", "")),
        "" if absent(record.get("PartitionName")) else record["PartitionName"],
        flags,
        count.isdecimal() and int(count) > 0,
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if not absent(part))


def overlaps(reservations: Sequence[Reservation], where: str, before: Sequence[Reservation] = ()) -> Iterator[str]:
    """Yield a line for each two reservations that hold one node at one time, or for each with one of ``before``."""
    new = [each for each in reservations if each not in before]
    for one, other in product(before, new) if before else combinations(reservations, 2):
        shared = set(one.nodes) & set(other.nodes)
        start, end = max(one.start, other.start), min(one.end, other.end)
        if shared and start < end:
            flagged = "" if _MEANT & (one.flags | other.flags) else ", and neither has the flag OVERLAP or MAINT"
            nodes = f"node {min(shared)}" if len(shared) == 1 else f"{len(shared):,} nodes ({min(shared)}, …)"
            yield (
                f"{where}: reservations {one.name} and {other.name} overlap on {nodes} from {dated(start)} to "
                f"{dated(end)}{flagged}"
            )

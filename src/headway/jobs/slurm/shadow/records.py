"""Gather what was seen of the jobs of a Slurm, look by look, into one table as ``sacct`` prints it.

A job is known by its number and its submission. What says that it has ended stands; of two that do not, the later. A
job that a whole listing of the queue no longer has, and of whose end nothing was seen, ended when it was first missed.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path

import msgspec

from headway.errors import TraceError
from headway.formats.dates import Calendar
from headway.jobs.slurm.accounting.listing import NAMES, listing
from headway.jobs.slurm.accounting.rows import tasks
from headway.jobs.slurm.output.cells import NOTHING, Fate, fate as fate_of
from headway.units import DAY, SECOND

Row = dict[str, str]
Key = tuple[str, str]
"""Number and submission."""
ASSUMED = "ended unseen"
"""In the column Comment of a job whose end was not seen."""
_OPEN = (Fate.RUNNING, Fate.WAITING)
_LONG_AWAY = 365 * DAY
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@lru_cache(maxsize=256)
def fate(state: str) -> Fate | None:
    """Return the fate behind a state; there are few, and thousands of jobs have them."""
    return fate_of(state)


class Look(msgspec.Struct, frozen=True):
    """What was seen of the jobs of a cluster at one time."""

    at: int
    """Nanoseconds since 1970, on the clock that the rows are written by."""
    source: str
    digest: str
    rows: list[Row]
    whole: bool = False
    """Whether it lists every job that waits or runs."""
    instants: bool = False
    """Whether times are seconds since 1970; else they are those of a clock on a wall."""
    away: dict[str, str] | None = None
    """Nodes that take no jobs, and their states; None where that was not looked at."""

    @property
    def date(self) -> str:
        """Return when it was, as a date."""
        return Calendar(self.at, self.instants).written()


def read_dump(path: Path) -> Look:
    """Return what a file says that Slurm printed: by sacct, squeue or scontrol."""
    found = listing(path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    rows = [plain(row) for row in expanded(found.rows)]
    return Look(found.at, path.name, digest, rows, found.whole, found.instants)


def expanded(rows: Iterable[Row]) -> list[Row]:
    """Return rows in which each task of an array has one of its own."""
    found: list[Row] = []
    for row in rows:
        listed = tasks(row["JobID"]) if row["JobID"].endswith("]") else ()
        found += [{**row, "JobID": name} for name in listed] if listed else [row]
    return found


def plain(row: Row) -> Row:
    """Return a row without what changes by itself: forecasts, and how long a job has run, which its start tells."""
    became = fate(row.get("State", ""))
    if became is Fate.WAITING:
        return {name: value for name, value in row.items() if name not in ("Start", "End", "Elapsed", "ElapsedRaw")}
    if became is Fate.RUNNING:
        told = ("End", "Elapsed", "ElapsedRaw") if parsed(row.get("Start", "")) is not None else ("End",)
        return {name: value for name, value in row.items() if name not in told}
    return row


@dataclass(slots=True)
class Records:
    """All that was seen so far."""

    rows: dict[Key, Row] = field(default_factory=dict)
    at: int = -1
    """When it was last looked."""
    first: str = ""
    """The date of the first look."""
    looks: int = 0
    instants: bool = False
    reasons: dict[str, dict[str, int]] = field(default_factory=dict)
    """By job: how long it was seen to wait for what, in nanoseconds."""
    digests: set[str] = field(default_factory=set)
    open: dict[Key, int] = field(default_factory=dict)
    """Jobs that wait or run, and when they were last seen so."""
    away: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Nodes that take no jobs: since when, and in which state."""
    outages: list[tuple[str, int, int, str]] = field(default_factory=list)
    """Nodes that took no jobs for a while: from when to when, and in which state."""

    def fresh(self, look: Look) -> Look:
        """Return a look with only the rows that say something new; refuse one that cannot follow the last."""
        if self.looks and look.instants != self.instants:
            kinds = ("the clock on the wall", "seconds since 1970")
            raise TraceError(
                f"dump {look.source}: has times by {kinds[look.instants]}, those before by {kinds[self.instants]}: "
                "take all dumps alike (SLURM_TIME_FORMAT=%s, or none)"
            )
        if self.looks and look.at < self.at:
            before, now = Calendar(self.at, self.instants).written(), look.date
            raise TraceError(
                f"dump {look.source}: is of {now}, before the last one, of {before}: give dumps in the order in which "
                "they were taken"
            )
        if look.whole:
            rows = [row for row in look.rows if not self._is_known(row)] + self._missed(look)
        else:
            rows = [row for row in look.rows if is_open(row) or not self._is_known(row)]
        return msgspec.structs.replace(look, rows=rows)

    def _is_known(self, row: Row) -> bool:
        old = self.rows.get(_key(row))
        return old is not None and {**old, **row, "Priority": ""} == {**old, "Priority": ""}

    def _missed(self, look: Look) -> list[Row]:
        """Return the ends of jobs that a whole listing no longer has.

        One that was requeued is listed with its new submission: that is when it was stopped.
        """
        seen = {_key(row) for row in look.rows}
        again = {key[0]: parsed(key[1]) for key in sorted(seen)}
        gone = []
        for key in self.open:
            if key not in seen:
                row = self.rows[key]
                stopped = again.get(key[0])
                state = "PREEMPTED" if stopped is not None else "CANCELLED" if _waits(row) else "COMPLETED"
                told = {"State": state} if stopped is not None else {"State": state, "Comment": ASSUMED}
                gone.append({**row, **_end(row, stopped or look.at, look.instants), **told})
        return gone

    def add(self, look: Look) -> None:
        """Take what a look says, as ``fresh`` returned it."""
        gap = look.at - self.at if self.looks else 0
        if not self.looks:
            self.first, self.instants = look.date, look.instants
        for row in look.rows:
            key, old = _key(row), self.rows.get(_key(row))
            if old is None or not is_settled(old) or not is_open(row):
                first = {"Priority": old["Priority"]} if old is not None and "Priority" in old else {}
                told = {name: value for name, value in (old or {}).items() if name != "Comment"}
                self.rows[key] = {**told, **row, **first}
                self.open.pop(key, None)
                if is_open(row):
                    self.open[key] = look.at
        if look.whole:
            self.open = dict.fromkeys(self.open, look.at)
        self._count_reasons(gap)
        if look.away is not None:
            self._note_away(look.at, look.away)
        self.at, self.looks = look.at, self.looks + 1
        self.digests.add(look.digest)

    def _count_reasons(self, gap: int) -> None:
        for key in self.open:
            row = self.rows[key]
            if (reason := row.get("Reason", "")) and _waits(row):
                own = self.reasons.setdefault(row["JobID"], {})
                own[reason] = own.get(reason, 0) + max(gap, 1)

    def _note_away(self, at: int, away: Mapping[str, str]) -> None:
        for node, (since, state) in list(self.away.items()):
            if away.get(node) != state:
                self.outages.append((node, since, at, state))
                del self.away[node]
        for node, state in away.items():
            self.away.setdefault(node, (at, state))

    def events(self) -> str:
        """Return the nodes that took no jobs as ``sacctmgr show events -P`` prints them; empty where all did.

        One that still takes none is given a year: the run ends before that.
        """
        still = [(node, since, since + _LONG_AWAY, state) for node, (since, state) in self.away.items()]
        lines = [
            f"{node}|{written(start, self.instants)}|{written(end, self.instants)}|{state}||"
            for node, start, end, state in (*self.outages, *still)
        ]
        return "\n".join(["NodeName|TimeStart|TimeEnd|State|Reason|User", *lines, ""]) if lines else ""

    def causes(self) -> Mapping[str, str]:
        """Return what each job was seen to wait for longest, by its name."""
        return {job: max(own, key=own.__getitem__) for job, own in self.reasons.items()}

    @property
    def unseen(self) -> int:
        """Return of how many jobs the end was not seen."""
        return sum(1 for row in self.rows.values() if row.get("Comment") == ASSUMED)

    def table(self) -> str:
        """Return all jobs as ``sacct --parsable2`` prints them."""
        present = {name for row in self.rows.values() for name in row}
        present |= {"Start", "End", "ElapsedRaw"}
        names = [name for name in NAMES if name in present]
        lines = ["|".join(names)]
        for key, row in self.rows.items():
            told = {**row, **self._elapsed(key, row)} if key in self.open else row
            line = "|".join([told.get(name, "") for name in names])
            if line.count("|") >= len(names) or "\n" in line:  # something in a cell would end it
                line = "|".join(_cell(told.get(name, "")) for name in names)
            lines.append(line)
        return "\n".join(lines) + "\n"

    def _elapsed(self, key: Key, row: Row) -> Row:
        start = None if _waits(row) else parsed(row.get("Start", ""))
        return {} if start is None else {"ElapsedRaw": str(max(0, self.open[key] - start) // SECOND)}


def _cell(text: str) -> str:
    return text.replace("|", "/").replace("\n", " ") if "|" in text or "\n" in text else text


def _key(row: Row) -> Key:
    return row["JobID"], row.get("Submit", "")


def _waits(row: Row) -> bool:
    return fate(row.get("State", "")) is Fate.WAITING


def is_open(row: Row) -> bool:
    """Return whether a row is of a job that waits or runs."""
    return fate(row.get("State", "")) in _OPEN


def is_settled(row: Row) -> bool:
    """Return whether a row says how a job ended, and that was seen."""
    return not is_open(row) and row.get("Comment") != ASSUMED


def _end(row: Row, at: int, instants: bool) -> Row:
    """Return the cells of a job that ended, as far as anybody knows, at a time."""
    start = None if _waits(row) else parsed(row.get("Start", ""))
    ran = max(0, at - start) // SECOND if start is not None else 0
    begun = {} if start is not None else {"Start": ""}
    return {**begun, "End": written(at, instants), "ElapsedRaw": str(ran), "Elapsed": ""}


def written(time: int, instants: bool) -> str:
    """Return a time as Slurm prints it."""
    if instants:
        return str(time // SECOND)
    return (_EPOCH + timedelta(seconds=time // SECOND)).strftime("%Y-%m-%dT%H:%M:%S")


def parsed(text: str) -> int | None:
    """Return a time that Slurm printed; None where it is none."""
    plain = text.strip()
    if plain.lower() in NOTHING:
        return None
    if plain.isdecimal():
        return int(plain) * SECOND
    try:
        when = datetime.fromisoformat(plain)
    except ValueError:
        return None
    since = (when if when.tzinfo is not None else when.replace(tzinfo=UTC)) - _EPOCH
    return round(since.total_seconds()) * SECOND


def replayed(looks: Sequence[Look]) -> Records:
    """Return the records of looks that were kept."""
    records = Records()
    for look in looks:
        records.add(look)
    return records

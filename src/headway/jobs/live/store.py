"""Store of a queue, in SQLite: jobs that were submitted, the tape so far, and leases. What stands here has happened.

The queue writes the rows of an instant before anything of it is carried out. A row on the tape is never changed. All
that belongs together is one transaction, on the disk when ``commit`` returns; where that fails, nothing of it is
written and everything is kept for the next try. Times are nanoseconds since the run began.
"""

import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from headway.core.tape import COLUMNS, Row, Tape, TapeWriter
from headway.errors import QueueError
from headway.gpu.share.shim.launch import USUAL
from headway.jobs.live.engine import Ended, Order
from headway.jobs.model.job import Job

VERSION = 1
_SCHEMA = """
CREATE TABLE runs (number INTEGER PRIMARY KEY, settings BLOB NOT NULL, began_s REAL NOT NULL, boot TEXT NOT NULL,
  monotonic_ns INTEGER NOT NULL);
CREATE TABLE jobs (run INTEGER, id INTEGER, job BLOB NOT NULL, program BLOB NOT NULL, submitted_s REAL NOT NULL,
  PRIMARY KEY (run, id)) WITHOUT ROWID;
CREATE TABLE tape (run INTEGER, row INTEGER, time INTEGER, kind INTEGER, subject INTEGER, lease INTEGER, place INTEGER,
  detail INTEGER, value INTEGER, note TEXT, PRIMARY KEY (run, row)) WITHOUT ROWID;
CREATE TABLE leases (run INTEGER, lease INTEGER, job INTEGER, placement BLOB NOT NULL, reason TEXT NOT NULL,
  gone INTEGER NOT NULL DEFAULT 0, status INTEGER, told TEXT NOT NULL DEFAULT '', PRIMARY KEY (run, lease)
  ) WITHOUT ROWID;
"""


class Program(Struct, frozen=True, omit_defaults=True):
    """A user's program, as it was submitted."""

    command: tuple[str, ...]
    folder: str
    """Where it runs."""
    environment: dict[str, str]
    grace_s: float = 30.0
    """Between the request to end and the end by force."""
    slurm: int = 0
    """Slurm's number of its job, when it was taken; 0: it is none of Slurm's."""
    share_priority: int = USUAL
    """On a GPU that it shares: 0 goes first, 9 last."""
    external: bool = False
    """Whether its user submitted it to Slurm: only Slurm has its script."""


class Began(Struct, frozen=True):
    """When a run began, by clocks that are set and by one that is not."""

    wall_s: float
    boot: str
    """The boot in which ``monotonic_ns`` was read."""
    monotonic_ns: int


def began_now() -> Began:
    """Return this moment as the beginning of a run."""
    return Began(time.time(), boot(), time.monotonic_ns())


def boot() -> str:
    """Return what this start of the machine is called."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


class Lease(Struct, frozen=True):
    """A lease that was given."""

    order: Order
    reason: str
    """Why it was given."""
    gone: bool
    status: int | None
    told: str
    """How it ended."""


class Journal(TapeWriter):
    """The tape of a queue, as far as it is not written down yet."""

    @property
    def due(self) -> bool:
        """Return False: the queue writes it down by itself."""
        return False

    def flush(self) -> None:
        """Do nothing."""

    def rows(self) -> list[tuple[Row, str | None]]:
        """Return what is not written down, each row with its note."""
        flat, width = self._pending, len(COLUMNS)
        rows = [tuple(flat[at : at + width]) for at in range(0, len(flat), width)]
        return [(row, self._notes.get(number)) for number, row in enumerate(rows)]  # type: ignore[misc]

    def written(self) -> None:
        """Forget what is written down by now."""
        self._pending.clear()
        self._notes.clear()


class Store:
    """The store of one queue, open for writing; nobody else writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._base = sqlite3.connect(path, isolation_level=None)
            self._base.execute("PRAGMA journal_mode=WAL")
            self._base.execute("PRAGMA synchronous=FULL")
            found = int(self._base.execute("PRAGMA user_version").fetchone()[0])
            if found == 0:
                with self._writing():
                    for statement in _SCHEMA.split(";\n"):
                        self._base.execute(statement)
                    self._base.execute(f"PRAGMA user_version={VERSION}")
        except sqlite3.Error as problem:
            raise QueueError(f"{path}: the store cannot be opened: {problem}") from None
        _check_version(path, found or VERSION)
        self._file = path.stat().st_ino
        self.run, self._rows, self._jobs = 0, 0, 0
        self.journal = Journal()
        self._ordered: list[tuple[Order, str]] = []
        self._gone: list[Ended] = []

    def close(self) -> None:
        """Close the file; what is not written down is lost."""
        self._base.close()

    @property
    def gone(self) -> bool:
        """Return whether the file was deleted, or is another one by now: what is written then nobody will read."""
        try:
            return self.path.stat().st_ino != self._file
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:  # a file system that is away may come back
            return False

    @contextmanager
    def _writing(self) -> Iterator[None]:
        self._base.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._base.execute("COMMIT")
        except BaseException:
            if self._base.in_transaction:
                self._base.execute("ROLLBACK")
            raise

    def begin(self, settings: bytes) -> None:
        """Begin a run."""
        began = began_now()
        last = self._base.execute("SELECT max(number) FROM runs").fetchone()[0]
        with self._refusing(), self._writing():
            values = ((last or 0) + 1, settings, began.wall_s, began.boot, began.monotonic_ns)
            self._base.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?)", values)
        self.run, self._rows, self._jobs = (last or 0) + 1, 0, 0

    def begin_now(self) -> None:
        """Let the run begin now, not when its queue was started: it has no jobs yet."""
        began = began_now()
        with self._refusing(), self._writing():
            values = (began.wall_s, began.boot, began.monotonic_ns, self.run)
            self._base.execute("UPDATE runs SET began_s=?, boot=?, monotonic_ns=? WHERE number=?", values)

    def take_up(self, past: "Past") -> None:
        """Go on with a run."""
        self.run, self._rows, self._jobs = past.run, len(past.tape), len(past.jobs)

    def submit(self, job: Job, program: Program) -> None:
        """Write a job down, before anybody is told of it."""
        values = (self.run, job.id, msgspec.json.encode(job), msgspec.json.encode(program), time.time())
        with self._refusing(), self._writing():
            self._base.execute("INSERT INTO jobs VALUES (?, ?, ?, ?, ?)", values)
        self._jobs += 1

    def note(self, ordered: Iterable[tuple[Order, str]], gone: Iterable[Ended]) -> None:
        """Have starts, with their reasons, and ends of leases written down with the next rows."""
        self._ordered += ordered
        self._gone += gone

    @property
    def pending(self) -> bool:
        """Return whether something is not written down."""
        return bool(self.journal.pending or self._ordered or self._gone)

    def commit(self) -> None:
        """Write down all that is pending; raises QueueError, and keeps it, where the disk does not take it."""
        if not self.pending:
            return
        rows = [(self.run, self._rows + at, *row, note) for at, (row, note) in enumerate(self.journal.rows())]
        orders = [(self.run, each.lease, each.job, msgspec.json.encode(each), reason) for each, reason in self._ordered]
        gone = [(each.status, each.told(), self.run, each.lease) for each in self._gone]
        with self._refusing(), self._writing():
            base = self._base
            base.executemany("INSERT INTO tape VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
            base.executemany("INSERT INTO leases (run, lease, job, placement, reason) VALUES (?, ?, ?, ?, ?)", orders)
            base.executemany("UPDATE leases SET gone=1, status=?, told=? WHERE run=? AND lease=?", gone)
        self._rows += len(rows)
        self.journal.written()
        self._ordered, self._gone = [], []

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as problem:
            raise QueueError(f"{self.path} cannot be written ({problem}): nothing is decided until it can") from None


class Past(Struct, frozen=True):
    """All that a store says of a run."""

    run: int
    settings: bytes
    began: Began
    jobs: tuple[Job, ...]
    programs: tuple[Program, ...]
    submitted_s: tuple[float, ...]
    """When each job was submitted, in seconds since 1970."""
    tape: Tape
    leases: tuple[Lease, ...]


def read(path: Path, run: int | None = None) -> Past | None:
    """Return the last run of a store, or one by its number, from outside its queue; None where there is none."""
    if not path.is_file():
        return None
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as base:
            _check_version(path, int(base.execute("PRAGMA user_version").fetchone()[0]))
            base.execute("BEGIN")  # all of it as of one moment
            return _past(base, run)
    except (sqlite3.Error, msgspec.MsgspecError) as problem:
        raise QueueError(f"{path}: the store cannot be read: {problem}") from None


def jobs_by_run(path: Path) -> dict[int, int]:
    """Return how many jobs each run of a store has, of those with any."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as base:
            return dict(base.execute("SELECT run, count(*) FROM jobs GROUP BY run ORDER BY run").fetchall())
    except sqlite3.Error as problem:
        raise QueueError(f"{path}: the store cannot be read: {problem}") from None


def _check_version(path: Path, found: int) -> None:
    if found != VERSION:
        raise QueueError(f"{path} is of version {found}, this headway reads {VERSION}: take another --folder")


def _past(base: sqlite3.Connection, number: int | None) -> Past | None:
    wanted = "number = ?" if number is not None else "number = (SELECT max(number) FROM runs)"
    given: tuple[Any, ...] = (number,) if number is not None else ()
    found = base.execute(f"SELECT * FROM runs WHERE {wanted}", given).fetchone()
    if found is None:
        return None
    run, settings, *began = found
    jobs = base.execute("SELECT job, program, submitted_s FROM jobs WHERE run=? ORDER BY id", (run,)).fetchall()
    leases = base.execute(
        "SELECT placement, reason, gone, status, told FROM leases WHERE run=? ORDER BY lease", (run,)
    ).fetchall()
    return Past(
        run,
        settings,
        Began(*began),
        tuple(msgspec.json.decode(job, type=Job) for job, _, _ in jobs),
        tuple(msgspec.json.decode(program, type=Program) for _, program, _ in jobs),
        tuple(submitted for _, _, submitted in jobs),
        _tape(base, run),
        tuple(Lease(msgspec.json.decode(order, type=Order), *rest) for order, *rest in leases),
    )


def _tape(base: sqlite3.Connection, run: int) -> Tape:
    names = ", ".join(COLUMNS)
    rows = base.execute(f"SELECT {names}, note FROM tape WHERE run=? ORDER BY row", (run,)).fetchall()
    numbers = np.array([row[:-1] for row in rows], dtype=np.int64).reshape(-1, len(COLUMNS))
    return Tape(numbers, {at: row[-1] for at, row in enumerate(rows) if row[-1] is not None})

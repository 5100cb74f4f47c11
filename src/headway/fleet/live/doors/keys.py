"""Keep answers by their idempotency key, for ten minutes: a retry gets the answer of the first request.

They lie in an SQLite file of the server's folder, so that they outlive the server. One thread reads and writes it: the
loop that schedules never waits for a disk. A key has one answer, the first that was kept, whoever computed another.
Memory holds no keys, only how many there are by their hash: it does not grow with the answers that are kept.
"""

import asyncio
import os
import sqlite3
import time
from array import array
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import msgspec

from headway.errors import ServeError
from headway.fleet.live.doors.front import Reply

KEPT_S = 600.0
MOST_KEYS = 100_000
MOST_BYTES = 1 << 30
_LEAVES = 0.9
"""The oldest go until so much of a limit is left: not at every further key."""
_SWEEP_S = 15.0
_SLOTS = 1 << 19
"""Places for hashes of keys; where a new key shares one with a kept key, it is looked up for nothing."""
_TABLE = """CREATE TABLE IF NOT EXISTS answers (
    tenant TEXT NOT NULL, key TEXT NOT NULL, kept_s REAL NOT NULL, digest BLOB NOT NULL, reply BLOB NOT NULL,
    PRIMARY KEY (tenant, key)) WITHOUT ROWID"""
_INDEX = "CREATE INDEX IF NOT EXISTS answers_by_age ON answers (kept_s)"
ResultT = TypeVar("ResultT")
_decode = msgspec.msgpack.Decoder(Reply).decode


class StoredKeys:
    """Answers by key in a file."""

    def __init__(
        self,
        path: Path,
        *,
        kept_s: float = KEPT_S,
        most_keys: int = MOST_KEYS,
        most_bytes: int = MOST_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._path, self._kept_s, self._clock = path, kept_s, clock
        self._most_keys, self._most_bytes = most_keys, most_bytes
        self._swept_s = 0.0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="keys")
        try:
            self._base = self._thread.submit(self._open).result()
        except (OSError, sqlite3.Error) as problem:
            self._thread.shutdown()
            raise ServeError(f"{path}: cannot be used for answers by key ({problem}): remove it") from None

    def _open(self) -> sqlite3.Connection:
        os.close(os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        base = sqlite3.connect(self._path, isolation_level=None)
        base.execute("PRAGMA journal_mode=WAL")
        base.execute("PRAGMA synchronous=NORMAL")  # outlives this process; a power failure may take the last answers
        base.execute(_TABLE)
        base.execute(_INDEX)
        self._hashes = array("I", bytes(4 * _SLOTS))
        """How many answers are kept by hash of their keys: most keys are new, and need not wait for the thread."""
        self._count = self._bytes = 0
        for tenant, key, size in base.execute("SELECT tenant, key, length(reply) FROM answers"):
            self._counted(tenant, key, size, 1)
        return base

    def _counted(self, tenant: str, key: str, size: int, more: int) -> None:
        """Count an answer that came (1) or went (-1)."""
        self._hashes[hash((tenant, key)) % _SLOTS] += more
        self._count += more
        self._bytes += more * size

    def _may_be_kept(self, tenant: str, key: str) -> bool:
        return self._hashes[hash((tenant, key)) % _SLOTS] > 0

    async def find(self, tenant: str, key: str) -> tuple[bytes, Reply] | None:
        """Return the digest of the request and its answer; None where none is kept."""
        if not self._may_be_kept(tenant, key):
            return None
        return await self._run(self._find, tenant, key)

    async def keep(self, tenant: str, key: str, digest: bytes, reply: Reply) -> Reply:
        """Keep an answer; return the one that is kept, which may be an earlier one."""
        return await self._run(self._keep, tenant, key, digest, reply)

    async def _run(self, function: Callable[..., ResultT], *arguments: object) -> ResultT:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    def close(self) -> None:
        """Close the file; what is kept stays in it."""
        self._thread.submit(self._base.close).result()
        self._thread.shutdown()

    # --- in the thread ----------------------------------------------------------------------------------------------

    def _find(self, tenant: str, key: str) -> tuple[bytes, Reply] | None:
        row = self._base.execute(
            "SELECT digest, reply FROM answers WHERE tenant = ? AND key = ? AND kept_s > ?",
            (tenant, key, self._clock() - self._kept_s),
        ).fetchone()
        return None if row is None else (row[0], _decode(row[1]))

    def _keep(self, tenant: str, key: str, digest: bytes, reply: Reply) -> Reply:
        now = self._clock()
        self._sweep(now)
        try:
            data = msgspec.msgpack.encode(reply)
        except (TypeError, ValueError, OverflowError):  # a number beyond 64 bits; such an answer is not kept
            return reply
        if self._may_be_kept(tenant, key):
            if (found := self._find(tenant, key)) is not None:
                return found[1]
            self._remove("tenant = ? AND key = ?", (tenant, key))  # one that has expired
        self._base.execute("INSERT INTO answers VALUES (?, ?, ?, ?, ?)", (tenant, key, now, digest, data))
        self._counted(tenant, key, len(data), 1)
        return reply

    def _sweep(self, now: float) -> None:
        """Remove what has expired, and the oldest where there are too many."""
        if now - self._swept_s > _SWEEP_S:
            self._swept_s = now
            self._remove("kept_s <= ?", (now - self._kept_s,))
        while (count := self._count) and (count >= self._most_keys or self._bytes > self._most_bytes):
            most = max(1, int(count * (1 - _LEAVES)))
            last = self._base.execute("SELECT kept_s FROM answers ORDER BY kept_s LIMIT 1 OFFSET ?", (most - 1,))
            self._remove("kept_s <= ?", last.fetchone())

    def _remove(self, which: str, values: tuple[object, ...]) -> None:
        wanted = f"DELETE FROM answers WHERE {which} RETURNING tenant, key, length(reply)"
        for tenant, key, size in self._base.execute(wanted, values).fetchall():
            self._counted(tenant, key, size, -1)

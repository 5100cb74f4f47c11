"""The tape: the only output of a run.

A row is seven integers: time, kind, subject, lease, place, detail, value. Each domain names its kinds and says what
the columns mean for them. All rows of one time are one step: events first, then actions and refusals.
Rows are appended to an Arrow stream in batches, readable to the last whole batch after a kill or on a full disk, and
compacted to Parquet when the run closes. The digest covers the rows and nothing else: no wall time, no path.
"""

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from headway.errors import TapeError
from headway.files import create, replacing

Row: TypeAlias = tuple[int, int, int, int, int, int, int]
COLUMNS = ("time", "kind", "subject", "lease", "place", "detail", "value")
SCHEMA = pa.schema([*((name, pa.int64()) for name in COLUMNS), ("note", pa.string())])
STREAM_NAME = "tape.arrow"
FINAL_NAME = "tape.parquet"
EXPERIMENT_NAME = "experiment.toml"
RESULT_NAME = "result.json"
"""What lies beside a tape in a run folder: what was run, and the numbers that came out."""
SCHEMA_VERSION = 2
"""Of a run folder. It grows when folders written before can no longer be read."""
BATCH_ROWS = 65_536
FLUSH_EVERY_S = 1.0
"""What a kill can cost: the steps of the last second."""


class TapeRow(NamedTuple):
    """One row, by column name."""

    time: int
    kind: int
    subject: int
    lease: int
    place: int
    detail: int
    value: int


class Tape:
    """A tape that was read or just written: one array a column, and the notes of refused actions by row."""

    def __init__(self, rows: npt.NDArray[np.int64], notes: dict[int, str] | None = None) -> None:
        self.rows = rows
        self.notes = notes or {}

    def __len__(self) -> int:
        return int(self.rows.shape[0])

    def column(self, name: str) -> npt.NDArray[np.int64]:
        """Return all values of one column."""
        column: npt.NDArray[np.int64] = self.rows[:, COLUMNS.index(name)]
        return column

    def __iter__(self) -> Iterator[TapeRow]:
        for row in self.rows.tolist():
            yield TapeRow(*row)

    def until(self, time: int) -> "Tape":
        """Return the prefix up to and including this time."""
        end = int(np.searchsorted(self.column("time"), time, side="right"))
        return Tape(self.rows[:end], {row: text for row, text in self.notes.items() if row < end})

    def of(self, *kinds: int) -> npt.NDArray[np.int64]:
        """Return all rows of some kinds, in order."""
        rows: npt.NDArray[np.int64] = self.rows[np.isin(self.column("kind"), kinds)]
        return rows

    @property
    def digest(self) -> str:
        """Return the SHA-256 of the rows: the same for the same decisions, on whatever machine, in whatever time."""
        return hashlib.sha256(np.ascontiguousarray(self.rows, dtype="<i8").tobytes()).hexdigest()


class TapeWriter:
    """Collects rows; with a folder it also streams them to disk.

    ``append`` is the hot path. It puts a row's numbers into one flat list: cheaper than to keep a tuple a row.
    """

    def __init__(self, folder: Path | None = None, *, batch_rows: int = BATCH_ROWS, keep: bool = True) -> None:
        """``keep``: hold all rows in memory, for ``close`` to return; else they are read back from the disk there."""
        self.batch_rows = batch_rows
        self._keep = keep or folder is None
        self._pending: list[int] = []
        self.append: Callable[[Row], None] = self._pending.extend
        self._blocks: list[npt.NDArray[np.int64]] = []
        self._notes: dict[int, str] = {}
        self._flushed = 0
        self._last_flush = monotonic()
        self._folder = folder
        self._stream: _Stream | None = None
        if folder is not None:
            if holds_tape(folder):
                raise TapeError(f"{folder} already holds a run; choose another folder or remove it")
            try:
                folder.mkdir(parents=True, exist_ok=True)
                self._stream = _Stream(folder / STREAM_NAME)
            except OSError as problem:
                raise TapeError(f"{folder}: cannot be written ({problem.strerror or problem})") from None

    @property
    def due(self) -> bool:
        """Return whether enough is pending for a batch, or anything and the last batch on disk is a second old."""
        if self._stream is not None and monotonic() - self._last_flush > FLUSH_EVERY_S:
            return bool(self._pending)
        return self.pending >= self.batch_rows

    @property
    def pending(self) -> int:
        """Return the number of rows not flushed yet."""
        return len(self._pending) // len(COLUMNS)

    def note(self, text: str) -> None:
        """Attach a text to the row appended last."""
        self._notes[self._flushed + self.pending - 1] = text

    @property
    def flushed(self) -> int:
        """Return the number of rows that were flushed."""
        return self._flushed

    def flush(self) -> None:
        """Turn pending rows into one block, and one batch on disk; what the disk refuses (OSError) stays pending."""
        if not self._pending:
            return
        block = np.fromiter(self._pending, dtype=np.int64, count=len(self._pending)).reshape(-1, len(COLUMNS))
        if self._stream is not None:
            self._stream.append(_batch(block, self._flushed, self._notes))
            if not self._keep:
                self._notes.clear()
        self._pending.clear()
        if self._keep:
            self._blocks.append(block)
        self._flushed += len(block)
        self._last_flush = monotonic()

    def thin(self, chosen: "Callable[[Tape], Tape]") -> None:
        """Replace the rows on disk by those that are chosen of them; the file is whole at every moment. Raises OSError.

        For a tape that has no end and must not grow for ever; its rows are not held in memory.
        """
        assert self._folder is not None
        assert self._stream is not None
        assert not self._keep
        self.flush()
        fewer = chosen(read(self._folder))
        (draft := self._folder / f"{STREAM_NAME}.part").unlink(missing_ok=True)  # of one that was killed
        stream = _Stream(draft)
        try:
            if len(fewer):
                stream.append(_batch(fewer.rows, 0, fewer.notes))
            os.replace(draft, self._folder / STREAM_NAME)
        except OSError:
            stream.close()
            draft.unlink(missing_ok=True)
            raise
        self._stream.close()
        self._stream, self._flushed = stream, len(fewer)

    def close(self) -> Tape:
        """Flush, compact to Parquet, and return the tape."""
        self.flush()
        if self._stream is not None:
            self._stream.close()
        if self._keep:
            rows = np.concatenate(self._blocks) if self._blocks else np.empty((0, len(COLUMNS)), dtype=np.int64)
            self._blocks = [rows]
        else:
            assert self._folder is not None
            written = read(self._folder)
            rows, self._notes = written.rows, written.notes
        tape = Tape(rows, self._notes)
        if self._stream is not None and self._folder is not None:
            self._stream = None
            write(tape, self._folder)
            (self._folder / STREAM_NAME).unlink()
        return tape


class _Stream:
    """A file with an Arrow stream, to which whole batches are appended: what the disk takes of half a batch is undone.

    It has no mark at its end, which readers do not need: whoever writes it may be killed.
    """

    def __init__(self, path: Path) -> None:
        with create(path) as file:
            self._handle = os.dup(file.fileno())  # without a buffer: it would keep what the disk refused
        self._size = 0
        self._put(SCHEMA.serialize())

    def append(self, batch: pa.RecordBatch) -> None:
        """Write one batch, or nothing and raise OSError."""
        self._put(batch.serialize())

    def _put(self, message: pa.Buffer) -> None:
        rest = memoryview(message)
        try:
            while rest:
                rest = rest[os.write(self._handle, rest) :]
        except OSError:
            os.ftruncate(self._handle, self._size)
            os.lseek(self._handle, self._size, os.SEEK_SET)
            raise
        self._size += message.size

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self.close()

    def close(self) -> None:
        """Close the file."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def write(tape: Tape, folder: Path) -> None:
    """Write a whole tape to a folder, as Parquet."""
    table = pa.Table.from_batches([_batch(tape.rows, 0, tape.notes)], schema=SCHEMA)
    with replacing(folder / FINAL_NAME) as file:
        pq.write_table(table, file, compression="lz4", use_dictionary=False, write_statistics=False)


def _batch(block: npt.NDArray[np.int64], first: int, notes: dict[int, str]) -> pa.RecordBatch:
    count = len(block)
    columns = [pa.array(np.ascontiguousarray(block[:, index])) for index in range(len(COLUMNS))]
    texts = {row - first: text for row, text in notes.items() if first <= row < first + count} if notes else {}
    note = pa.array([texts.get(row) for row in range(count)], pa.string()) if texts else pa.nulls(count, pa.string())
    return pa.RecordBatch.from_arrays([*columns, note], schema=SCHEMA)


def holds_tape(folder: Path) -> bool:
    """Return whether a tape lies in a folder, closed or not."""
    return any((folder / name).exists() for name in (FINAL_NAME, STREAM_NAME))


def read(folder: Path) -> Tape:
    """Return the tape of a run folder: the closed one, or what an interrupted run left behind."""
    final, stream = folder / FINAL_NAME, folder / STREAM_NAME
    try:
        if final.exists():
            return _from_table(pq.read_table(str(final), schema=SCHEMA))
        if stream.exists():
            return _from_table(_salvage(stream))
    except (pa.ArrowException, OSError, ValueError) as broken:
        reason = (str(broken).splitlines() or [type(broken).__name__])[0]
        raise TapeError(f"{folder}: the tape cannot be read ({reason})") from broken
    raise TapeError(f"{folder} holds no run: neither {FINAL_NAME} nor {STREAM_NAME} is there")


def _salvage(stream: Path) -> pa.Table:
    batches = []
    with pa.OSFile(str(stream), "rb") as source:
        try:
            reader = pa.ipc.open_stream(source)
            for batch in reader:
                batches.append(batch)
        except (pa.ArrowInvalid, OSError):
            pass  # killed in the middle of a batch: what came before it is whole
    return pa.Table.from_batches(batches, schema=SCHEMA)


def _from_table(table: pa.Table) -> Tape:
    if lacking := [name for name in COLUMNS if table.column(name).null_count]:
        raise ValueError(f"its column {lacking[0]} has rows without a value")
    rows = np.column_stack([table.column(name).to_numpy() for name in COLUMNS]).astype(np.int64, copy=False)
    notes = {}
    if table.column("note").null_count < len(table):
        notes = {row: text for row, text in enumerate(table.column("note").to_pylist()) if text is not None}
    return Tape(np.ascontiguousarray(rows), notes)

"""The tape: what is written is read, to the last whole batch after a kill; its digest is of the rows alone."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from headway.core import tape as tapes
from headway.core.tape import COLUMNS, FINAL_NAME, STREAM_NAME, Row, Tape, TapeWriter, read
from headway.errors import TapeError

integers = st.integers(-(2**63), 2**63 - 1)
rows_of_any_kind = st.lists(st.tuples(*(integers for _ in COLUMNS)), max_size=30)

KILLED = """
import os, signal, sys
from pathlib import Path
from headway.core.tape import TapeWriter
writer = TapeWriter(Path(sys.argv[1]), batch_rows=10)
for number in range(35):
    writer.append((number, 1, number, 0, 0, 0, 7))
    if writer.pending >= writer.batch_rows:
        writer.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


def write(rows: list[Row], batch_rows: int = 4, folder: Path | None = None) -> Tape:
    """A tape of these rows, flushed as the loop does it."""
    writer = TapeWriter(folder, batch_rows=batch_rows)
    for row in rows:
        writer.append(row)
        if writer.pending >= writer.batch_rows:
            writer.flush()
    return writer.close()


@given(rows=rows_of_any_kind, batch_rows=st.integers(1, 9))
@settings(max_examples=20)
def test_what_is_written_is_read(rows: list[Row], batch_rows: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("tape") / "run"
    written = write(rows, batch_rows, folder)
    again = read(folder)
    assert [tuple(row) for row in again] == rows
    assert again.digest == written.digest == write(rows, 100).digest
    assert sorted(path.name for path in folder.iterdir()) == [FINAL_NAME]


@given(rows=rows_of_any_kind.filter(bool))
@settings(max_examples=20)
def test_the_digest_changes_with_any_value(rows: list[Row]) -> None:
    other = [*rows[:-1], (*rows[-1][:6], rows[-1][6] ^ 1)]
    assert write(rows).digest != write(other).digest
    assert write(rows).digest != write(rows[:-1]).digest


def test_notes_stay_with_their_rows_over_batches_and_files(tmp_path: Path) -> None:
    writer = TapeWriter(tmp_path / "run", batch_rows=2)
    for number in range(5):
        writer.append((number, 24, 0, 0, 0, 0, 0))
        if number in (0, 3):
            writer.note(f"because of {number}")
        if writer.pending >= writer.batch_rows:
            writer.flush()
    expected = {0: "because of 0", 3: "because of 3"}
    assert writer.close().notes == expected
    tape = read(tmp_path / "run")
    assert tape.notes == expected
    assert tape.until(2).notes == {0: "because of 0"}
    assert len(tape.until(2)) == 3


def test_a_killed_run_is_read_to_its_last_whole_batch(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    killed = subprocess.run([sys.executable, "-c", KILLED, str(folder)], check=False, timeout=60)
    assert killed.returncode == -9
    tape = read(folder)
    assert tape.column("subject").tolist() == list(range(30))
    whole = (folder / STREAM_NAME).stat().st_size
    assert not (folder / FINAL_NAME).exists()
    (folder / STREAM_NAME).write_bytes((folder / STREAM_NAME).read_bytes()[: whole - 20])
    assert read(folder).column("subject").tolist() == list(range(20)), "a torn batch is left out"


@pytest.mark.parametrize("left", [0, 3, 50])
def test_a_run_killed_at_once_has_an_empty_tape(tmp_path: Path, left: int) -> None:
    writer = TapeWriter(tmp_path / "run")
    del writer
    stream = tmp_path / "run" / STREAM_NAME
    stream.write_bytes(stream.read_bytes()[:left])
    assert len(read(tmp_path / "run")) == 0


def test_a_folder_that_holds_a_run_is_not_written_to(tmp_path: Path) -> None:
    write([(0, 1, 2, 3, 4, 5, 6)], folder=tmp_path / "run")
    with pytest.raises(TapeError, match="already holds a run"):
        TapeWriter(tmp_path / "run")
    assert len(read(tmp_path / "run")) == 1


def test_a_missing_and_a_broken_tape_are_named(tmp_path: Path) -> None:
    with pytest.raises(TapeError, match="holds no run"):
        read(tmp_path)
    (tmp_path / FINAL_NAME).write_bytes(b"no parquet at all")
    with pytest.raises(TapeError, match="cannot be read"):
        read(tmp_path)


def test_an_empty_run_has_an_empty_tape(tmp_path: Path) -> None:
    tape = write([], folder=tmp_path / "run")
    assert len(tape) == len(read(tmp_path / "run")) == 0
    assert tape.rows.dtype == np.int64


def test_rows_that_a_full_disk_refuses_are_written_when_it_has_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = TapeWriter(tmp_path / "run", keep=False)
    writer.append((1, 1, 0, 0, 0, 0, 0))
    writer.note("kept")
    writer.flush()
    real, free = os.write, [100]

    def fills_up(handle: int, data: memoryview) -> int:
        if not free[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = real(handle, data[: free[0]])
        free[0] -= taken
        return taken

    writer.append((2, 1, 0, 0, 0, 0, 0))
    writer.note("refused once")
    monkeypatch.setattr(tapes.os, "write", fills_up)
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            writer.flush()
        assert [row.time for row in read(tmp_path / "run")] == [1], "half a batch is undone"
        free[0] = 10
    monkeypatch.undo()
    writer.append((3, 1, 0, 0, 0, 0, 0))
    writer.flush()
    again = read(tmp_path / "run")
    assert [row.time for row in again] == [1, 2, 3]
    assert writer.close().notes == again.notes == {0: "kept", 1: "refused once"}


def test_a_tape_without_end_is_thinned_on_disk_and_goes_on(tmp_path: Path) -> None:
    writer = TapeWriter(tmp_path / "run", keep=False)
    (tmp_path / "run" / f"{STREAM_NAME}.part").write_text("of one that was killed while it did this")
    for number in range(10):
        writer.append((number, 1, number, 0, 0, 0, 0))
        writer.note(f"row {number}")
    writer.thin(lambda tape: Tape(tape.rows[::2], {row // 2: text for row, text in tape.notes.items() if row % 2 == 0}))
    assert writer.flushed == 5
    writer.append((10, 1, 10, 0, 0, 0, 0))
    writer.note("row 10")
    writer.flush()
    for tape in (read(tmp_path / "run"), writer.close(), read(tmp_path / "run")):
        assert tape.column("subject").tolist() == [0, 2, 4, 6, 8, 10]
        assert tape.notes == {row: f"row {2 * row}" for row in range(6)}
    assert [path.name for path in (tmp_path / "run").iterdir()] == [FINAL_NAME]

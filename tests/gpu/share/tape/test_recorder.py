"""The tape of a broker: what was measured and set is on it, it is bounded, and no disk is ever in the way."""

import builtins
import errno
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.core import tape as tapes
from headway.core.tape import FINAL_NAME, RESULT_NAME, STREAM_NAME, Tape, read
from headway.gpu.control.dial import Dial
from headway.gpu.control.slowdown import Estimate
from headway.gpu.share.block.block import SharedBlock
from headway.gpu.share.broker.broker import Broker
from headway.gpu.share.tape import folders as tape_folders, thread as tape_thread
from headway.gpu.share.tape.audit import audit
from headway.gpu.share.tape.recorder import RULES, SECOND, TapeRecorder
from headway.gpu.share.tape.rows import OF_ALL, Ending, ShareKind
from tests.gpu.share.shares import broker_at, join, leave

ABOUT = {"gpu": 0, "gpu_name": "stub", "driver": "1", "mode": "mps", "version": "0", "began": "2026-01-01T00:00:00Z"}


class KnownDial(Dial):
    """A dial that knows the slow-down of the client in slot 0."""

    known: Estimate | None = None

    tail: Estimate | None = None

    def slowdown(self, index: int) -> Estimate | None:
        return self.known if index == 0 else None

    def told(self, index: int) -> tuple[Estimate | None, int, Estimate | None]:
        return self.slowdown(index), 0, self.tail


class Recorded:
    """A broker with a recorder, on a clock of its own."""

    def __init__(self, short: Path, folder: Path) -> None:
        self.folder = folder
        self.now = time.monotonic_ns()
        self.begun = self.now
        self.dial = KnownDial()
        self.broker, self.block, self.said = broker_at(short, dial=self.dial)
        self.recorder = TapeRecorder(folder, self.block, ABOUT, self.begun, self.said.append)
        self.broker.recorder = self.recorder

    def pass_(self, seconds: float, steps: int = 1) -> None:
        """Let time pass, in steps of the broker's loop."""
        for _ in range(steps):
            self.now += round(seconds * SECOND / steps)
            self.broker.step(self.now)

    def close(self) -> None:
        """End the tape."""
        self.recorder.close(self.now, self.dial, self.broker.clients)

    def ended(self) -> Tape:
        """End it, and read it."""
        self.close()
        return read(self.folder)


@pytest.fixture
def recorded(short: Path, tmp_path: Path) -> Iterator[Recorded]:
    """A broker that records."""
    made = Recorded(short, tmp_path / "tape")
    yield made
    made.block.close()


def rows(tape: Tape, kind: ShareKind, subject: int | None = None) -> list[tuple[int, ...]]:
    """Lease, place, detail and value of all rows of a kind."""
    return [tuple(row[3:]) for row in tape if row.kind == kind and subject in (None, row.subject)]


def test_what_was_measured_set_and_counted_is_on_the_tape(recorded: Recorded) -> None:
    api = join(recorded.block, 0, name="api", priority=0)
    batch = join(recorded.block, 1, name="batch", priority=9)
    recorded.pass_(0.3)
    api.ledger.kernels, api.ledger.graphs, api.ledger.work_ns = 90, 10, 7
    batch.ledger.waits, batch.ledger.waited_ns, batch.ledger.harvested_ns, batch.ledger.delay_ns = 3, 40, 50, 60
    kernel = batch.kernels[5]
    kernel.id, kernel.name, kernel.blamed_ns = 77, b"gemm", 60
    recorded.dial.known = Estimate(1_040_000, 1_010_000, 1_070_000, 5, 20)
    recorded.pass_(1.2)
    recorded.dial.slo_ppm = 1_200_000
    kernel.blamed_ns = batch.ledger.delay_ns = 90
    leave(batch)
    recorded.pass_(0.05)
    tape = recorded.ended()
    assert [json.loads(note) for note in tape.notes.values() if note.startswith("[")] == [
        ["api", "api.py"],
        ["batch", "batch.py"],
    ]
    assert [row[1:3] for row in rows(tape, ShareKind.JOINED)] == [(0, 0), (1, 9)]
    assert rows(tape, ShareKind.MEASURED) == [(5, 20, 0, 1_040_000)]
    assert rows(tape, ShareKind.INTERVAL) == [(0, 0, 1_010_000, 1_070_000)]
    assert (100, 0, 0, 7) in rows(tape, ShareKind.COUNTED, 0)
    assert (0, 3, 40, 0) in rows(tape, ShareKind.COUNTED, 1)
    assert rows(tape, ShareKind.HARVESTED, 1)[-1] == (0, 0, 90, 50)
    assert rows(tape, ShareKind.DELAYED) == [(0, 0, 0, 60), (0, 0, 0, 90)]
    assert "gemm" in tape.notes.values()
    assert rows(tape, ShareKind.LEFT) == [(0, 0, Ending.LEFT, 0)]
    assert rows(tape, ShareKind.AIMED, OF_ALL) == [
        (0, 0, recorded.dial.floor_ppm, Dial().slo_ppm),
        (0, 0, recorded.dial.floor_ppm, 1_200_000),
    ]
    gate = RULES.index("gate")
    assert [row[3] for row in rows(tape, ShareKind.RULED, 1) if row[1] == gate] == [1]
    assert audit(tape) == []
    assert recorded.said[-1] == f"batch (process {batch.owner}) left after 0 launches"


def test_limits_charges_and_the_aim_for_p99_are_on_the_tape(recorded: Recorded) -> None:
    recorded.dial.slo99_ppm = 1_150_000
    recorded.dial.tail = Estimate(1_100_000, 1_050_000, 1_200_000, 5, 120)
    join(recorded.block, 0, name="api", priority=0)
    batch = join(recorded.block, 1, name="batch", priority=9)
    batch.sms_ppm = 300_000
    kernel, other = batch.kernels[5], batch.kernels[9]
    kernel.id, kernel.name, kernel.contention_ppm = 77, b"copy", 250_000
    other.id, other.name, other.blamed_ns, batch.ledger.delay_ns = 78, b"gemm", 60, 60
    recorded.pass_(1.2)
    kernel.contention_ppm, kernel.blamed_ns, batch.ledger.delay_ns = 0, 10, 70
    recorded.pass_(1.2)
    kernel.contention_ppm, batch.ledger.delay_ns = 190_000, 80
    recorded.pass_(1.2)
    tape = recorded.ended()
    assert rows(tape, ShareKind.AIMED) == [(1_150_000, 0, recorded.dial.floor_ppm, recorded.dial.slo_ppm)]
    assert rows(tape, ShareKind.TAILED) == [(120, 1_050_000, 1_200_000, 1_100_000)]
    assert [row[0] for row in rows(tape, ShareKind.JOINED)] == [0, 300_000]
    assert rows(tape, ShareKind.DELAYED) == [(0, 0, 0, 60), (0, 1, 0, 10)]
    assert rows(tape, ShareKind.CHARGED) == [(0, 1, 0, 250_000), (0, 1, 0, 0), (0, 1, 0, 190_000)]
    assert [note for note in tape.notes.values() if note in ("copy", "gemm")] == ["gemm", "copy", "copy"]
    assert audit(tape) == []


def test_counters_come_once_a_second_and_changes_at_most_four_times(recorded: Recorded) -> None:
    join(recorded.block, 0, name="api", priority=0)
    join(recorded.block, 1, name="batch", priority=9)
    for number in range(400):
        recorded.dial.known = Estimate(1_000_000 + number, 1_000_000, 1_100_000, number, number)
        recorded.pass_(0.025)
    tape = recorded.ended()
    assert 10 <= len(rows(tape, ShareKind.COUNTED, 0)) <= 12
    assert 35 <= len(rows(tape, ShareKind.MEASURED)) <= 41
    assert audit(tape) == []


def test_nothing_is_made_before_a_program_joins_nor_said_of_one_with_nobody_below(recorded: Recorded) -> None:
    recorded.pass_(5, steps=50)
    assert not recorded.folder.exists()
    join(recorded.block, 0, name="api", priority=0)
    recorded.dial.known = Estimate(1_040_000, 1_010_000, 1_070_000, 5, 20)
    recorded.pass_(2, steps=20)
    assert rows(recorded.ended(), ShareKind.MEASURED) == []


def test_a_program_that_came_and_went_between_two_turns_is_on_the_tape(recorded: Recorded) -> None:
    recorded.pass_(0.3)
    slot = join(recorded.block, 3, name="short", priority=5)
    slot.ledger.kernels = 12
    leave(slot)
    recorded.pass_(0.01)
    tape = recorded.ended()
    assert rows(tape, ShareKind.LEFT) == [(0, 0, Ending.LEFT, 0)]
    assert rows(tape, ShareKind.COUNTED) == [(12, 0, 0, 0)]


def test_numbers_that_no_counter_has_do_not_end_the_tape(recorded: Recorded) -> None:
    slot = join(recorded.block, 0, name="wild", priority=0)
    slot.ledger.kernels = slot.ledger.graphs = 2**64 - 1
    recorded.pass_(1.5, steps=3)
    assert rows(recorded.ended(), ShareKind.COUNTED)[0][0] == 2**63 - 1
    assert (recorded.folder / RESULT_NAME).exists()


def test_a_clock_that_is_set_changes_nothing(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = iter([1e9, 5e8, 2e9, -1e9] * 100)
    monkeypatch.setattr(time, "time", lambda: next(steps))
    join(recorded.block, 0, name="api", priority=0)
    recorded.pass_(3, steps=12)
    tape = recorded.ended()
    assert 2.9 <= tape.column("time")[-1] / SECOND <= 3.1
    assert audit(tape) == []


def test_it_is_readable_while_it_is_written_and_whole_at_the_end(recorded: Recorded) -> None:
    join(recorded.block, 0, name="api", priority=0)
    until = time.monotonic() + 20
    while not (recorded.folder / STREAM_NAME).exists() or not len(read(recorded.folder)):
        assert time.monotonic() < until
        recorded.pass_(0.3)
        time.sleep(0.05)
    assert not (recorded.folder / FINAL_NAME).exists()
    tape = recorded.ended()
    assert json.loads((recorded.folder / RESULT_NAME).read_text())["digest"] == tape.digest
    assert not (recorded.folder / STREAM_NAME).exists()


def test_a_long_tape_is_thinned_and_goes_on_with_fewer_moments(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tape_thread, "MOST_ROWS", 100)
    monkeypatch.setattr(tapes, "FLUSH_EVERY_S", 0.0)
    join(recorded.block, 0, name="api", priority=0)
    for _ in range(300):
        recorded.pass_(1)
        time.sleep(0.001)  # for the thread
    tape = recorded.ended()
    assert len(tape) <= 110
    assert recorded.recorder._thread.thinned > 1
    times = tape.column("time") / SECOND
    assert times[0] < 2
    assert times[-1] > 290
    assert audit(tape) == []
    assert rows(tape, ShareKind.JOINED)
    assert tape.notes


def test_a_full_disk_is_said_once_and_what_was_refused_comes_later(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tapes, "FLUSH_EVERY_S", 0.0)
    join(recorded.block, 0, name="api", priority=0)
    real, full = tapes.os.write, threading.Event()

    def write(handle: int, data: Any) -> int:
        if full.is_set():
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(handle, data)

    monkeypatch.setattr(tapes.os, "write", write)
    for _ in range(5):
        recorded.pass_(1)
    time.sleep(0.2)  # for the thread
    full.set()
    for _ in range(5):
        recorded.pass_(1)
    time.sleep(0.2)
    full.clear()
    recorded.pass_(1)
    tape = recorded.ended()
    told = [line for line in recorded.said if "tape" in line]
    assert told == [
        f"the tape {recorded.folder} cannot be written: No space left on device; sharing goes on",
        f"the tape {recorded.folder} can be written again",
    ]
    assert len(rows(tape, ShareKind.COUNTED)) == 12


def test_a_disk_that_hangs_holds_nobody_up(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tape_thread, "_LAST_S", 0.1)
    goes_on = threading.Event()
    monkeypatch.setattr(tape_folders, "begin", lambda folder, about: goes_on.wait(60))
    join(recorded.block, 0, name="api", priority=0)
    recorded.pass_(3000, steps=3000)
    assert recorded.said[-1] == f"the tape {recorded.folder} ends here: the disk does not answer; sharing goes on"
    recorded.close()
    goes_on.set()
    recorded.recorder._thread._thread.join(20)


def test_without_pyarrow_a_line_says_so_and_sharing_goes_on(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("headway.core.tape"):
            raise ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    join(recorded.block, 0, name="api", priority=0)
    recorded.pass_(1)
    recorded.recorder._thread._thread.join(20)
    monkeypatch.undo()
    recorded.pass_(2, steps=4)
    recorded.close()
    lines = [line for line in recorded.said if "tape" in line]
    assert lines == [
        f"the tape {recorded.folder} ends here: pyarrow is not installed here: pip install pyarrow; sharing goes on"
    ]
    assert not recorded.folder.exists()


def test_the_loop_of_a_broker_imports_nothing_that_a_gpu_machine_may_lack() -> None:
    code = (
        "import sys, headway.gpu.share.broker.serve\n"
        "print(sorted({'polars', 'plotly', 'pyarrow', 'msgspec', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_folder_is_named_by_gpu_and_time_and_nothing_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert tape_folders.usual(3, 0) == tmp_path / "headway" / "share" / "gpu-3" / "19700101T000000Z"


def test_the_last_tapes_are_kept_and_what_is_not_a_tape_or_is_written_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = tape_folders.usual(0, 0).parent
    for number in range(12):
        tape_folders.begin(folder / f"old-{number:02}", ABOUT)
    (folder / "mine").mkdir()
    kept = sorted(path.name for path in folder.iterdir())
    assert kept == ["mine", *(f"old-{number:02}" for number in range(12 - tape_folders.KEPT, 12))]
    (folder / "old-04" / STREAM_NAME).write_text("a broker writes it now")
    tape_folders.begin(folder / "old-12", ABOUT)
    assert (folder / "old-04").exists()
    own = tmp_path / "elsewhere"
    for number in range(12):
        tape_folders.begin(own / str(number), ABOUT)
    assert len(list(own.iterdir())) == 12, "folders that were asked for are never removed"


def test_a_broker_without_a_tape_records_nothing(short: Path, tmp_path: Path) -> None:
    broker, block, _ = broker_at(short)
    assert isinstance(broker, Broker)
    assert isinstance(block, SharedBlock)
    join(block, 0, name="api", priority=0)
    broker.step(time.monotonic_ns())
    assert broker.recorder.folder is None
    block.close()

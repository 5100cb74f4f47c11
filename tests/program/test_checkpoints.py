"""Checkpoints of a training loop: it goes on where it was, whatever ended it, and says what it cannot go on from."""

import json
import os
import random
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

import headway
from headway.errors import CheckpointError
from headway.program import checkpoints, progress, protocol, saving
from tests.program.training import CrashError, Training


class Shuffled:
    """Batches in an order that is drawn anew in each epoch, as a loader does."""

    def __init__(self, batches: int) -> None:
        self._batches = batches

    def __len__(self) -> int:
        return self._batches

    def __iter__(self) -> Iterator[int]:
        order = list(range(self._batches))
        random.shuffle(order)
        for batch in order:
            random.random()  # as reading a sample may
            yield batch


class Unknown(Shuffled):
    """Batches whose number nobody knows before."""

    def __len__(self) -> int:
        raise TypeError


@given(
    batches=st.integers(1, 6),
    epochs=st.integers(1, 3),
    known=st.booleans(),
    every=st.none() | st.integers(1, 5),
    ends=st.lists(st.tuples(st.booleans(), st.integers(0, 20)), max_size=8),
)
@settings(max_examples=60, deadline=None)
def test_a_disturbed_run_is_the_undisturbed_one(
    batches: int, epochs: int, known: bool, every: int | None, ends: list[tuple[bool, int]]
) -> None:
    kind = Shuffled if known else Unknown
    with tempfile.TemporaryDirectory() as folder:
        alone = Training(Path(folder) / "alone", lambda: kind(batches), epochs=epochs)
        assert alone.start() == 0
        assert len(alone.notes) == batches * epochs
        trained = Training(Path(folder) / "disturbed", lambda: kind(batches), epochs=epochs, every=every)
        for preempted, at in [*ends, (True, -1)]:
            done = trained.saved[-1] if trained.saved else 0
            status = trained.start(preempt=at) if preempted else trained.start(crash=at)
            if not done <= at < batches * epochs:
                assert status == 0
                break
            if preempted:
                assert (status, trained.saved[-1]) == (protocol.SAVED, at + 1)
            else:
                assert (status, at - trained.saved[-1] < every if every and trained.saved else True) == (1, True)
        assert trained.notes == alone.notes


def test_the_step_in_progress_is_finished_then_saved_and_the_exit_status_is_85(tmp_path: Path) -> None:
    trained = Training(tmp_path, lambda: range(10))
    assert trained.start(preempt=4) == 85
    assert trained.saved == [5]
    assert trained.kept == ["000001", "lock"]
    assert trained.start() == 0
    assert [note[0] for note in trained.notes] == list(range(10))


def test_a_crash_costs_the_steps_since_the_last_checkpoint(tmp_path: Path) -> None:
    trained = Training(tmp_path, lambda: range(20), every=4)
    assert trained.start(crash=15) == 1
    assert trained.saved == [4, 8, 12]
    assert trained.kept == ["000003", "lock"]
    assert trained.start() == 0
    assert trained.saved == [4, 8, 12, 16, 20, 20]
    assert [note[0] for note in trained.notes] == list(range(20))


def test_checkpoints_are_written_by_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]
    monkeypatch.setattr(saving.time, "monotonic_ns", lambda: now[0])

    def minutes() -> Iterator[int]:
        for batch in range(10):
            now[0] += 60 * 10**9
            yield batch

    trained = Training(tmp_path, minutes, every="3m")
    assert trained.start(crash=9) == 1
    assert trained.saved == [3, 6, 9]


def test_a_crash_within_a_checkpoint_leaves_the_one_before(tmp_path: Path) -> None:
    trained = Training(tmp_path, lambda: range(20), every=4)
    whole = trained.save

    def broken(path: Path) -> None:
        whole(path)
        if len(trained.notes) == 12:
            raise CrashError

    trained.save = broken  # type: ignore[method-assign]
    assert trained.start() == 1
    assert trained.kept == ["000002", "lock"]
    trained.save = whole  # type: ignore[method-assign]
    (tmp_path / "kept" / ".headway-3.part" / "state").mkdir(parents=True)  # as a kill leaves it
    assert trained.start() == 0
    assert trained.notes[8][0] == 8
    assert len(trained.notes) == 20
    assert trained.kept == ["000006", "lock"]


def test_the_state_may_be_a_folder_and_is_flushed_before_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[str] = []
    real = os.fsync

    def noted(handle: int) -> None:
        flushed.append(os.path.basename(os.readlink(f"/proc/self/fd/{handle}")))
        real(handle)

    monkeypatch.setattr(os, "fsync", noted)

    def save(path: Path) -> None:
        path.mkdir()
        (path / "weights").write_text("1")
        (path / "link").symlink_to("nowhere")

    for _ in headway.steps([1], checkpoint=save, resume=print, folder=tmp_path / "kept", every=None):
        pass
    assert {"weights", "state", ".headway-1.part", "kept"} <= set(flushed)
    assert flushed[-1] == "kept"


def test_a_loop_that_is_done_says_so_and_can_be_prolonged(tmp_path: Path) -> None:
    alone = Training(tmp_path / "alone", lambda: Shuffled(3), epochs=4)
    alone.start()
    trained = Training(tmp_path, lambda: Shuffled(3), epochs=2)
    assert trained.start() == 0
    with pytest.warns(RuntimeWarning, match=r"all epochs \(2\) were done before: remove .*kept to train anew"):
        assert trained.start() == 0
    assert len(trained.notes) == 6
    trained.more["epochs"] = 4
    assert trained.start() == 0
    assert trained.notes == alone.notes


def test_a_queue_is_told_the_progress_and_that_it_was_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told, mark = tmp_path / "told", tmp_path / "mark"
    monkeypatch.setenv(protocol.PROGRESS, str(told))
    monkeypatch.setenv(protocol.SAVED_FILE, str(mark))
    monkeypatch.setattr(progress, "_EVERY", 0)
    trained = Training(tmp_path, lambda: range(4), epochs=2)
    assert trained.start(preempt=2) == 85
    assert mark.exists()
    assert float(told.read_text()) == 3 / 8
    told.unlink()
    shares = []
    for batch in headway.steps(range(4), epochs=2):
        shares.append((batch, float(told.read_text())))
    assert shares == [(step % 4, step / 8) for step in range(8)]
    assert trained.start(crash=3) == 1
    assert not mark.exists()
    assert float(told.read_text()) == 3 / 8
    assert trained.start() == 0
    assert float(told.read_text()) == 1


def test_progress_is_told_seldom_and_not_where_it_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = tmp_path / "told"
    monkeypatch.setenv(protocol.PROGRESS, str(told))
    assert list(headway.steps(range(3))) == [0, 1, 2]  # one epoch of nobody knows how many
    assert not told.exists()
    monkeypatch.setattr(progress.time, "monotonic_ns", lambda: 0)
    seen = []
    for _ in headway.steps(range(3), epochs=1):
        seen.append(float(told.read_text()))
    assert seen == [0, 0, 0]
    assert float(told.read_text()) == 1
    monkeypatch.setenv(protocol.PROGRESS, str(tmp_path / "nowhere" / "told"))
    with pytest.warns(RuntimeWarning, match=r"HEADWAY_PROGRESS=.*: progress is not told: No such file"):
        assert list(headway.steps(range(2), epochs=2)) == [0, 1, 0, 1]


def test_epochs_are_told_to_loader_sampler_and_data_set() -> None:
    class Told:
        def __init__(self, **parts: Any) -> None:
            self.__dict__.update(parts)
            self.epochs: list[int] = []

        def __iter__(self) -> Iterator[int]:
            return iter(range(2))

        def set_epoch(self, epoch: int) -> None:
            self.epochs.append(epoch)

    inner, data = Told(), Told()
    loader = Told(batch_sampler=Told(sampler=inner), sampler=inner, dataset=data)
    assert list(headway.steps(loader, epochs=3)) == [0, 1] * 3
    assert inner.epochs == data.epochs == loader.epochs == [0, 1, 2]
    list(headway.steps(loader))
    assert loader.epochs == [0, 1, 2]


def test_outside_of_the_main_thread_it_is_said_that_signals_are_not_seen(tmp_path: Path) -> None:
    trained = Training(tmp_path, lambda: range(3))
    said: list[str] = []

    def run() -> None:
        with pytest.warns(RuntimeWarning, match="outside of the main thread") as found:
            trained.start()
        said.append(str(found[0].message))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert said
    assert len(trained.notes) == 3


# --- what is wrong ------------------------------------------------------------------------------------------------


def preempted(folder: Path, **more: Any) -> Training:
    """A program that was preempted once."""
    trained = Training(folder, lambda: range(10), **more)
    assert trained.start(preempt=4) == 85
    return trained


def refused(trained: Training, line: str) -> None:
    """It does not go on, for a reason in one line."""
    with pytest.raises(CheckpointError, match=line) as found:
        trained.start()
    assert "\n" not in str(found.value)


def test_checkpoints_of_another_program_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = preempted(tmp_path)
    trained.more["name"] = "another"
    refused(
        trained, r"000001 is of another program \('test', this is 'another'\): give another folder=, the same name="
    )
    trained.more["name"] = None
    monkeypatch.setattr("sys.argv", [__file__, "--lr", "0.1"])
    refused(trained, rf"is of another program \('test', this is '{__file__} --lr 0.1'\)")


def test_other_data_are_refused(tmp_path: Path) -> None:
    trained = preempted(tmp_path)
    trained._batches = lambda: range(9)
    refused(trained, "was written with 10 batches an epoch, now there are 9: use the same data and batch size")
    trained._batches = lambda: iter(range(3))
    refused(trained, "5 batches of its epoch were done, now there are 3: use the same data and batch size")


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"format": 2}', '{"format": 1, "position": {"no": 1}}'])
def test_what_is_no_checkpoint_is_refused(tmp_path: Path, content: str) -> None:
    trained = preempted(tmp_path)
    (tmp_path / "kept" / "000001" / "steps.json").write_text(content)
    refused(trained, "000001 is no checkpoint of headway.steps, or a newer one: remove it, or give another folder=")


def test_a_checkpoint_of_another_number_of_ranks_is_refused(tmp_path: Path) -> None:
    trained = preempted(tmp_path)
    path = tmp_path / "kept" / "000001" / "steps.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "ranks": 4}))
    refused(trained, "was written by 4 ranks, these are 1: start as many as before")


def test_a_folder_that_cannot_be_written_is_refused_before_the_first_step(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("in the way")
    refused(Training(tmp_path, lambda: range(3)), "checkpoint folder .*kept cannot be written .*: give another folder=")


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    other = checkpoints.Folder(tmp_path / "kept")
    other.open()
    trained = Training(tmp_path, lambda: range(3))
    refused(trained, "kept is in use by another process: give each program its own folder=")
    other.close()
    assert trained.start() == 0


def test_a_second_loop_of_a_program_is_refused(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    loop = headway.steps([1], checkpoint=Path.touch, resume=print, folder=tmp_path)
    assert [signal.getsignal(signal.SIGTERM) == before for _ in loop] == [False]
    assert signal.getsignal(signal.SIGTERM) == before
    with pytest.raises(CheckpointError, match="was written by a loop of this process: give all epochs to one call"):
        list(loop)


def test_a_save_that_writes_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"checkpoint= wrote nothing to .*state: write a file or a folder"):
        list(headway.steps([1], checkpoint=print, resume=print, folder=tmp_path, every=1))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock"]


def test_a_full_disk_is_said_and_the_last_checkpoint_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = preempted(tmp_path)
    trained.more["every"] = 1

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", full)
    refused(trained, "kept cannot be written \\(No space left on device\\)")
    assert trained.kept == ["000001", "lock"]


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ({"checkpoint": print}, "checkpoint= and resume= go together"),
        ({"resume": print}, "checkpoint= and resume= go together"),
        ({"epochs": 0}, "epochs=0: a whole number from 1"),
        ({"epochs": True}, "epochs=True: a whole number from 1"),
        ({"epochs": 2, "batches": iter("ab")}, "epochs=2: str_.*iterator can be read once: give a loader or a list"),
        ({"checkpoint": print, "resume": print, "every": 0}, "every=0: a number of steps from 1, or a time like '10m'"),
        ({"checkpoint": print, "resume": print, "every": "0s"}, "every='0s': a number of steps from 1"),
        ({"checkpoint": print, "resume": print, "every": "often"}, "every= 'often' is not understood"),
    ],
)
def test_wrong_arguments_are_refused(wrong: dict[str, Any], line: str) -> None:
    with pytest.raises(headway.HeadwayError, match=line):
        headway.steps(**{"batches": [1], **wrong})

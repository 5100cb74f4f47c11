"""How far a run says it is, the bars that show it, and files that are whole or not at all."""

import io
import os
from pathlib import Path

import pytest
from rich.console import Console

from headway.core.tasks import Far
from headway.errors import TapeError
from headway.files import remove_unfinished, write_whole
from headway.formats import toml
from headway.jobs.tables.settings import Experiment
from headway.runs.folder.folder import RESULT_NAME, store_result
from headway.runs.play import run
from headway.show import progress
from headway.show.progress import Board
from headway.units import HOUR


def test_a_run_that_drains_is_not_done_when_all_have_arrived(tmp_path: Path) -> None:
    path = tmp_path / "burst.csv"
    path.write_text("submit_s,work_s,gpus\n" + "".join(f"{i // 1000},{100 + i % 7},1\n" for i in range(4000)))
    document = {"trace": {"path": str(path)}, "cluster": {"nodes": 1, "gpus_per_node": 1}}
    heard: list[Far] = []
    run(toml.typed(document, Experiment, "test"), heard.append)
    assert len(heard) >= 3
    assert all(far.now > far.last and far.jobs == 4000 for far in heard)  # all have arrived, at once
    assert all(far.ended + far.waiting + far.running == 4000 for far in heard)
    shares = [far.share for far in heard]
    assert shares == sorted(set(shares))
    assert 0 < shares[0] < 0.5 < shares[-1] < 1


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> Board:
    console = Console(file=io.StringIO(), force_terminal=True, width=200)
    monkeypatch.setattr(progress, "err", lambda: console)
    return Board(4, "cells", done=1)


def test_bars_say_how_many_jobs_have_ended_and_how_many_cells_are_at_work(board: Board) -> None:
    with board:
        board.tell(0, "fifo", Far(HOUR, 2 * HOUR, 100, 25, 5, 3))
        board.tell(1, "far away", None)  # on another machine, which does not say
        every, one, far_away = board._bar.tasks
        assert every.fields["at"] == "1 of 4 cells done, 2 at work"
        assert (every.completed, every.total) == (0.25, 3)
        assert (one.completed, far_away.total, far_away.fields["at"]) == (0.25, None, "at work")
        assert one.fields["at"] == "1h 00m of 2h 00m · 25 % ended, 5 wait, 3 run"
        board.tell(0, "fifo", Far(3 * HOUR, 2 * HOUR, 100, 75, 5, 3))
        assert board._bar.tasks[1].fields["at"] == "all arrived · 75 % ended, 5 wait, 3 run"
        board.ended(0)
        board.ended(1)
        assert board._bar.tasks[0].fields["at"] == "3 of 4 cells done, 0 at work"


def test_who_is_killed_while_writing_leaves_the_file_from_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(_file: int) -> None:
        raise KeyboardInterrupt

    store_result(tmp_path, {"jobs": 1})
    before = (tmp_path / RESULT_NAME).read_bytes()
    monkeypatch.setattr(os, "fsync", killed)
    monkeypatch.setattr(os, "unlink", killed)  # it is dead: it cannot clear up either
    with pytest.raises(KeyboardInterrupt):
        store_result(tmp_path, {"jobs": 2})
    monkeypatch.undo()
    assert (tmp_path / RESULT_NAME).read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 2
    remove_unfinished(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [RESULT_NAME]
    with pytest.raises(TapeError, match="cannot be written"):
        write_whole(tmp_path / "absent" / "x.json", b"{}")

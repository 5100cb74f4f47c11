"""Whole files: made under a name that nobody can guess, links not followed, nothing left of what was stopped."""

import os
import secrets
from pathlib import Path
from typing import BinaryIO

import pytest

from headway.errors import TapeError, TraceError
from headway.files import create, replacing, write_whole


def test_a_file_is_replaced_as_a_whole_with_the_usual_rights(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_whole(path, "one")
    write_whole(path, b"two")
    assert path.read_bytes() == b"two"
    mask = os.umask(0)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_in_the_place_of_the_draft_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    monkeypatch.setattr(secrets, "token_hex", lambda size: "0" * 2 * size)  # as if it could be guessed
    (tmp_path / f".headway-{'0' * 16}.part").symlink_to(victim)
    with pytest.raises(TapeError, match="cannot be written"):
        write_whole(tmp_path / "a.json", "theirs")
    assert victim.read_text() == "mine"


def test_a_link_in_the_place_of_the_file_is_replaced_and_not_followed(tmp_path: Path) -> None:
    victim, link = tmp_path / "victim", tmp_path / "report.html"
    victim.write_text("mine")
    link.symlink_to(victim)
    write_whole(link, "new")
    assert victim.read_text() == "mine"
    assert link.read_text() == "new"
    assert not link.is_symlink()


def test_a_new_file_is_never_one_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("there", "link"):
        with pytest.raises(FileExistsError):
            create(tmp_path / name)
    assert not (tmp_path / "nowhere").exists()


def test_what_is_stopped_leaves_the_file_from_before_and_no_draft(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("before")

    def stopped(file: BinaryIO) -> None:
        file.write(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), replacing(path) as file:
        stopped(file)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(TraceError, match=r"^trace a: cannot be written \("), replacing(path, TraceError, "trace a"):
        raise OSError(28, "No space left on device")

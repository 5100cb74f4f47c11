"""Files in a folder of everybody's: links are not followed, those of other users not taken for ours."""

import os
import stat
from pathlib import Path

import pytest

from headway.device import locks as places, shared_files as files
from headway.device.locks import Place
from headway.errors import ShareError


def test_a_link_is_not_followed_and_what_it_points_to_stays_as_it_was(place: Place, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    for path in (place.lock, place.users, place.state):
        path.symlink_to(precious)
    for wanted in (
        lambda: places.hold(place.lock, alone=True),
        lambda: places.held(place.lock),
        lambda: places.using(place).__enter__(),
        lambda: places.read_json(place.state),
    ):
        with pytest.raises(ShareError, match="is a symbolic link, and links are not followed here: have it removed"):
            wanted()
    with pytest.raises(OSError, match="is a symbolic link, and links are not followed here: have it removed"):
        places.write_json(place.state, {"a": 1})
    assert all(path.is_symlink() for path in (place.lock, place.users, place.state))
    assert precious.read_text() == "precious"


def test_a_link_in_the_place_of_a_draft_is_not_written_through(place: Place, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    place.folder.joinpath(f"{place.state.name}.{os.getpid()}.draft").symlink_to(precious)
    places.write_json(place.state, {"a": 1})
    assert precious.read_text() == "precious"
    assert stat.S_IMODE(place.state.stat().st_mode) == 0o600


def test_what_belongs_to_another_user_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / "lock"
    lock.touch()
    owner = lock.stat().st_uid
    monkeypatch.setattr(files.os, "geteuid", lambda: owner + 1000)
    with pytest.raises(ShareError, match=rf"lock belongs to another user \({owner}\): have it removed"):
        places.hold(lock, alone=True)
    assert not files.own_folder(tmp_path)


def test_a_refused_file_is_said_to_be_another_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*given: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(files.os, "open", refused)
    for wanted in (
        lambda: places.using(Place(tmp_path, 0)).__enter__(),
        lambda: places.held(tmp_path / "lock"),
    ):
        with pytest.raises(ShareError, match="Permission denied: it belongs to another user's broker"):
            wanted()


def test_only_plain_files_count(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ShareError, match="pipe is not a regular file"):
        files.read(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path)
    assert files.own_folder(tmp_path)
    assert not files.own_folder(tmp_path / "link")
    assert not files.own_folder(tmp_path / "none")


def test_a_file_that_cannot_be_put_there_leaves_no_draft(short: Path) -> None:
    (short / "state").mkdir()
    with pytest.raises(OSError, match="is a folder, not a file of headway"):
        files.write(short / "state", b"x")
    assert [path.name for path in short.iterdir()] == ["state"]
    with pytest.raises(ShareError, match="the broker cannot be told: "):
        places.ask(Place(short / "none", 0), stop="drain")


def test_links_are_leftovers_too_and_stay_where_they_are(place: Place, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    place.mps.symlink_to(kept)
    place.state.symlink_to(tmp_path / "nowhere")
    place.folder.joinpath("headway-share-0.json.7.draft").symlink_to(kept)
    place.block.touch()
    assert set(place.leftovers()) == {place.mps, place.state, place.block}
    assert places.remove(place) == [place.block]
    assert len(list(place.folder.iterdir())) == 3
    assert kept.is_dir()


def test_what_is_not_ours_to_remove_is_told_by_kind_and_owner(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    assert places.checked(place) == place
    place.block.touch()
    place.mps.mkdir()
    assert places.checked(place) == place
    remedy = r": have it removed, or choose another folder \(HEADWAY_SHARE_FOLDER\)$"
    owner = place.block.stat().st_uid
    with monkeypatch.context() as other:
        other.setattr(files.os, "geteuid", lambda: owner + 1000)
        with pytest.raises(ShareError, match=rf"headway-share-0 belongs to another user \({owner}\){remedy}"):
            places.checked(place)
        assert places.remove(place) == []
    for path, make, what in (
        (place.state, os.mkfifo, "is not a regular file"),
        (place.asked, os.mkdir, "is a folder, not a file of headway"),
        (place.users, lambda path: path.symlink_to("nowhere"), "is a symbolic link, and links are not followed here"),
    ):
        make(path)
        with pytest.raises(ShareError, match=f"{path.name} {what}{remedy}"):
            places.checked(place)
        assert path not in places.remove(place)
        os.rmdir(path) if make is os.mkdir else path.unlink()
    place.mps.touch()
    with pytest.raises(ShareError, match=f"mps is not a folder{remedy}"):
        places.checked(place)
    assert files.foreign(place.folder / "none") == ""

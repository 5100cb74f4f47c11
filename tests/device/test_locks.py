"""Files and locks of a broker: none goes stale, none is seen half written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headway.device import locks as places
from headway.device.locks import Place
from headway.errors import ShareError


def test_a_lock_is_had_by_one_alone_or_by_many_together(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    first = places.hold(lock, alone=False)
    second = places.hold(lock, alone=False)
    assert first is not None
    assert second is not None
    assert places.hold(lock, alone=True) is None
    assert not places.held(lock)
    os.close(first)
    os.close(second)
    alone = places.hold(lock, alone=True)
    assert alone is not None
    assert places.held(lock)
    assert places.hold(lock, alone=False) is None
    os.close(alone)
    assert not places.held(lock)


def test_a_lock_whose_holder_is_killed_is_free(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    take = f"places.hold(Path({str(lock)!r}), alone=True)"
    code = (
        f"from pathlib import Path; from headway.device import locks as places; {take}; print(1, flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stdin=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline()
        assert places.held(lock)
        holder.kill()
        holder.wait()
        assert not places.held(lock)


def test_a_lock_that_was_removed_meanwhile_is_taken_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, calls = tmp_path / "lock", []
    real = os.stat

    def gone_once(path: object, **rest: object) -> os.stat_result:
        if not calls:
            calls.append(path)
            lock.unlink()
        return real(path, **rest)  # type: ignore[arg-type]

    monkeypatch.setattr(places.os, "stat", gone_once)
    handle = places.hold(lock, alone=True)
    assert handle is not None
    assert os.fstat(handle).st_ino == real(lock).st_ino
    os.close(handle)


def test_no_lock_is_held_where_there_is_no_file(tmp_path: Path) -> None:
    assert not places.held(tmp_path / "none")


def test_the_folder_comes_from_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(places.FOLDER, str(tmp_path))
    assert places.place_of(3).block == tmp_path / "headway-share-3"
    monkeypatch.setenv(places.FOLDER, str(tmp_path / "none"))
    with pytest.raises(ShareError, match="is no folder"):
        places.place_of(0)


def test_places_in_which_something_lies_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(places.FOLDER, str(tmp_path))
    for name in ("headway-share-0", "headway-share-0.json", "headway-share-11.lock", "headway-share-x", "other"):
        (tmp_path / name).touch()
    assert [place.gpu for place in places.places()] == [0, 11]


def test_what_a_dead_broker_said_does_not_count_for_the_one_that_holds_the_lock(place: Place) -> None:
    places.write_json(place.state, {"pid": 1})
    assert places.current_state(place) == {}
    handle = places.hold(place.lock, alone=True)
    assert handle is not None
    assert places.current_state(place) == {}
    places.sign(handle)
    assert places.current_state(place) == {}
    places.write_json(place.state, {"pid": os.getpid()})
    assert places.current_state(place) == {"pid": os.getpid()}
    os.close(handle)
    assert places.current_state(place) == {}


def test_what_is_asked_adds_up_and_what_is_broken_counts_as_nothing(tmp_path: Path) -> None:
    place = Place(tmp_path, 0)
    places.ask(place, slo_ppm=1)
    places.ask(place, floor_ppm=2)
    assert places.read_json(place.asked) == {"slo_ppm": 1, "floor_ppm": 2}
    for broken in ("{", "[]", "1"):
        place.asked.write_text(broken)
        assert places.read_json(place.asked) == {}


def test_nothing_is_left_after_removal(place: Place) -> None:
    (place.mps / "pipe").mkdir(parents=True)
    for path in (place.block, place.lock, place.users, place.state, place.asked):
        path.touch()
    (place.folder / "headway-share-0.json.17.draft").touch()
    (place.folder / "headway-share-1").touch()
    assert set(places.remove(place)) == {place.mps, place.block, place.lock, place.users, place.state, place.asked}
    assert [path.name for path in place.folder.iterdir()] == ["headway-share-1"]


def test_who_wants_to_join_waits_for_a_broker_that_takes_its_leave(tmp_path: Path) -> None:
    place = Place(tmp_path, 0)
    handle = places.hold(place.users, alone=True)
    assert handle is not None
    with pytest.raises(ShareError, match="does not end"), places.using(place, seconds=0.05):
        pass
    os.close(handle)
    with places.using(place):
        assert places.hold(place.users, alone=True) is None


def test_a_log_is_appended_to_and_begun_anew_when_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    place = Place(tmp_path, 0)
    for line in (b"a\n", b"b\n"):
        handle = places.open_log(place)
        os.write(handle, line)
        os.close(handle)
    assert place.log.read_bytes() == b"a\nb\n"
    place.log.write_bytes(b"x" * (2 << 20))
    os.close(places.open_log(place))
    assert place.log.read_bytes() == b""

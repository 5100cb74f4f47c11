"""Where the files of a server lie, and on which devices its workers run."""

import asyncio
import os
from pathlib import Path

import pytest

from headway.errors import ServeError
from headway.fleet.live.doors import front
from headway.fleet.live.doors.front import Call, Front
from headway.fleet.live.doors.place import Place, place_of, storage_of
from headway.fleet.live.workers import devices
from tests.fleet.live.fake import FakeServer


def test_a_name_lies_in_the_runtime_folder_and_its_weights_on_a_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert place_of("app").folder == tmp_path / "headway" / "serve" / "app"
    assert storage_of("app") == tmp_path / "cache" / "headway" / "serve" / "app"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "none"))
    assert place_of("app").folder == storage_of("app") == tmp_path / "cache" / "headway" / "serve" / "app"


def test_text_with_a_slash_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert place_of("./here").folder == storage_of("./here") == tmp_path / "here"
    for text in ("", " ", "a\0b"):
        with pytest.raises(ServeError, match="a name without a slash"):
            place_of(text)


def test_the_lock_is_held_as_long_as_the_server_runs(tmp_path: Path) -> None:
    place = Place(tmp_path / "s")
    assert not place.runs
    with place.held():
        assert place.runs
        with pytest.raises(ServeError, match=f"process {os.getpid()}"), place.held():
            pass
    assert not place.runs


def test_workers_take_devices_in_turn_and_the_cpu_where_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    assert devices.devices_of("cuda:0, cuda:1") == ("cuda:0", "cuda:1")
    monkeypatch.setattr(devices, "gpus", list)
    assert devices.devices_of("auto") == ("cpu",)
    for text in ("", "gpu", "cuda", "cpu,"):
        with pytest.raises(ServeError, match="write cpu, or cuda:0,cuda:1"):
            devices.devices_of(text)


def test_made_up_tenants_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front, "MOST_TENANTS", 2)

    async def play() -> list[int]:
        door = Front(FakeServer())
        return [(await door.answered(Call("echo", 1, tenant=name))).status for name in ("a", "b", "c", "a", "")]

    assert asyncio.run(play()) == [200, 200, 422, 200, 200]

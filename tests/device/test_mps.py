"""MPS: found, started, asked, stopped, and done without; against a stand-in for NVIDIA's control."""

from pathlib import Path

import pytest

from headway.device import mps, processes
from headway.device.locks import Place
from headway.device.mps import Mps
from headway.device.nvidia import Gpu
from headway.errors import ShareError

GPU = Gpu(0, "GPU-1", "H200", "580", 0)


def _started(place: Place) -> Mps:
    found, line = mps.find_or_start(place, GPU, "auto")
    assert found is not None
    assert line == f"MPS: started, at {place.mps}/pipe"
    return found


@pytest.mark.usefixtures("control")
def test_it_is_started_used_again_and_stopped(place: Place) -> None:
    found = _started(place)
    daemon = int((found.pipe / "nvidia-cuda-mps-control.pid").read_text())
    assert processes.alive(daemon, 0)
    again, line = mps.find_or_start(place, GPU, "on")
    assert again == found
    assert "runs already" in line
    assert found.stop()
    assert not processes.alive(daemon, 0)
    assert mps.running(place) is None


@pytest.mark.usefixtures("control")
def test_a_client_is_terminated_through_the_control(place: Place) -> None:
    found = _started(place)
    (place.mps / "clients").write_text("41\n42\n")
    assert found.clients() == [(7, 41), (7, 42)]
    assert found.terminate(42)
    assert not found.terminate(43)
    assert (place.mps / "heard").read_text().splitlines()[-4:-2] != []
    assert "terminate_client 7 42" in (place.mps / "heard").read_text()
    assert "terminate_client 7 43" not in (place.mps / "heard").read_text()
    found.stop()


@pytest.mark.usefixtures("control")
def test_one_that_others_started_is_used_and_left_running(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = Mps(tmp_path / "theirs" / "pipe", tmp_path / "theirs" / "log", owned=True)
    theirs.pipe.mkdir(parents=True)
    (theirs.pipe / "nvidia-cuda-mps-control.pid").write_text("1")
    monkeypatch.setenv(mps.PIPE, str(theirs.pipe))
    found, line = mps.find_or_start(place, GPU, "auto")
    assert found is not None
    assert not found.owned
    assert found.stop()
    assert "quit" not in (tmp_path / "theirs" / "heard").read_text()
    assert str(theirs.pipe) in line


def test_without_it_sharing_is_coarse_and_one_line_says_why(place: Place) -> None:
    found, line = mps.find_or_start(place, GPU, "auto")
    assert found is None
    assert line == (
        "coarse: no MPS (nvidia-cuda-mps-control is not installed); only gaps of half a millisecond and more are filled"
    )
    assert mps.find_or_start(place, GPU, "off") == (None, "coarse: MPS was turned off")
    with pytest.raises(ShareError, match="--mps on: nvidia-cuda-mps-control is not installed; --mps auto"):
        mps.find_or_start(place, GPU, "on")


@pytest.mark.usefixtures("control")
def test_where_it_is_refused_its_last_words_are_told(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPS_REFUSES", "1")
    found, line = mps.find_or_start(place, GPU, "auto")
    assert found is None
    assert "was refused (status 1; its log: no permission)" in line


def test_a_folder_whose_name_is_too_long_for_a_socket_is_refused_in_words(tmp_path: Path, control: Path) -> None:
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    assert "too long for its sockets" in str(mps.start(Place(deep, 0), GPU))


@pytest.mark.parametrize(
    ("size", "limit"), [(20 << 30, "0=20G"), (20 * 10**9, "0=19073M"), (512 << 20, "0=512M"), (1 << 20, "0=1M")]
)
def test_a_cap_of_memory_never_exceeds_what_was_asked(size: int, limit: str) -> None:
    assert mps.memory_limit(size) == limit


def test_a_client_finds_it_or_stays_away_from_any_other(place: Place) -> None:
    found = Mps(Path("/a/pipe"), Path("/a/log"), owned=False)
    ours = {mps.PIPE: "/a/pipe", mps.LOG: "/a/log", mps.PRIORITY: "0"}
    assert mps.client_environment(found, place, 1 << 30) == {**ours, mps.MEMORY: "0=1G"}
    assert mps.client_environment(found, place, 0, priority=5) == {**ours, mps.PRIORITY: "1"}
    limited = mps.client_environment(found, place, 0, priority=5, sms_ppm=125_000)
    assert limited == {**ours, mps.PRIORITY: "1", mps.SMS: "12.5"}
    assert not Path(mps.client_environment(None, place, 0)[mps.PIPE]).exists()

"""A broker's life: one at a time, nothing left of it, and what is left of one that was killed cleared away."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headway.device import locks as places, nvidia as gpus, processes
from headway.device.locks import Place
from headway.errors import ShareError
from headway.gpu.share.block.block import SharedBlock
from headway.gpu.share.broker import serve
from headway.gpu.share.broker.broker import Broker
from headway.gpu.share.broker.serve import Settings
from headway.gpu.share.broker.status import snapshot
from headway.gpu.share.shim import launch
from headway.gpu.share.shim.doctor import checks
from tests.gpu.share.shares import join


@pytest.fixture(autouse=True)
def _any(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(gpus.ANY_GPU, "1")


@contextmanager
def served(place: Place, settings: Settings) -> Iterator[list[str]]:
    """A broker in a thread, ready; what it says."""
    said: list[str] = []
    told: list[int] = []
    thread = threading.Thread(
        target=serve.serve,
        args=(place, gpus.STUB, settings),
        kwargs={"say": said.append, "stopped": lambda: bool(told)},
    )
    thread.start()
    while places.current_state(place).get("pid") != os.getpid():
        assert thread.is_alive(), said
        time.sleep(0.01)
    try:
        yield said
    finally:
        told.append(1)
        thread.join()


def test_a_broker_that_was_slow_to_begin_shows_a_sign_of_life_before_programs_find_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent_ns: list[int] = []

    class Slow(Broker):
        def __init__(self, place: Place, block: SharedBlock, *words: Any, **options: Any) -> None:
            super().__init__(place, block, *words, **options)
            block.header.beat_ns -= 600 * 10**9

        def publish(self, now_ns: int) -> None:
            silent_ns.append(time.monotonic_ns() - self.block.header.beat_ns)
            super().publish(now_ns)

    monkeypatch.setattr(serve, "Broker", Slow)
    with served(place, Settings()):
        assert silent_ns[0] < 60 * 10**9


def _ignore(line: str) -> None:
    del line


def test_it_is_there_and_then_nothing_of_it_is_left(place: Place) -> None:
    with served(place, Settings(slo_ppm=1_020_000)):
        assert sorted(path.name for path in place.folder.iterdir()) == [
            "headway-share-0",
            "headway-share-0.json",
            "headway-share-0.lock",
        ]
        now = snapshot(place)
        assert (now["healthy"], now["slo"], now["mode"], now["clients"]) == (True, 1.02, "coarse", [])
        assert serve.stop(place, kill=False, say=_ignore)
        assert list(place.folder.iterdir()) == []


def test_there_is_one_broker_a_gpu(place: Place) -> None:
    with served(place, Settings()):
        with pytest.raises(ShareError, match=rf"a broker of GPU 0 runs already \(process {os.getpid()}\)"):
            serve.serve(place, gpus.STUB, Settings())
        assert snapshot(place)["healthy"]
        with served(Place(place.folder, 1), Settings()):
            assert snapshot(Place(place.folder, 1))["healthy"]


def test_it_goes_when_nobody_was_there_for_long_enough_but_not_from_those_who_are_about_to_join(place: Place) -> None:
    with served(place, Settings(linger_ns=1)) as said:
        pass
    assert said[-1] == "stopped"
    with places.using(place), served(place, Settings(linger_ns=1)) as said:
        time.sleep(0.3)
        assert places.held(place.lock)
        assert "stopped" not in said
    assert list(place.folder.iterdir()) == []


def test_what_a_killed_broker_left_is_cleared_and_said(place: Place, tmp_path: Path) -> None:
    code = "from tests.gpu.share.broker.test_serve import *; serve.serve(places.place_of(0), gpus.STUB, Settings())"
    root = Path(__file__).parents[4]
    with subprocess.Popen([sys.executable, "-c", code], cwd=root) as killed:
        while not places.read_json(place.state):
            assert killed.poll() is None
            time.sleep(0.01)
        killed.kill()
        killed.wait()
    with pytest.raises(ShareError, match="has ended without cleaning up: headway share stop"):
        snapshot(place)
    with served(place, Settings()) as said:
        assert said[0] == (
            f"the broker of GPU 0 (process {killed.pid}) ended without cleaning up: "
            f"removed headway-share-0, headway-share-0.json from {place.folder}"
        )
    assert list(place.folder.iterdir()) == []
    place.block.touch()
    heard: list[str] = []
    assert serve.stop(place, kill=False, say=heard.append)
    assert "removed headway-share-0 from" in heard[0]
    assert list(place.folder.iterdir()) == []
    assert serve.stop(place, kill=False, say=heard.append)
    assert heard[1] == "no broker of GPU 0 runs"


def test_a_broker_that_hangs_is_put_down(place: Place) -> None:
    code = "from tests.gpu.share.broker.test_serve import *; serve.serve(places.place_of(0), gpus.STUB, Settings())"
    with subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[4]) as hung:
        while not places.read_json(place.state):
            assert hung.poll() is None
            time.sleep(0.01)
        os.kill(hung.pid, signal.SIGSTOP)
        heard: list[str] = []
        assert serve.stop(place, kill=False, say=heard.append, seconds=0.2)
        hung.wait()
    assert heard[0] == f"the broker (process {hung.pid}) does not answer: it is killed"
    assert list(place.folder.iterdir()) == []


def _client(block: SharedBlock, pid: int) -> None:
    join(block, 0, name="a", priority=3, pid=pid)


def test_draining_leaves_programs_alone(place: Place) -> None:
    with subprocess.Popen(["sleep", "60"]) as child, served(place, Settings()):
        block = SharedBlock.open(place.block)
        _client(block, child.pid)
        while not snapshot(place)["clients"]:
            time.sleep(0.01)
        assert serve.stop(place, kill=False, say=_ignore)
        assert block.header.stopping == 1
        assert child.poll() is None
        child.kill()
    assert list(place.folder.iterdir()) == []


@pytest.mark.usefixtures("control")
def test_under_an_mps_of_its_own_it_waits_for_programs_and_ends_them_when_told(place: Place) -> None:
    with subprocess.Popen(["sleep", "60"]) as child, served(place, Settings(mps="on")) as said:
        daemon = int((place.mps / "pipe" / "nvidia-cuda-mps-control.pid").read_text())
        block = SharedBlock.open(place.block)
        _client(block, child.pid)
        (place.mps / "clients").write_text(str(child.pid))
        heard: list[str] = []
        assert not serve.stop(place, kill=False, say=heard.append, seconds=2.0)
        assert heard == [
            "draining: every program goes on ungated; the broker stays until they end, for MPS is theirs too"
        ]
        assert child.poll() is None
        assert processes.alive(daemon, 0)
        terminated = place.mps / "heard"
        waiter = threading.Thread(target=child.wait)
        waiter.start()
        assert serve.stop(place, kill=True, say=heard.append)
        waiter.join()
        assert child.returncode == -signal.SIGTERM
        assert not terminated.exists()
        assert not processes.alive(daemon, 0)
    assert any("draining: process" in line for line in said)
    assert list(place.folder.iterdir()) == []


def test_a_broker_that_cannot_say_that_it_is_there_does_not_start_and_leaves_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, value: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(places, "write_json", full)
    with pytest.raises(ShareError, match=r"headway-share-0.json cannot be written: No space left on device"):
        serve.serve(place, gpus.STUB, Settings())
    assert list(place.folder.iterdir()) == []


def test_a_process_whose_number_stands_in_the_lock_but_does_not_hold_it_is_left_alone(place: Place) -> None:
    lock = places.hold(place.lock, alone=True)
    assert lock is not None
    heard: list[str] = []
    with subprocess.Popen(["sleep", "60"]) as other:
        os.pwrite(lock, str(other.pid).encode(), 0)
        with pytest.raises(ShareError, match="does not end: end its process by hand"):
            serve.stop(place, kill=False, say=heard.append, seconds=0.05)
        assert other.poll() is None
        other.kill()
    assert heard == []
    os.close(lock)


def test_a_lock_that_no_broker_holds_is_not_waited_for(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = places.hold(place.lock, alone=True)
    assert lock is not None
    monkeypatch.setattr(places, "SIGNED_S", 0.05)
    asked: list[Callable[[], object]] = [
        lambda: serve.stop(place, kill=True, say=print),
        lambda: serve.stop(place, kill=False, say=print),
        lambda: launch.ensure_broker(place, ["false"], print),
        lambda: snapshot(place),
    ]
    for each in asked:
        with pytest.raises(ShareError, match=r"headway-share-0.lock is held, but by no broker of headway: end the"):
            each()
    assert [path.name for path in place.folder.iterdir()] == [place.lock.name]
    os.close(lock)


def test_a_link_in_the_place_of_the_block_is_neither_followed_nor_removed(place: Place, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    place.block.symlink_to(precious)
    place.state.touch()
    line = (
        "headway-share-0 is a symbolic link, and links are not followed here: have it removed, or choose another folder"
    )
    heard: list[str] = []
    for wanted in (
        lambda: serve.serve(place, gpus.STUB, Settings(), say=heard.append),
        lambda: snapshot(place),
        lambda: serve.stop(place, kill=False, say=heard.append),
    ):
        with pytest.raises(ShareError, match=line):
            wanted()
        assert [path.name for path in place.folder.iterdir()] == ["headway-share-0"]  # what is ours is gone
        assert place.block.readlink() == precious
    (told,) = [check for check in checks(0, lambda: precious) if check.name == "broker"]
    assert not told.ok
    assert line in told.advice
    assert heard == []
    assert precious.read_text() == "precious"
    place.block.unlink()
    with served(place, Settings()):
        assert snapshot(place)["healthy"]


def test_a_link_that_appears_while_the_broker_runs_stays_when_it_ends(place: Place, tmp_path: Path) -> None:
    with served(place, Settings()):
        place.block.unlink()
        place.block.symlink_to(tmp_path / "theirs")
        assert serve.stop(place, kill=False, say=_ignore)
        assert [path.name for path in place.folder.iterdir()] == ["headway-share-0"]

"""What goes wrong in a batch fails the guilty request alone; what goes wrong around it leaves nothing behind."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headway.fleet.live.workers.messages import Evict, Fetch, Fetched, Finished, Loaded, Lost, Rejected, Run
from headway.fleet.live.workers.payload import FOLDER, Payload, sweep, unpack
from tests.fleet.live.driving import Driven, Start, starting
from tests.processes import gone, until

APP = """
import os, sys, time
from pathlib import Path
import numpy as np
import torch
from headway.fleet.live.weights.device import Cpu, Fault
from headway.program.pipeline import graph, model, task

HERE = Path(__file__).parent
MANY = int((HERE / "rows").read_text()) if (HERE / "rows").exists() else 64

@model
def net():
    return torch.nn.Linear(1024, MANY)

@model
def other():
    return torch.nn.Linear(1024, 64)

@task(models=[net], max_batch=8)
def infer(net, xs):
    return [net(x) for x in xs]

@task(max_batch=8)
def picky(xs):
    with (HERE / "calls").open("a") as calls:
        calls.write(f"{len(xs)}\\n")
    for x in xs:
        if x == "bad":
            raise ValueError("bad\\n  input")
        if x == "exit":
            sys.exit(3)
        if x == "memory":
            raise MemoryError("too much")
        if x in ("illegal", "of another"):  # as a GPU is from then on
            Cpu.fault = lambda self: Fault("the device is dead", x == "illegal")
            raise RuntimeError("an illegal memory access was encountered")
        if x == "once" and not (HERE / "twice").exists():
            (HERE / "twice").touch()
            raise torch.OutOfMemoryError("CUDA out of memory")
    return ["lambda" if x != "unpicklable" else (lambda: x) for x in xs]

@task(max_batch=8)
def short(xs):
    return xs[:1]

@task
def no_list(xs):
    return torch.zeros(len(xs))

@task
def hang(xs):
    (HERE / "hangs").touch()
    while True:
        pass

@task
def fork(xs):
    child = os.fork()
    if not child:
        links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
        names = [os.readlink(link) for link in links if os.path.lexists(link)]
        (HERE / "sockets").write_text(repr([name for name in names if name.startswith("socket:")]))
        (HERE / "forked").write_text(str(os.getpid()))
        while not (HERE / "end").exists():
            time.sleep(0.01)
        os._exit(0)
    return [child for _ in xs]

@task
def big(xs):
    return [np.zeros(1 << 20, dtype=np.uint8) for _ in xs]

@task(models=[other])
def others(other, xs):
    return xs

ALONE = [graph(each.name, each) for each in (infer, picky, short, no_list, hang, fork, big, others)]
"""
FUNCTIONS = ("infer", "picky", "short", "no_list", "hang", "fork", "big")
MODELS = ("net", "other")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts workers of the application, ready for orders; they end with the test."""
    yield from starting(tmp_path / "app.py", APP, FUNCTIONS, MODELS)


def failures(driven: Driven, function: str, *inputs: Any) -> dict[int, str]:
    """Why tasks of a batch failed; the others have results."""
    driven.run(function, *inputs)
    driven.expect(Loaded)
    done = driven.expect(Finished)
    assert [bool(each.data) for each in done.results] == [at not in done.failures for at in range(len(inputs))]
    return done.failures


def test_only_the_guilty_request_of_a_batch_fails_with_a_reason_of_one_line(start: Start, tmp_path: Path) -> None:
    driven = start()
    assert failures(driven, "picky", "a", "bad", "b") == {1: "ValueError: bad input"}
    assert (tmp_path / "calls").read_text().split() == ["3", "1", "1", "1"]
    assert failures(driven, "picky", "exit", "b") == {0: "SystemExit: 3"}
    assert failures(driven, "picky", "bad") == {0: "ValueError: bad input"}
    assert failures(driven, "picky", "a") == {}
    assert 'raise ValueError("bad\\n  input")' in driven.text()


def test_a_worker_whose_device_is_dead_says_which_task_did_it_and_ends(start: Start) -> None:
    driven = start()
    assert failures(driven, "picky", "illegal") == {0: "RuntimeError: an illegal memory access was encountered"}
    assert driven.process.wait(timeout=30) == 1
    assert "the device is dead: this worker ends" in driven.text()


def test_a_worker_whose_device_died_by_another_process_ends_without_an_answer(start: Start) -> None:
    driven = start()
    driven.run("picky", "of another")
    assert driven.process.wait(timeout=30) == 1
    driven.expect(Loaded)
    with pytest.raises((EOFError, ConnectionError, AssertionError)):
        driven.expect(Finished)


def test_a_wrong_number_of_results_or_no_list_is_a_failure(start: Start) -> None:
    driven = start()
    driven.run("short", 1, 2)
    driven.expect(Loaded)
    assert driven.results() == [1, 2]  # right when each is alone
    driven.run_joined("no_list", (1,))
    driven.expect(Loaded)
    assert driven.expect(Finished).failures == {0: "no_list returned a Tensor: must be a list of 1 results"}


def test_a_result_that_cannot_be_packed_and_an_input_that_is_gone_fail_alone(start: Start) -> None:
    driven = start()
    found = failures(driven, "picky", "a", "unpicklable")
    assert list(found) == [1]
    assert found[1].startswith("result: ")
    inputs = ((Payload(b"broken"),), (driven.packer.pack("a"),), (Payload(b"", "headway-no-such-block", (1 << 20,)),))
    run = driven.run("picky", "a")  # for its order
    driven.expect(Loaded)
    driven.results()
    driven.send(Run(run + 1, FUNCTIONS.index("picky"), inputs, ()))
    driven.expect(Loaded)
    done = driven.expect(Finished)
    assert sorted(done.failures) == [0, 2]
    assert all(reason.startswith("input: ") for reason in done.failures.values())
    assert unpack(done.results[1]) == "lambda"


def test_out_of_memory_evicts_what_is_unused_retries_once_and_fails_that_request_alone(
    start: Start, tmp_path: Path
) -> None:
    driven = start()
    driven.send(Fetch(70, 1))
    driven.expect(Fetched)
    loaded = driven.rss_bytes()
    driven.run("picky", "memory")
    driven.expect(Loaded)
    assert driven.expect(Lost) == Lost((1,), 70)
    assert driven.expect(Finished).failures == {0: "MemoryError: too much"}
    assert (tmp_path / "calls").read_text().split() == ["1", "1"]
    assert driven.rss_bytes() < loaded - (128 << 10)  # the model of 256 KiB is gone
    assert failures(driven, "picky", "a", "memory") == {1: "MemoryError: too much"}
    assert failures(driven, "picky", "once") == {}
    assert (tmp_path / "twice").exists()


def test_evicting_a_model_makes_the_memory_of_the_process_go_down(start: Start, tmp_path: Path) -> None:
    (tmp_path / "rows").write_text("16384")  # 64 MiB
    driven = start()
    away = driven.rss_bytes()
    driven.send(Fetch(70, 0))
    driven.expect(Fetched)
    here = driven.rss_bytes()
    driven.send(Evict(0))
    driven.run("picky", "a")  # orders are carried out in the order of the stream
    driven.expect(Loaded)
    driven.results()
    assert here - away > 60 << 20
    assert here - driven.rss_bytes() > 60 << 20


def test_two_workers_share_one_host_copy_and_have_the_same_weights(start: Start, tmp_path: Path) -> None:
    first = start()
    copy = tmp_path / "host" / "net.weights"
    inode = copy.stat().st_ino
    second = start(worker=1)
    assert copy.stat().st_ino == inode
    given, found = np.ones(1024, dtype=np.float32), []
    for driven in (first, second):
        driven.run("infer", torch.from_numpy(given), models=["net"])
        driven.expect(Loaded)
        found.append(driven.results()[0].numpy())
        opened = {os.stat(f"/proc/{driven.process.pid}/fd/{each}").st_ino for each in _files(driven.process.pid)}
        assert inode in opened
    assert np.array_equal(*found)


def _files(process: int) -> list[str]:
    folder = Path(f"/proc/{process}/fd")
    return [each.name for each in folder.iterdir() if each.exists()]


def test_a_worker_that_is_killed_leaves_nothing_that_its_prefix_and_folder_do_not_name(
    start: Start, tmp_path: Path
) -> None:
    folder = FOLDER / f"headway-test-host-{os.getpid()}"
    driven = start(host_folder=str(folder))
    driven.run("infer", torch.ones(1024), models=["net"])
    driven.expect(Loaded)
    driven.results()
    driven.run("big", 1)
    driven.expect(Loaded)
    driven.expect(Finished)
    driven.run("hang", 1)
    until(lambda: (tmp_path / "hangs").exists())
    driven.process.send_signal(signal.SIGKILL)
    driven.process.wait(60)
    assert sweep(f"{driven.prefix}-worker") == 1
    shutil.rmtree(folder)
    pid = str(driven.process.pid)  # other servers of this machine may come and go meanwhile
    assert not [path for path in FOLDER.iterdir() if path.name.startswith(driven.prefix) or pid in path.name.split("-")]


def test_a_copy_that_was_cut_short_by_a_kill_is_made_again(start: Start, tmp_path: Path) -> None:
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "net.weights.part").write_bytes(b"half a copy")
    driven = start()
    driven.run("infer", torch.ones(1024), models=["net"])
    driven.expect(Loaded)
    assert driven.results()[0].shape == (64,)
    assert not list((tmp_path / "host").glob("*.part"))


@pytest.mark.parametrize("end", ["SIGTERM", "closed"])
def test_a_hung_worker_ends_at_once_by_sigterm_and_by_a_closed_socket(start: Start, tmp_path: Path, end: str) -> None:
    driven = start()
    driven.run("hang", 1)
    driven.expect(Loaded)
    until(lambda: (tmp_path / "hangs").exists())
    if end == "SIGTERM":
        driven.process.terminate()
        assert driven.process.wait(60) == -signal.SIGTERM
    else:
        driven.ours.close()
        assert driven.process.wait(60) == 0


def test_a_worker_whose_server_is_gone_while_it_prepares_ends(tmp_path: Path) -> None:
    program = f"import time, pathlib\npathlib.Path({str(tmp_path / 'on')!r}).touch()\ntime.sleep(600)"
    (tmp_path / "app.py").write_text(program)
    driven = Driven(tmp_path / "app.py", ())
    try:
        until(lambda: (tmp_path / "on").exists())
        driven.ours.close()
        assert driven.process.wait(60) == 0
    finally:
        driven.close()


def test_a_device_that_is_not_there_is_one_line_and_no_traceback(tmp_path: Path) -> None:
    program = "import headway as hw\n@hw.task\ndef one(xs): return xs\nonly = hw.graph('only', one)"
    (tmp_path / "app.py").write_text(program)
    driven = Driven(tmp_path / "app.py", ("one",), device="tpu:0")
    try:
        assert "tpu:0" in driven.expect(Rejected).reason
        assert driven.process.wait(60) == 1
        assert "Traceback" not in driven.text()
    finally:
        driven.close()


def test_a_forked_child_has_no_hold_of_the_socket(start: Start, tmp_path: Path) -> None:
    driven = start()
    driven.run("fork", 1)
    driven.expect(Loaded)
    (child,) = driven.results()
    until(lambda: (tmp_path / "forked").exists() and (tmp_path / "forked").read_text())
    assert (tmp_path / "sockets").read_text() == "[]"
    driven.process.kill()
    driven.process.wait(60)
    with pytest.raises(AssertionError, match="the worker is gone"):
        driven.answer()
    (tmp_path / "end").touch()
    until(lambda: gone(child))


def test_a_model_that_stops_fitting_is_rejected_and_the_worker_goes_on(start: Start) -> None:
    driven = start(memory_bytes=300 << 10)
    driven.run("infer", torch.ones(1024), models=["net"])
    driven.expect(Loaded)
    driven.results()
    driven.send(Fetch(70, 1))
    refused = driven.expect(Rejected)
    assert "bytes more" in refused.reason
    assert refused.stale
    driven.send(Fetch(71, 1, (0,)))
    assert driven.expect(Fetched).lease == 71

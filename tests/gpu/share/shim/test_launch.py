"""A program under the shim: its environment, its signals, its exit status, and its broker."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from headway.device import locks as places, mps
from headway.device.locks import Place
from headway.device.mps import Mps
from headway.device.nvidia import Gpu
from headway.errors import ShareError
from headway.gpu.share.shim import launch
from headway.gpu.share.shim.launch import Program
from tests.gpu.share.shares import broker_at, join

GPU = Gpu(2, "GPU-cc", "H200", "580", 0)


@pytest.mark.parametrize(
    ("program", "line"),
    [
        (Program([], 0), "no program is given"),
        (Program(["true"], 10), "--priority 10: priorities are 0"),
        (Program(["true"], -1), "--priority -1: priorities are 0"),
        (Program(["no-such-program"], 0), "program 'no-such-program' is not found"),
        (Program(["true"], 0, name="x" * 64), "at most 63 bytes"),
        (Program(["true"], 0, name="a\nb"), "printable"),
    ],
)
def test_a_program_that_cannot_be_run_is_one_line(program: Program, line: str) -> None:
    with pytest.raises(ShareError, match=line):
        launch.checked(program)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "-u", "jobs/serve.py", "--port", "1"], "serve"),
        (["/usr/bin/python3.12", "-m", "vllm.serve", "x"], "vllm.serve"),
        (["torchrun", "train.py"], "train"),
        (["./client", "-m", "x"], "client"),
    ],
)
def test_a_program_is_named_after_its_script(command: list[str], name: str) -> None:
    assert launch.script_of(command) == name
    assert launch.key_of(command).startswith(f"{name}-")
    assert launch.key_of(command) == launch.key_of(list(command))
    assert launch.key_of([*command, "--more"]) != launch.key_of(command)


def test_what_a_program_finds_in_its_environment(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "/lib/theirs.so")
    program = Program(["python", "serve.py"], 3, extra={"MORE": "1"})
    given = launch.environment(program, place, GPU, Path("/lib/ours.so"), None)
    assert given["LD_PRELOAD"] == "/lib/ours.so:/lib/theirs.so"
    assert given["HEADWAY_SHARE"] == str(place.block)
    assert (given["HEADWAY_PRIORITY"], given["HEADWAY_NAME"]) == ("3", "serve")
    assert given["HEADWAY_PROGRAM"] == launch.key_of(["python", "serve.py"])
    assert (given["CUDA_VISIBLE_DEVICES"], given["MORE"]) == ("GPU-cc", "1")
    assert given["PATH"] == os.environ["PATH"]


def test_a_limit_on_sms_is_told_to_mps_and_to_the_shim_and_none_is_inherited(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(mps.SMS, "10")
    monkeypatch.setenv(launch.OWN_SMS, "100000")
    daemon = Mps(Path("/a/pipe"), Path("/a/log"), owned=False)

    def given(sms_ppm: int, under: Mps | None) -> tuple[str | None, str | None]:
        program = Program(["python", "train.py"], 9, sms_ppm=sms_ppm)
        found = launch.environment(program, place, GPU, Path("/lib/ours.so"), under)
        return found.get(mps.SMS), found.get(launch.OWN_SMS)

    assert given(300_000, daemon) == ("30", "300000")
    assert given(0, daemon) == (None, None)
    assert given(300_000, None) == (None, None)


def test_who_runs_above_is_read_from_the_block(place: Place) -> None:
    assert launch.above(place, 5) == []
    _, block, _ = broker_at(place.folder)
    join(block, 0, name="middle", priority=4)
    limited = join(block, 3, name="api", priority=0)
    limited.sms_ppm = 500_000
    join(block, 2, name="same", priority=5)
    assert launch.above(place, 5) == [("api", "api.py.sms-50"), ("middle", "middle.py")]
    assert launch.above(place, 0) == []


def test_its_exit_status_is_passed_on() -> None:
    assert launch.run(["sh", "-c", "exit 7"], os.environ) == 7
    assert launch.run(["sh", "-c", "kill -9 $$"], os.environ) == 128 + 9
    with pytest.raises(ShareError, match="cannot be run: Permission denied"):
        launch.run(["/etc/passwd"], os.environ)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_signals_are_passed_on_and_end_nobody_else(tmp_path: Path, number: signal.Signals) -> None:
    ready = tmp_path / "ready"
    body = f"trap 'exit 9' {number.name[3:]}; touch {ready}; while :; do sleep 0.05; done"

    main = threading.main_thread().ident
    assert main is not None

    def send() -> None:
        while not ready.exists():
            time.sleep(0.01)
        signal.pthread_kill(main, number)  # to the one that waits for it: another thread would swallow it

    # Who was started in the background by a script ignores some of them, and so would the program and its trap.
    before = signal.signal(number, lambda *_: None)
    try:
        sender = threading.Thread(target=send)
        sender.start()
        assert launch.run(["bash", "-c", body], os.environ) == 9
        sender.join()
    finally:
        signal.signal(number, before)


def test_a_program_starts_with_no_signal_held_back() -> None:
    code = "import signal, sys; sys.exit(len(signal.pthread_sigmask(signal.SIG_BLOCK, [])))"
    assert launch.run([sys.executable, "-c", code], os.environ) == 0


def test_a_broker_that_fails_to_start_is_told_with_its_last_words(place: Place) -> None:
    with pytest.raises(ShareError, match=r"the broker did not start: it is too late \(log: .*share-0.log\)"):
        launch.ensure_broker(place, ["sh", "-c", "echo begin; echo headway: it is too late; exit 2"], print)


def test_a_broker_that_is_killed_while_it_starts_is_told_as_that(place: Place) -> None:
    with pytest.raises(ShareError, match=r"the broker did not start: signal 9 ended it \(log: "):
        launch.ensure_broker(place, ["sh", "-c", "echo all is well; kill -9 $$"], print)


def test_a_broker_that_takes_its_leave_is_not_joined(place: Place) -> None:
    handle = places.hold(place.lock, alone=True)
    assert handle is not None
    places.sign(handle)
    places.write_json(place.state, {"pid": os.getpid(), "mode_line": "coarse", "stopping": "drain"})
    with pytest.raises(ShareError, match="is stopping"):
        launch.ensure_broker(place, ["false"], print)
    places.write_json(place.state, {"pid": os.getpid(), "mode_line": "coarse", "stopping": ""})
    assert launch.ensure_broker(place, ["false"], print) == (places.read_json(place.state), False)
    os.close(handle)


def test_whether_a_program_launched_anything_is_known_from_who_left(place: Place) -> None:
    assert launch.launched(place, "a", 0, 0) is None
    handle = places.hold(place.lock, alone=True)
    assert handle is not None
    left = [{"name": "a", "since_ns": 10, "launches": 3}, {"name": "b", "since_ns": 10, "launches": 0}]
    places.sign(handle)
    places.write_json(place.state, {"pid": os.getpid(), "left": left, "looked_ns": time.monotonic_ns()})
    assert launch.launched(place, "a", 10, 0) is True
    assert launch.launched(place, "a", 11, 0) is None  # it may have launched since the broker looked
    later_ns = time.monotonic_ns() + 600 * 10**9
    places.write_json(place.state, {"pid": os.getpid(), "left": left, "looked_ns": later_ns})
    assert launch.launched(place, "a", 11, 0) is False
    assert launch.launched(place, "b", 0, 0) is False
    places.write_json(place.state, {"pid": os.getpid(), "here": ["b"], "left": left})
    assert launch.launched(place, "b", 0, 0) is True
    os.close(handle)


def test_modules_of_sharing_import_without_what_a_gpu_machine_lacks() -> None:
    code = """
        import sys
        for name in ("polars", "msgspec", "plotly", "scipy", "networkx", "fastapi", "ray", "torch"):
            sys.modules[name] = None
        import headway.gpu.share.broker.broker, headway.gpu.share.broker.serve, headway.gpu.share.shim.launch
        import headway.gpu.share.broker.status, headway.gpu.share.shim.doctor, headway.cli.gpu.sharing
        from headway.cli import main
        main(["share", "--help"])
    """
    ran = subprocess.run(
        [
            sys.executable,
            "-c",
            "\n".join(line.strip() for line in code.splitlines()).replace("\nsys.mod", "\n    sys.mod"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr

"""Wrong input to ``headway share``: one clear line each, exit status 2, and what to do."""

import errno
import json
import os
import sys
from pathlib import Path

import pytest

from headway.cli import main
from headway.device import locks as places, nvidia as gpus


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(places.FOLDER, str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HEADWAY_SHARE_LIBRARY", sys.executable)
    monkeypatch.setenv(gpus.ANY_GPU, "1")


def failed(capsys: pytest.CaptureFixture[str], *words: str, group: str = "share") -> str:
    """The one line that a command fails with."""
    with pytest.raises(SystemExit) as ended:
        main([group, *words])
    captured = capsys.readouterr()
    assert ended.value.code == 2
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err.removeprefix("headway: ").strip()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("run",), "no program is given: headway share run --priority 0 -- python serve.py"),
        (("run", "--priority", "10", "--", "true"), "--priority 10: priorities are 0 (highest) to 9 (lowest)"),
        (("run", "--slo", "0.9", "--", "true"), "--slo 0.9: a slow-down of 1 or more"),
        (("run", "--slo", "fast", "--", "true"), "--slo fast: a slow-down of 1 or more"),
        (("run", "--slo", "p50=1.2,p99=1.1", "--", "true"), "the aim for p99 (1.1) is below that for p50 (1.2)"),
        (("run", "--slo", "p99=1.01", "--", "true"), "the aim for p99 (1.01) is below that for p50 (1.05)"),
        (("run", "--slo", "p95=1.1", "--", "true"), "--slo p95=1.1: a number, or p50 and p99 once each"),
        (("run", "--slo", "p50=1.1,p50=1.2", "--", "true"), "a number, or p50 and p99 once each"),
        (("run", "--slo", "p50=1.05,p99=0.5", "--", "true"), "--slo p50=1.05,p99=0.5: a slow-down of 1 or more"),
        (("run", "--slo", "p50=", "--", "true"), "--slo p50=: a slow-down of 1 or more"),
        (("run", "--slo", "1000", "--", "true"), "--slo 1000: a slow-down of 1 or more, up to 100"),
        (("run", "--floor", "120%", "--", "true"), "--floor 120%: a share of the GPU's time between 0% and 50%"),
        (("run", "--floor", "-1", "--", "true"), "--floor -1: a share of the GPU's time"),
        (("run", "--floor", "5", "--", "true"), "between 0% and 50%; did you mean 5%?"),
        (("run", "--linger", "-3s", "--", "true"), "--linger '-3s' must not be negative"),
        (("run", "--memory", "much", "--", "true"), "--memory 'much' is not understood"),
        (("run", "--memory", "5KB", "--", "true"), "--memory 5KB: at least 1MB"),
        (("run", "--mps", "maybe", "--", "true"), "--mps maybe: auto, on or off"),
        (("run", "--linger", "soon", "--", "true"), "--linger 'soon' is not understood"),
        (("run", "--", "no-such-program"), "program 'no-such-program' is not found"),
        (("run", "--", "/etc/passwd"), "program '/etc/passwd' cannot be run: it is not executable"),
        (("run", "--out", "/", "--", "true"), "--out /: holds files already: choose a new folder"),
        (("broker", "--out", "/etc/passwd"), "--out /etc/passwd: is a file, not a folder"),
        (("status",), "no broker of GPU 0 runs: headway share run --priority 0 -- COMMAND starts one"),
        (("status", "--every", "0s"), "--every 0s: longer than nothing"),
        (("status", "--json", "--watch"), "--json and --watch do not go together"),
    ],
)
def test_wrong_input_is_one_line(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], line: str) -> None:
    assert line in failed(capsys, *words)


def test_what_is_no_program_is_no_prediction(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("predict", "/etc/passwd", "matmul")
    assert "/etc/passwd is neither a kernel trace (.parquet" in failed(capsys, *words, group="gpu")


def test_no_gpu_no_library_no_folder(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HEADWAY_SHARE_LIBRARY", str(tmp_path / "none.so"))
    assert "there is no such file: headway share build makes one" in failed(capsys, "run", "--", "true")
    loose = tmp_path / "loose.so"
    loose.touch()
    loose.chmod(0o666)
    monkeypatch.setenv("HEADWAY_SHARE_LIBRARY", str(loose))
    assert f"{loose} is not loaded: others may write to {loose}" in failed(capsys, "run", "--", "true")
    monkeypatch.setenv("HEADWAY_SHARE_LIBRARY", sys.executable)
    monkeypatch.setenv(places.FOLDER, str(tmp_path / "none"))
    assert "is no folder" in failed(capsys, "run", "--", "true")
    monkeypatch.delenv(gpus.ANY_GPU)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    program = Path(sys.executable).resolve()
    monkeypatch.setenv("PATH", "/nowhere")
    assert "no NVIDIA driver is here" in failed(capsys, "run", "--", str(program))


@pytest.mark.parametrize("command", ["run", "status", "stop", "doctor", "broker"])
@pytest.mark.parametrize("number", ["-1", "-12"])
def test_a_negative_gpu_is_refused_by_every_command(
    capsys: pytest.CaptureFixture[str], command: str, number: str
) -> None:
    words = (command, "--gpu", number, *(("--", "true") if command == "run" else ()))
    assert failed(capsys, *words) == f"--gpu {number}: GPUs are numbered from 0 (nvidia-smi -L lists them)"


@pytest.mark.parametrize("words", [("run", "--", "true"), ("broker",)])
def test_a_gpu_in_prohibited_mode_is_refused_before_anything_starts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: tuple[str, ...]
) -> None:
    monkeypatch.delenv(gpus.ANY_GPU)
    monkeypatch.setattr(gpus, "gpus", lambda: [gpus.Gpu(0, "GPU-aa", "NVIDIA H200", "580.1", 1, "Prohibited")])
    line = (
        "GPU 0 (NVIDIA H200) is in compute mode Prohibited, in which no program may use it: nvidia-smi -i 0 -c DEFAULT"
    )
    assert line in failed(capsys, *words)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(SystemExit) as ended:  # the doctor looks at all the same
        main(["share", "doctor", "--json"])
    (check,) = [row for row in json.loads(capsys.readouterr().out)["checks"] if row["name"] == "compute mode"]
    assert (ended.value.code, check["ok"], check["found"]) == (1, False, "Prohibited")
    assert "nvidia-smi -c DEFAULT" in check["advice"]


def test_an_mps_that_is_wanted_and_cannot_be_had_is_the_brokers_last_word(capsys: pytest.CaptureFixture[str]) -> None:
    line = failed(capsys, "run", "--mps", "on", "--", "true")
    assert line.startswith("the broker did not start: --mps on: nvidia-cuda-mps-control is not installed; --mps auto")
    assert "log:" in line


def test_several_brokers_ask_which_is_meant(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for number in (0, 1):
        (tmp_path / f"headway-share-{number}").touch()
    assert failed(capsys, "stop") == "brokers of several GPUs are here (0, 1): say which by --gpu"


def test_the_doctor_prints_all_and_fails_where_something_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["share", "doctor", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert ended.value.code == 0
    assert told["ok"] is True
    monkeypatch.delenv(gpus.ANY_GPU)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SystemExit) as ended:
        main(["share", "doctor", "--", "true"])
    table = capsys.readouterr().out
    assert ended.value.code == 1
    for name in ("GPU", "driver", "MPS", "compiler", "library", "shared memory", "broker", "coverage"):
        assert name in table
    assert "→ put right what is wrong above" in table


def test_the_commands_of_sharing_are_those_of_the_whole_program() -> None:
    from headway.cli.gpu.sharing import share
    from headway.cli.program import app

    assert share in [group.typer_instance for group in app.registered_groups]
    assert [command.callback.__name__ for command in share.registered_commands if command.callback] == [
        *("run", "status", "stop", "doctor", "build", "broker")
    ]


@pytest.mark.parametrize("words", [("run", "--", "true"), ("status",), ("stop",)])
def test_a_link_in_the_place_of_a_lock_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "precious").write_text("precious")
    for ending in ("lock", "users"):
        (tmp_path / f"headway-share-0.{ending}").symlink_to(tmp_path / "precious")
    assert "is a symbolic link, and links are not followed here: have it removed" in failed(capsys, *words)
    assert (tmp_path / "precious").read_text() == "precious"


@pytest.mark.parametrize("words", [("run", "--", "true"), ("status",), ("stop",), ("broker",)])
def test_a_link_in_the_place_of_the_block_is_one_line_and_stays(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr("headway.cli.gpu.share.signal.signal", lambda number, handler: None)
    (tmp_path / "precious").write_text("precious")
    block = tmp_path / "headway-share-0"
    block.symlink_to(tmp_path / "precious")
    assert failed(capsys, *words) == (
        f"{block} is a symbolic link, and links are not followed here: "
        "have it removed, or choose another folder (HEADWAY_SHARE_FOLDER)"
    )
    assert list(tmp_path.glob("headway-share-*")) == [block]
    assert block.readlink() == tmp_path / "precious"
    assert (tmp_path / "precious").read_text() == "precious"


def test_a_block_that_finds_no_room_is_the_brokers_last_word(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(handle: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    monkeypatch.setattr("headway.cli.gpu.share.signal.signal", lambda number, handler: None)
    with pytest.raises(SystemExit) as ended:
        main(["share", "broker"])
    assert ended.value.code == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("headway: no memory for the shared block: it takes 41.29 MB")
    assert list(tmp_path.glob("headway-share-*")) == []


def test_without_a_gpu_the_compute_mode_is_not_fine(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(gpus.ANY_GPU)
    monkeypatch.setattr(gpus, "gpus", list)
    with pytest.raises(SystemExit):
        main(["share", "doctor", "--json"])
    (check,) = [row for row in json.loads(capsys.readouterr().out)["checks"] if row["name"] == "compute mode"]
    assert (check["ok"], check["found"]) == (False, "unknown: there is no GPU")

"""The commands as a user types them, one after another, in a short version on the stub driver."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench.gpu_share_commands import Programs, commands, programs
from bench.gpu_share_real import is_broker, mps_processes, real
from bench.gpu_share_tiny import SPAN, spans

TINY = [sys.executable, "-m", "bench.gpu_share_tiny", "LOG"]
SHORT = Programs([*TINY, "4", "2"], [*TINY, "10"], [*TINY, "4", "0", "30"], seconds=0.8)


@pytest.mark.parametrize("mps", ["on", "off"])
def test_every_command_does_what_it_says_and_nothing_is_left(stub: dict[str, str], tmp_path: Path, mps: str) -> None:
    row = commands(tmp_path, 300, replace(SHORT, mps=mps, environment=stub))
    assert row["ok"], row
    assert all(row["checks"].values())
    assert all(step["ok"] for step in row["steps"]), row["steps"]
    assert row["coverage"]["seen"] == row["coverage"]["counted"] == 120
    assert {each["name"]: each["priority"] for each in row["clients"]} == {"api": 0, "batch": 5}
    assert row["mode"].startswith("MPS: started" if mps == "on" else "coarse")
    assert any("kernels of resnet50 are known" in line for line in row["known"])
    assert row["api_beside"]["requests"] > 0
    printed = (tmp_path / "commands.txt").read_text()
    for line in ("$ headway share doctor\n", "$ headway profile kernels --seconds 0.8 --name resnet50 -- python -m"):
        assert line in printed
    for word in ("of the GPU can be harvested", "goes first", "launches seen, ", "[status 0, "):
        assert word in printed


def test_a_step_that_fails_is_told_and_stops_no_other(stub: dict[str, str], tmp_path: Path) -> None:
    broken = replace(SHORT, counted=["false"], batch=["false"], mps="off", environment=stub, seconds=0.4)
    row = commands(tmp_path, 300, broken)
    failed = {step["step"]: step["said"] for step in row["steps"] if not step["ok"]}
    assert "no launch was seen" in failed["doctor with a program"]
    assert not row["ok"]
    assert not row["checks"]["coverage"]
    assert not row["checks"]["status"]
    assert row["checks"]["profiled"]
    assert row["checks"]["went_on"]
    assert row["checks"]["nothing_left"]


def test_the_programs_of_torch_are_whole(tmp_path: Path) -> None:
    made = programs(tmp_path)
    for command in (made.serve, made.batch):
        compile(Path(command[1]).read_text(), command[1], "exec")
    assert made.counted[:-1] == list(made.serve)


def test_a_command_that_takes_too_long_is_broken_off(stub: dict[str, str], tmp_path: Path) -> None:
    with real(tmp_path / "real", stub) as with_:
        ran = with_.do(["share", "run", "--mps", "off", "--", "sleep", "600"], 2.0)
    assert ran.rc is None
    assert not any(with_.left().values())


def test_what_is_not_there_is_not_seen(tmp_path: Path) -> None:
    assert spans(tmp_path / "none") == []
    (tmp_path / "torn").write_bytes(SPAN.pack(1, 2) + b"torn")
    assert spans(tmp_path / "torn") == [(1, 2)]
    assert mps_processes(tmp_path) == []
    assert not is_broker(1)

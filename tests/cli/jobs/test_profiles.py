"""``headway profile``: what it prints, what it says when things go wrong, and that a stop leaves nothing behind."""

import json
import signal
import sys
from pathlib import Path

import pytest

from headway.cli import main
from headway.jobs.profiling import bandwidth, watch
from tests.processes import gone, program, until
from tests.profiling.programs import FAMILY, SLEEPER, written


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(watch, "LEAST_S", 0.2)
    monkeypatch.setattr(bandwidth, "LONGEST_S", 0.05)
    monkeypatch.setattr(bandwidth, "_TRIAL_BYTES", 4 << 20)
    monkeypatch.setenv("HEADWAY_PROFILES", str(tmp_path / "profiles"))


def ran(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["profile", *arguments])
    return int(ended.value.code or 0)


def test_a_program_is_profiled_shown_listed_and_simulated_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = written(tmp_path, SLEEPER)
    assert ran("job", "--cpus", "1", "--steps", "20", "--check", "1", "--", *command) == 0
    told = capsys.readouterr()
    assert "wants 1 CPUs a GPU; at 1 CPU 100 % of its speed" in told.out
    assert "off by" in told.out
    assert "its data set is not known" in told.out
    assert "1 CPUs: " in told.err
    assert ran("job", "--cpus", "1", "--steps", "20", "--check", "1", "--json", *command) == 0
    told = capsys.readouterr()
    found = json.loads(told.out)
    assert found["measured_before"]
    assert found["wants_cpus"] == 1
    assert "measured before" in told.err
    assert Path(found["file"]).parent == tmp_path / "profiles"

    assert ran("list", "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["model"] == "train"
    assert ran("list") == 0
    assert row["key"] in capsys.readouterr().out
    for name in ("train", row["key"][:6], row["file"]):
        assert ran("show", name, "--json") == 0
        assert json.loads(capsys.readouterr().out)["throughput"] == found["throughput"]
    assert ran("show", "trian") == 2
    assert "did you mean 'train'?" in capsys.readouterr().err

    (tmp_path / "jobs.csv").write_text("submit_s,work_s,gpus,model\n0,60,1,train\n")
    size = ["--nodes", "1", "--gpus-per-node", "1", "--cpus-per-node", "4", "--memory-per-node", "8GB"]
    where = [str(tmp_path / "jobs.csv"), "--profiles", str(tmp_path / "profiles")]
    more = ["--allocation", "tune", "--set", "speed.model=matrix", "--json", "--confidence", "0"]
    with pytest.raises(SystemExit) as ended:
        main(["jobs", "simulate", *where, *size, *more])
    assert not ended.value.code
    assert json.loads(capsys.readouterr().out)["finished"] == 1


def test_no_profiles_is_said_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert ran("list") == 0
    told = capsys.readouterr()
    assert told.out == ""
    assert "headway profile job -- python train.py makes one" in told.err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["job"], "no program was given"),
        (["job", "--cpus", "1", "--", "no-such-program"], "no-such-program: there is no such program"),
        (["job", "--cpus", "0.1-900", "--", "true"], "this machine has"),
        (["job", "--check", "x", "--", "true"], "--check 'x' is not understood"),
        (["job", "--check", "9999", "--", "true"], "--check 9999: this machine has"),
        (["job", "--check", "-1", "--", "true"], "--check -1: at least"),
        (["show", "mine"], "there is no profile 'mine': none is stored in"),
        (["job", "--timeout", "soon", "--", "true"], "--timeout 'soon' is not understood"),
        (["job", "--bytes-per-sample", "big", "--", "true"], "--bytes-per-sample 'big' is not understood"),
        (["job", "--cpus", "1", "--", "true"], "ended without a step: call headway.step()"),
        (["job", "--cpus", "1", "--", sys.executable, "-c", "print('at layer 3'); raise SystemExit(7)"], "status 7"),
    ],
)
def test_what_goes_wrong_is_one_line_and_status_2(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert ran(*arguments) == 2
    told = capsys.readouterr()
    assert told.out == ""
    last = told.err.splitlines()[-1]
    assert last.startswith("headway: ")
    assert line in last
    assert ("  at layer 3" in told.err) == ("status 7" in line)
    assert not (tmp_path / "profiles").exists()


@pytest.mark.parametrize(("stop", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stop_in_the_middle_kills_the_program_and_writes_nothing(
    stop: signal.Signals, status: int, tmp_path: Path
) -> None:
    command = [*written(tmp_path, FAMILY), str(tmp_path)]
    out = tmp_path / "out.toml"
    with program("profile", "job", "--cpus", "1", "--steps", "100000", "--out", out, "--", *command) as running:
        until(lambda: (tmp_path / "processes").exists() and (tmp_path / "processes").read_text(), running)
        processes = [int(each) for each in (tmp_path / "processes").read_text().split()]
        running.send_signal(stop)
        _, told = running.communicate()
    assert running.returncode == status
    assert all(map(gone, processes))
    assert "Traceback" not in told
    assert not out.exists()
    assert not (tmp_path / "profiles").exists()

"""``headway profile kernels``: what it prints and writes, and what it says when things go wrong."""

import json
import sys
from pathlib import Path

import pytest

from headway.cli import main
from headway.gpu.programs import trace as kernel_trace
from headway.gpu.programs.store import KernelStore
from tests.gpu.profiling import test_kernels_native as recording
from tests.native.harness import Built

native_folder, built, cupti = recording.native_folder, recording.built, recording.cupti


@pytest.fixture(autouse=True)
def _stub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, built: Built, cupti: Path) -> None:
    monkeypatch.setenv("HEADWAY_SHARE_ANY_GPU", "1")
    monkeypatch.setenv("HEADWAY_SHARE_LIBRARY", str(built.shim))
    monkeypatch.setenv("HEADWAY_PROFILES", str(tmp_path / "profiles"))


def ran(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["profile", "kernels", *arguments])
    return int(ended.value.code or 0)


def test_a_program_is_profiled_shown_and_kept(built: Built, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = recording.client(built, "--launch", "300", "--gap-us", "100", "--sync-every", "10")
    assert ran("--name", "api", "--perfetto", str(tmp_path / "t.json"), "--", *command) == 0
    told = capsys.readouterr().out
    assert "api on stub, driver stub: 298 launches in " in told
    assert "% of the GPU can be harvested, in gaps of 4us and more" in told
    assert "the shim saw 300 launches, CUPTI 300" in told
    assert "b (132,1,1)x(256,1,1)+1024" in told
    assert "█" in told
    store = KernelStore("stub", "stub")
    known = store.load("api")
    assert known is not None
    assert {row["name"].split(" (")[0]: row["work_ns"] for row in known[0]} == {"a": 20_000, "b": 50_000}
    assert known[1]
    summary = (store.entry("api") or {})["summary"]
    assert summary.keys() == {
        "busy_share",
        "idle_share",
        "launches_per_s",
        "harvestable_share",
    }
    assert len(kernel_trace.read(store.path("api").with_suffix(".parquet"))) == 298
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]

    out = tmp_path / "api.parquet"
    assert ran("--json", "--seconds", "30", "--threshold", "1ms", "--out", str(out), "--", *command) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["coverage"] == {
        "seen": 300,
        "counted": 300,
        "equal": True,
        "ns_a_launch": found["coverage"]["ns_a_launch"],
    }
    assert found["threshold_ns"] == 1_000_000
    assert found["times"] == "cupti"
    assert found["program"].startswith("client-")  # as headway share run calls it
    assert (found["trace"], found["command"]) == (str(out), command)
    assert Path(found["profile"]).exists()
    assert found["harvestable_share"] <= found["idle_share"]


def test_without_cupti_it_says_where_the_times_come_from(
    built: Built, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWAY_CUPTI", "off")
    command = recording.client(built, "--launch", "300", "--gap-us", "100", "--sync-every", "1")
    assert ran("--json", "--", *command) == 0
    told = capsys.readouterr()
    found = json.loads(told.out)
    assert (found["times"], found["coverage"]) == ("sampled", None)
    assert "times on the GPU are worked out from sampled durations: HEADWAY_CUPTI=off" in told.err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "no program was given"),
        (["--", "no-such-program"], "no-such-program: there is no such program"),
        (["--", "true"], "true: no launch was seen"),
        (["--seconds", "-1", "--", "true"], "--seconds -1: must be more than 0"),
        (["--threshold", "soon", "--", "true"], "--threshold 'soon' is not understood"),
        (["--out", "/no/such/folder/a.parquet", "--", "true"], "there is no folder /no/such/folder"),
        (["--out", "/tmp", "--", "true"], "is a folder, not a file"),
        (["--perfetto", "t.txt", "--", "true"], "the name must end in .json"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran(*arguments) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert line in told.err
    assert len(told.err.splitlines()) == 1


def test_without_a_gpu_it_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("HEADWAY_SHARE_ANY_GPU")
    monkeypatch.setenv("PATH", "/nonexistent")
    assert ran("--", sys.executable) == 2
    told = capsys.readouterr()
    assert len(told.err.splitlines()) == 1
    assert "no NVIDIA driver is here" in told.err

"""The shim's own recording, compiled and run: with a CUPTI and without, after a fork, on a timer; and whole."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from headway.errors import ProfileError
from headway.gpu.profiling.coverage import coverage, coverage_of
from headway.gpu.profiling.kernels import step_rows, trace_of
from headway.gpu.profiling.recording import read
from headway.gpu.profiling.run import run
from headway.gpu.profiling.summary import summarise
from headway.gpu.show import timeline as kernel_timeline
from tests.native import conftest as native
from tests.native.harness import NATIVE, Built, compiled

native_folder, built = native.native_folder, native.built
LONG_S = 60
SANITIZERS = {
    "plain": (),
    "asan": ("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    "tsan": ("-fsanitize=thread",),
}


@dataclass(frozen=True)
class Probe:
    """A program that traces launches of round numbers, and the CUPTI that it reports them to."""

    program: Path
    cupti: Path

    def run(self, folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        ours = {"HEADWAY_TRACE": str(folder / "t"), "HEADWAY_CUPTI": str(self.cupti), "PATH": os.environ["PATH"]}
        ours["TSAN_OPTIONS"] = "exitcode=66:die_after_fork=0"
        call = [self.program, *words]
        return subprocess.run(call, env=ours | more, capture_output=True, text=True, check=False, timeout=LONG_S)


@pytest.fixture(scope="session", params=sorted(SANITIZERS))
def probe(native_folder: Path, request: pytest.FixtureRequest) -> Probe:
    flags = SANITIZERS[request.param]
    folder = native_folder / f"trace-{request.param}-{os.getpid()}"
    folder.mkdir(exist_ok=True)
    parts = ("trace", "cupti", "share", "door")
    own = [NATIVE / "test" / "trace_probe.cpp", *(NATIVE / f"{name}.cpp" for name in parts)]
    cupti = compiled(folder / "libcupti_stub.so", [NATIVE / "test" / "cupti_stub.cpp"], *flags, "-fPIC", "-shared")
    return Probe(compiled(folder / "probe", own, *flags), cupti)


def test_what_the_shim_writes_is_what_was_launched(probe: Probe, tmp_path: Path) -> None:
    ended = probe.run(tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    (path,) = tmp_path.iterdir()
    found = read(path)
    assert len(found.launches) == 300
    assert len(found.activities) == 500
    assert len(set(found.launches["thread"].tolist())) == 2
    assert (found.about["gpu"], found.number("sms")) == ("Stub GPU", 132)
    assert coverage_of(found).equal
    assert coverage_of(found).ns_a_launch == 150
    assert [row["gap_ns"] for row in step_rows(found)] == [20_000]
    assert {(int(row["reason"]), int(row["end_ns"] - row["begin_ns"])) for row in found.gates} == {(9, 5_000)}
    summary = summarise(trace_of(found))
    took = {use.name.split(" (")[0]: use.mean_ns for use in summary.kernels}
    assert {name: round(mean, -2) for name, mean in took.items()} == {
        "alpha": 10_000,
        "beta": 20_000,
        "graph 0": 30_000,
    }
    assert summary.busy_share == pytest.approx(0.3, abs=0.01)
    assert summary.waits == 99


def test_without_cupti_launches_and_waits_are_written_and_it_is_said_once(probe: Probe, tmp_path: Path) -> None:
    for refused in ({"HEADWAY_CUPTI": "off"}, {"HEADWAY_CUPTI": "/nonexistent.so"}, {"CUPTI_STUB_REFUSE": "1"}):
        ended = probe.run(tmp_path, **refused)
        assert ended.returncode == 0
        assert ended.stderr.count("no times of the GPU, launches only") == 1
        (path,) = tmp_path.iterdir()
        found = read(path)
        path.unlink()
        assert (len(found.launches), len(found.waits), len(found.activities)) == (300, 100, 0)
        assert found.about["cupti"] == ""
        assert found.about["why"]


def test_a_child_that_launches_nothing_writes_nothing(probe: Probe, tmp_path: Path) -> None:
    ended = probe.run(tmp_path, "fork")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert len(list(tmp_path.iterdir())) == 1


def test_nothing_is_recorded_where_nobody_asked_or_nothing_was_launched(probe: Probe, tmp_path: Path) -> None:
    assert probe.run(tmp_path, HEADWAY_TRACE="").returncode == 3  # the probe says that tracing is off
    assert probe.run(tmp_path, "idle").returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_on_a_timer_the_file_is_there_while_the_program_runs_on(probe: Probe, tmp_path: Path) -> None:
    ours = {**os.environ, "HEADWAY_TRACE": str(tmp_path / "t"), "HEADWAY_CUPTI": str(probe.cupti)}
    with subprocess.Popen([probe.program, "wait"], env={**ours, "HEADWAY_TRACE_SECONDS": "0.2"}) as process:
        try:
            path, until = tmp_path / f"t.{process.pid}", time.monotonic() + LONG_S
            while not path.exists() and time.monotonic() < until:
                time.sleep(0.01)
            assert process.poll() is None
            assert len(read(path).launches) == 300
        finally:
            process.send_signal(signal.SIGKILL)


def test_programs_that_were_recorded_into_one_timeline_lie_side_by_side_on_it(probe: Probe, tmp_path: Path) -> None:
    target = tmp_path / "both.json"
    for name in ("api", "batch"):
        assert probe.run(tmp_path, HEADWAY_NAME=name, **kernel_timeline.environment(target)).returncode == 0
    assert kernel_timeline.write(target) == target
    assert [path.name for path in tmp_path.iterdir()] == ["both.json"]
    events = json.loads(target.read_text())["traceEvents"]
    clients = {event["args"]["name"].split(" (")[0] for event in events if event["name"] == "process_name"}
    assert clients == {"api", "batch"}
    slices = Counter(event["cat"] for event in events if event["ph"] == "X")
    assert slices == {"launch": 600, "kernel": 400, "graph": 200, "wait": 200, "gate": 200}


def test_a_place_that_cannot_be_written_is_said_and_the_program_goes_on(probe: Probe, tmp_path: Path) -> None:
    ended = probe.run(tmp_path, HEADWAY_TRACE=str(tmp_path / "no" / "t"))
    assert ended.returncode == 0
    assert "could not be written" in ended.stderr


# --- the whole shim, on the stub driver -----------------------------------------------------------------------------


@pytest.fixture
def cupti(built: Built, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A CUPTI that the stub driver reports to."""
    path = built.folder / "libcupti_stub.so"
    if not path.exists():
        made = compiled(
            built.folder / f"libcupti_stub.{os.getpid()}.so", [NATIVE / "test" / "cupti_stub.cpp"], "-fPIC", "-shared"
        )
        made.replace(path)
    monkeypatch.setenv("LD_PRELOAD", str(path))
    monkeypatch.setenv("HEADWAY_CUPTI", str(path))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(built.folder))
    return path


def client(built: Built, *flags: str) -> list[str]:
    return [str(built.folder / "client"), "--reach", "proc0", "--kernel", "a:20", "--kernel", "b:50", *flags]


def test_a_program_is_recorded_with_the_times_that_the_driver_gave(built: Built, cupti: Path) -> None:
    command = client(built, "--launch", "400", "--sync-every", "10")
    trace = trace_of(run(command, library=built.shim, program="mine"), command, program="mine")
    took = dict(zip(trace.kernel.tolist(), (trace.end_ns - trace.start_ns).tolist(), strict=True))
    assert {name.split(" (")[0]: round(ns, -3) for name, ns in took.items()} == {"a": 20_000, "b": 50_000}
    assert len(trace) == 398  # all but the first of each
    assert int((trace.wait_ns > 0).sum()) == 40
    assert trace.program == "mine"
    assert set(trace.per_sm.tolist()) == {8}


def test_the_shim_sees_every_launch_that_cupti_counts(built: Built, cupti: Path) -> None:
    for flags in (("--launch", "700"), ("--launch", "300", "--threads", "3"), ("--verb", "every", "--launch", "3")):
        found = coverage(client(built, *flags), library=built.shim)
        assert found.equal, flags
        assert found.seen > 0


def test_a_program_that_does_not_end_is_stopped_when_it_was_traced_for_long_enough(built: Built, cupti: Path) -> None:
    command = client(built, "--for-ms", "600000", "--gap-us", "200", "--sync-every", "5")
    found = run(command, 0.3, library=built.shim)
    assert len(found.launches) > 10
    with pytest.raises(ProcessLookupError):
        os.kill(found.process, 0)


@pytest.mark.parametrize(
    ("command", "seconds", "line"),
    [
        ([], None, "no program was given"),
        (["no-such-program"], None, "no-such-program: there is no such program"),
        (["true"], None, "true: no launch was seen: is it a CUDA program"),
        (["false"], None, "false: no launch was seen: it ended with status 1"),
        (["true"], 0.0, "--seconds 0: must be more than 0"),
    ],
)
def test_what_cannot_be_recorded_is_said_in_one_line(
    built: Built, command: list[str], seconds: float | None, line: str
) -> None:
    with pytest.raises(ProfileError, match=line) as said:
        run(command, seconds, library=built.shim)
    assert "\n" not in str(said.value)


def test_a_shim_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"none\.so: the shim is not there; headway share build makes it"):
        run(["true"], library=tmp_path / "none.so")


BLOCKED = """
import importlib, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("polars", "msgspec", "plotly"):
            raise ImportError(name)
sys.meta_path.insert(0, Blocked())
for name in sys.argv[1:]:
    importlib.import_module(name)
"""


def test_a_gpu_machine_needs_neither_polars_nor_msgspec_nor_plotly() -> None:
    here = Path(__file__).resolve().parents[3] / "src" / "headway"
    files = [
        *here.glob("gpu/profiling/*.py"),
        *here.glob("gpu/show/*.py"),
        here / "gpu/programs/store.py",
        here / "cli" / "gpu" / "kernel_profiles.py",
    ]
    files.append(here / "gpu" / "share" / "recorded" / "story.py")
    heavy = ("page", "export")  # made where polars and plotly are
    light = [file for file in files if file.stem not in heavy]
    names = [".".join(file.relative_to(here.parent).with_suffix("").parts) for file in light]
    ended = subprocess.run([sys.executable, "-c", BLOCKED, *names], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr

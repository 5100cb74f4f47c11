"""Every entry point, however a program comes by it: the shim counts what the driver sees, and nothing is changed."""

import subprocess
from pathlib import Path

import pytest

from tests.native.harness import NATIVE, Built, compiled
from tests.native.mini_broker import MiniBroker

WAYS = ["direct", "dlsym", "dlsym-threads", "default", "next", "proc0", "proc2", "old0", "nested", "nested-old2"]
WAYS += ["runtime0", "runtime2"]
KERNELS = ("cuLaunchKernel", "cuLaunchCooperativeKernel")
SYNCS = ("cuStreamSynchronize", "cuEventSynchronize", "cuCtxSynchronize")


@pytest.mark.parametrize("priority", [0, 5])
@pytest.mark.parametrize("way", WAYS)
def test_every_entry_point_is_seen_however_it_is_reached(
    built: Built, broker: MiniBroker, tmp_path: Path, way: str, priority: int
) -> None:
    run = built.run(tmp_path, broker.path, "--reach", way, "--verb", "every", "--launch", "3", priority=priority)
    assert (run.status, run.did["errors"], run.did["intact"], run.said) == (0, 0, True, "")
    ledger = broker.wait(1)[0].ledger
    launched = [row for row in run.calls(*KERNELS) if not row["captured"]]
    devices = [row for row in launched if row["call"].endswith("MultiDevice")]
    # One call of the multi-device function launches on two: it is one launch to the shim.
    assert ledger["kernels"] == len(launched) - len(devices) // 2
    assert ledger["captured"] == len([row for row in run.calls(*KERNELS) if row["captured"]]) == run.did["captured"]
    assert ledger["graphs"] == len(run.calls("cuGraphLaunch")) == run.did["graphs"]
    assert ledger["copies"] == len(run.calls("cuMemcpy", "cuMemset")) == run.did["copies"] == 8 + 9 + 12
    # A copy from or to the host waits, and is a wait as well; one within or between GPUs is not, nor is a memset.
    assert ledger["syncs"] == len(run.calls(*SYNCS)) + 3 + 1
    assert run.total("event in a capture", "broken capture") == 0


def test_the_variant_that_was_asked_for_is_the_one_that_is_called(
    built: Built, broker: MiniBroker, tmp_path: Path
) -> None:
    for way, threads in (
        ("dlsym", False),
        ("dlsym-threads", True),
        ("proc0", False),
        ("proc2", True),
        ("nested-old2", True),
        ("runtime0", False),
        ("runtime2", True),
    ):
        run = built.run(tmp_path, broker.path, "--reach", way, "--verb", "every", "--launch", "2", name=way)
        calls = {row["call"] for row in run.log if not row["call"].endswith("MultiDevice")}
        streams = {
            name
            for name in calls
            if name.startswith(("cuLaunch", "cuGraphLaunch", "cuMem", "cuStreamSync", "cuStreamE"))
        }
        assert {name.endswith(("_ptsz", "_ptds")) for name in streams} == {threads}, way


def test_names_come_from_kernel_handles_too(built: Built, broker: MiniBroker, tmp_path: Path) -> None:
    built.run(tmp_path, broker.path, "--handles", "--kernel", "inner_kernel:30", "--reach", "proc2")
    row = broker.wait(1)[0].kernels["inner_kernel (132,1,1)x(256,1,1)+1024"]
    assert (row["launches"], row["blocks"], row["per_sm"]) == (100, 132, 8)


def test_a_handle_that_comes_back_as_another_function_is_another_kernel(
    built: Built, broker: MiniBroker, tmp_path: Path
) -> None:
    run = built.run(tmp_path, broker.path, "--verb", "reload")
    assert run.did["errors"] == 0
    launches = {name.split(" (")[0]: row["launches"] for name, row in broker.wait(1)[0].kernels.items()}
    assert launches == {"before": 10, "after": 10, "at last": 10}


@pytest.mark.parametrize("priority", [0, 5])
def test_launches_of_many_threads_are_all_counted(
    built: Built, broker: MiniBroker, tmp_path: Path, priority: int
) -> None:
    flags = ("--threads", "4", "--launch", "3000", "--kernel", "a:2", "--kernel", "b:3", "--sync-every", "50")
    run = built.run(tmp_path, broker.path, *flags, priority=priority)
    assert (run.did["launches"], run.did["errors"], run.did["intact"]) == (12_000, 0, True)
    assert broker.wait(1)[0].ledger["kernels"] == 12_000 == len(run.calls("cuLaunchKernel"))


@pytest.mark.parametrize("raised", [0, 2])
def test_a_result_of_the_driver_is_the_programs_result(built: Built, share: Path, tmp_path: Path, raised: int) -> None:
    with MiniBroker(share, {0: {"raised": raised}}) as broker:
        run = built.run(tmp_path, share, "--verb", "fail")
        assert (run.status, run.did["errors"]) == (0, 0)
        broker.wait(1)


def test_a_raised_program_gets_the_highest_priority_and_keeps_what_it_chose_itself(
    built: Built, share: Path, tmp_path: Path
) -> None:
    with MiniBroker(share, {0: {"raised": 2}}) as broker:
        flags = ("--threads", "2", "--launch", "20", "--reach", "proc0")
        plain = built.run(tmp_path, share, *flags, name="plain")
        own = built.run(tmp_path, share, *flags, "--ex", "--own-priority", "-2", name="own")
        broker.wait(2)
    assert (plain.did["intact"], own.did["intact"]) == (True, True)
    assert {row["priority"] for row in plain.calls("cuLaunch")} == {-5}
    assert {row["priority"] for row in plain.calls("cuStreamCreate")} == {-5}
    assert {row["priority"] for row in own.calls("cuLaunch")} == {-2}


def test_a_library_that_asks_for_the_next_function_gets_the_next(
    built: Built, broker: MiniBroker, tmp_path: Path
) -> None:
    between = compiled(tmp_path / "libnext.so", [NATIVE / "test" / "next.cpp"], "-fPIC", "-shared")
    run = built.run(tmp_path, broker.path, "--sleep-ms", "5", LD_PRELOAD=f"{built.shim}:{between}")
    assert (run.status, run.did["errors"], run.said) == (0, 0, "")


def test_a_program_without_a_gpu_is_left_alone(built: Built, broker: MiniBroker) -> None:
    environment = built.environment(broker.path)
    ran = subprocess.run(["/bin/echo", "hello"], env=environment, capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("hello\n", "")
    assert broker.past == []

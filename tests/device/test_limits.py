"""Programs held to CPUs and memory: quotas where groups can be made, whole CPUs where not, and nothing left over."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headway.device import cgroups, limits
from headway.device.limits import Limits
from headway.errors import ProfileError
from headway.jobs.profiling import cleanup
from tests.processes import gone, until
from tests.profiling.programs import FAMILY, written

SPIN = "import time\nwhile True: pass"
HERE = limits.here()
WITHOUT = Limits(None, HERE.cpu_numbers, len(HERE.cpu_numbers), HERE.memory_bytes)


def used(offers: Limits, cpus: float, seconds: float = 1.0) -> float:
    """CPUs that a program without end has used, of those it was given."""
    with offers.start([sys.executable, "-c", SPIN], cpus) as held:
        until(lambda: held.cpu_seconds() > 0.05)
        before, began = held.cpu_seconds(), time.monotonic()
        time.sleep(seconds)
        return (held.cpu_seconds() - before) / (time.monotonic() - began)


def test_a_program_has_the_part_of_a_cpu_that_it_was_given_or_a_line_says_why_not() -> None:
    if HERE.fractions:
        assert used(HERE, 0.3) == pytest.approx(0.3, rel=0.15)
    else:
        with pytest.raises(ProfileError, match="only whole CPUs can be given"):
            used(HERE, 0.3)


def test_a_quota_that_is_held_back_comes_later() -> None:
    with HERE.start([sys.executable, "-c", SPIN], 1, at_once=False) as held:
        until(lambda: held.cpu_seconds() > 0.05)
        held.limit()
        assert held.process.poll() is None


def test_without_groups_a_program_has_whole_cpus_and_cannot_leave_them() -> None:
    code = "import os, sys; sys.stdout.write(str(len(os.sched_getaffinity(0))))"
    with WITHOUT.start([sys.executable, "-c", code], 1, output=subprocess.PIPE) as held:
        assert held.process.stdout is not None
        assert held.process.stdout.read() == b"1"
        held.process.stdout.close()
    with pytest.raises(ProfileError, match=r"0\.5 CPUs: .*only whole CPUs"):
        WITHOUT.start([sys.executable, "-c", SPIN], 0.5)
    assert WITHOUT.means == "affinity, whole CPUs only"


def test_pinning_is_seen_by_the_program() -> None:
    one = HERE.cpu_numbers[-1]
    code = "import os, sys; sys.stdout.write(str(os.sched_getaffinity(0)))"
    with HERE.start([sys.executable, "-c", code], 1, pin=[one], output=subprocess.PIPE) as held:
        assert held.process.stdout is not None
        assert held.process.stdout.read() == str({one}).encode()
        held.process.stdout.close()


def test_the_variables_for_threads_match_the_cpus() -> None:
    code = "import os, sys; sys.stdout.write(' '.join(os.environ[k] for k in sys.argv[1:]))"
    names = ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "HEADWAY_CPUS"]
    with HERE.start([sys.executable, "-c", code, *names], 1, output=subprocess.PIPE) as held:
        assert held.process.stdout is not None
        assert held.process.stdout.read() == b"1 1 1 1 1"
        held.process.stdout.close()
    assert limits.thread_variables(2.5)["OMP_NUM_THREADS"] == "3"
    assert limits.thread_variables(0.25)["OMP_NUM_THREADS"] == "1"
    assert limits.thread_variables(0.25)["HEADWAY_CPUS"] == "0.25"


@pytest.mark.parametrize("offers", [HERE, WITHOUT], ids=["here", "without groups"])
def test_all_that_a_program_started_ends_with_it(offers: Limits, tmp_path: Path) -> None:
    command = [*written(tmp_path, FAMILY), str(tmp_path)]
    with offers.start(command, 1, env={"HEADWAY_STEPS": str(tmp_path / "steps")}) as held:
        until(lambda: (tmp_path / "steps").exists() and (tmp_path / "steps").stat().st_size)
        processes = [int(each) for each in (tmp_path / "processes").read_text().split()]
        assert set(processes) <= set(held.processes())
        assert held.memory_bytes() > 1 << 20
        group = held.group
    assert all(map(gone, processes))
    assert group is None or not any(folder.exists() for folder in group.folders.values())


def test_a_program_ends_when_the_profiler_is_killed(tmp_path: Path) -> None:
    script = (
        "import sys, time\nfrom headway.device.limits import here\n"
        f"held = here().start([sys.executable, '-c', {SPIN!r}], 1)\n"
        "print(held.process.pid, *(held.group.folders.values() if held.group else ()), flush=True)\ntime.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as profiler:
        assert profiler.stdout is not None
        process, *folders = profiler.stdout.readline().split()
        until(lambda: Path(f"/proc/{process}/cmdline").read_bytes().endswith(SPIN.encode() + b"\0"))
        profiler.kill()
    until(lambda: gone(int(process)))
    cleanup.remove_leftovers(HERE.room)  # nobody was left to take them away
    assert not any(Path(folder).exists() for folder in folders)


@pytest.mark.parametrize("offers", ["here()", "replace(here(), room=None)"], ids=["here", "without groups"])
def test_what_a_killed_profilers_program_had_started_is_swept(offers: str, tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text(f"#!/bin/sh\n{sys.executable} -c 'import time; time.sleep(600)' &\n")
    with (tmp_path / "train.sh").open("a") as file:
        file.write(f"echo $! > {tmp_path}/part; mv {tmp_path}/part {tmp_path}/child; wait\n")
    (tmp_path / "train.sh").chmod(0o755)
    script = (
        "import time\nfrom dataclasses import replace\nfrom headway.device.limits import here\n"
        f"held = {offers}.start(['{tmp_path}/train.sh'], 1)\n"
        "print(held.process.pid, *(held.group.folders.values() if held.group else ()), flush=True)\ntime.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as profiler:
        assert profiler.stdout is not None
        process, *folders = profiler.stdout.readline().split()
        until(lambda: (tmp_path / "child").exists())
        child = int((tmp_path / "child").read_text())
        cleanup.remove_leftovers(HERE.room)
        assert not gone(child)  # its profiler lives
        profiler.kill()
    until(lambda: gone(int(process)))
    cleanup.remove_leftovers(HERE.room)
    assert gone(child)
    assert not any(Path(folder).exists() for folder in folders)


def test_a_program_that_is_not_there_is_one_line() -> None:
    with pytest.raises(ProfileError, match="no-such-program: there is no such program"):
        HERE.start(["no-such-program"], 1)
    with pytest.raises(ProfileError, match="no program was given"):
        HERE.start([], 1)


def test_a_file_that_cannot_be_executed_is_said_to_be_there(tmp_path: Path) -> None:
    (tmp_path / "train").write_text("x")
    with pytest.raises(ProfileError, match="it is there, but cannot be executed"):
        HERE.start([str(tmp_path / "train")], 1)


def test_memory_is_limited_or_a_line_says_why_not() -> None:
    with pytest.raises(ProfileError, match=r"1e\+04 TB|this machine has"):
        HERE.check_memory(10**16)
    with pytest.raises(ProfileError, match="no memory control group"):
        WITHOUT.check_memory(1 << 30)
    if HERE.room is not None and HERE.room.memory:
        code = "x = b'a' * (400 << 20)\nimport time\ntime.sleep(60)"
        with HERE.start([sys.executable, "-c", code], 1, memory_bytes=100 << 20) as held:
            assert held.process.wait(60) == -9
            assert held.group is not None
            assert held.group.out_of_memory()
    else:
        with pytest.raises(ProfileError, match="cannot be set"):
            HERE.check_memory(1 << 30)


# --- finding groups, on trees made up for it ------------------------------------------------------------------------


def process_of(tmp_path: Path, cgroup: str, mountinfo: str) -> Path:
    folder = tmp_path / "proc"
    folder.mkdir()
    (folder / "cgroup").write_text(cgroup)
    (folder / "mountinfo").write_text(mountinfo)
    return folder


def second_version(tmp_path: Path, own: str, handed: dict[str, str]) -> Path:
    """A tree of version 2, the controllers that each of its folders hands down, and a process in one of them."""
    tree = tmp_path / "tree"
    for name, controllers in handed.items():
        folder = tree / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup.controllers").write_text("cpu memory cpuset")
        (folder / "cgroup.subtree_control").write_text(controllers)
    return process_of(tmp_path, f"0::/{own}\n", f"30 29 0:26 / {tree} rw - cgroup2 cgroup2 rw\n")


def test_version_2_uses_the_own_folder_where_it_hands_controllers_down(tmp_path: Path) -> None:
    process = second_version(tmp_path, "a", {"": "cpu memory", "a": "cpu memory cpuset"})
    room = cgroups.find(process)
    assert room is not None
    assert (room.version, set(room.folders)) == (2, {"cpu", "memory", "cpuset"})
    assert room.folders["cpu"] == tmp_path / "tree" / "a"
    assert list(room.folders["cpu"].glob("headway-*")) == []


def test_version_2_goes_up_to_the_nearest_folder_that_hands_them_down(tmp_path: Path) -> None:
    process = second_version(tmp_path, "a/b", {"": "cpu memory", "a": "cpu", "a/b": ""})
    room = cgroups.find(process)
    assert room is not None
    assert room.folders == {"cpu": tmp_path / "tree" / "a"}
    assert not room.memory


def test_a_folder_whose_new_groups_take_no_processes_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = second_version(tmp_path, "a", {"": "cpu", "a": "cpu memory"})
    make = Path.mkdir

    def made(path: Path, *args: object, **more: object) -> None:
        make(path, *args, **more)  # type: ignore[arg-type]
        (path / "cgroup.type").write_text("domain invalid\n" if path.parent.name == "a" else "domain\n")

    monkeypatch.setattr(Path, "mkdir", made)
    room = cgroups.find(process)
    assert room is not None
    assert room.folders == {"cpu": tmp_path / "tree"}


def test_where_nothing_hands_cpu_time_down_there_is_no_room_and_nothing_is_told_to(tmp_path: Path) -> None:
    assert cgroups.find(second_version(tmp_path, "a", {"": "memory", "a": ""})) is None
    controls = [path.read_text() for path in sorted((tmp_path / "tree").rglob("cgroup.subtree_control"))]
    assert controls == ["", "memory"] or controls == ["memory", ""]
    assert cgroups.find(tmp_path / "nowhere") is None


def test_version_2_writes_quota_weight_and_memory_as_the_kernel_reads_them(tmp_path: Path) -> None:
    room = cgroups.find(second_version(tmp_path, "", {"": "cpu memory cpuset"}))
    assert room is not None
    group = cgroups.Group(room)
    group.limit_cpus(0.75)
    group.limit_memory(1 << 30)
    group.pin([1, 0])
    folder = group.folders["cpu"]
    assert (folder / "cpu.max").read_text() == "15000 20000"
    assert (folder / "cpu.weight").read_text() == "10000"
    assert (folder / "memory.max").read_text() == str(1 << 30)
    assert (folder / "cpuset.cpus").read_text() == "0,1"
    assert group.join_files == [str(folder / "cgroup.procs")]
    (folder / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    assert group.cpu_seconds() == 2.5
    (folder / "memory.events").write_text("oom 1\noom_kill 1\n")
    assert group.out_of_memory()


def test_version_1_has_a_folder_for_each_controller_also_seen_from_a_container(tmp_path: Path) -> None:
    for name in ("cpu", "memory"):
        (tmp_path / name / "own").mkdir(parents=True)
    mounts = (
        f"31 29 0:27 /docker/x {tmp_path}/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
        f"32 29 0:28 / {tmp_path}/memory rw - cgroup cgroup rw,memory\n"
    )
    process = process_of(tmp_path, "4:memory:/own\n3:cpu,cpuacct:/docker/x/own\n0::/\n", mounts)
    room = cgroups.find(process)
    assert room is not None
    assert room.version == 1
    assert room.folders["cpu"] == room.folders["cpuacct"] == tmp_path / "cpu" / "own"
    assert room.folders["memory"] == tmp_path / "memory" / "own"
    group = cgroups.Group(room)
    group.limit_cpus(1.5)
    assert (group.folders["cpu"] / "cpu.cfs_quota_us").read_text() == "30000"
    (tmp_path / "cpu" / "own" / "cpu.cfs_quota_us").write_text("150000")
    (tmp_path / "cpu" / "own" / "cpu.cfs_period_us").write_text("100000")
    (tmp_path / "memory" / "own" / "memory.limit_in_bytes").write_text("5000")
    assert cgroups.allowed_cpus(process) == 1.5
    assert cgroups.allowed_memory(process) == 5000


def test_what_limits_this_process_limits_what_there_is_to_give() -> None:
    assert 0 < HERE.cpus <= len(os.sched_getaffinity(0))
    assert HERE.memory_bytes > 0

"""Parts of the engine of this machine: CPUs, control groups, who waits for whom, locks on GPUs."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from headway.errors import QueueError
from headway.jobs.live.engine import Order
from headway.jobs.live.holdings import Holdings
from headway.jobs.live.local import cgroups, machine
from headway.jobs.live.local.cpus import CpuBooks
from headway.jobs.live.remaining import Pace
from headway.jobs.model.cluster import uniform

GIB = 1 << 30


def order(lease: int, mask: int, job: int | None = None, cpus: int = 0, memory: int = 0, milli: int = 1000) -> Order:
    return Order(lease, lease if job is None else job, ((0, mask),), milli, cpus * 1000, memory)


@given(st.lists(st.integers(1, 4), max_size=8))
def test_whole_cpus_are_never_shared_while_there_are_enough(wanted: list[int]) -> None:
    books = CpuBooks(range(16))
    held: list[int] = []
    for lease, count in enumerate(wanted):
        if len(held) + count > 16:
            break
        held += books.given(lease, count * 1000)
    assert len(set(held)) == len(held)


def test_parts_of_cpus_are_kept_by_quotas_where_there_are_some() -> None:
    """Two programs with most of a CPU each must not share one."""
    books = CpuBooks((0, 1), quotas=True)
    assert books.given(1, 800) == ()
    assert books.given(2, 1000) == (0,)
    assert CpuBooks((0, 1)).given(1, 800) == (0,)


def test_cpus_that_are_given_back_are_given_again_and_none_means_all() -> None:
    books = CpuBooks((3, 5, 7))
    assert books.given(1, 2000) == (3, 5)
    assert books.given(2, 1000) == (7,)
    books.give_back(1)
    assert books.given(3, 1500) == (3, 5)
    assert books.given(4, 0) == books.given(5, 3000) == ()


def test_a_start_waits_for_whoever_is_to_leave_its_gpus_its_job_or_its_room() -> None:
    holdings = Holdings(uniform(1, 4, cpus_per_node=8, memory_per_node_bytes=8 * GIB))
    leaving = holdings.add(order(1, 0b0011, cpus=4, memory=6 * GIB))
    leaving.launched = True
    holdings.leave(1)
    ready = {
        "other GPUs": order(2, 0b0100, cpus=4, memory=GIB),
        "no CPUs": order(3, 0b1000),
    }
    waiting = {
        "the same GPU": order(4, 0b0010),
        "the same job": order(5, 0b1000, job=1),
        "more CPUs than are left": order(6, 0b1000, cpus=5),
        "more memory than is left": order(7, 0b1000, memory=3 * GIB),
    }
    for each in (*ready.values(), *waiting.values()):
        holdings.add(each)
        assert (each in [found.order for found in holdings.ready()]) == (each in ready.values())
        holdings.remove(each.lease)
    holdings.remove(1)
    for each in waiting.values():
        holdings.add(each)
        assert [found.order for found in holdings.ready()] == [each]
        holdings.remove(each.lease)


def fake(root: Path, *, unified: bool) -> tuple[Path, Path]:
    """Control groups as files, and the file that says which this process is in."""
    mine = root / "mine"
    if unified:
        mine.write_text("0::/user\n")
        (root / "user").mkdir()
        (root / "cgroup.controllers").touch()
    else:
        mine.write_text("3:cpu,cpuacct:/\n4:memory:/\n0::/\n")
        for controller in ("cpu", "memory"):
            (root / controller).mkdir()
    return root, mine


def test_limits_are_written_to_control_groups_of_either_version(tmp_path: Path) -> None:
    (tmp_path / "v2").mkdir()
    (tmp_path / "v1").mkdir()
    two = cgroups.Cgroups([tmp_path / "v2"], "q", unified=True)
    one = cgroups.Cgroups([tmp_path / "v1"], "q", unified=False)
    for made, files in ((two, ("cpu.max", "memory.max")), (one, ("cpu.cfs_quota_us", "memory.limit_in_bytes"))):
        group = tmp_path / ("v2" if made is two else "v1") / "q-1"
        group.mkdir()
        for file in files:
            (group / file).touch()
        (tasks,) = made.make(order(1, 1, cpus=2, memory=GIB), ())
        assert tasks == str(group / "cgroup.procs")
        text = {file: (group / file).read_text() for file in files}
        assert list(text.values()) == (["200000 100000", str(GIB)] if made is two else ["200000", str(GIB)])
        made.make(order(1, 1), ())
        assert (group / files[1]).read_text() in ("max", "-1")
        (group / "cgroup.procs").write_text("12\n7\n")
        assert made.processes(1) == [7, 12]
        made.remove(1)


@pytest.mark.parametrize("unified", [True, False])
def test_a_machine_without_rights_or_controllers_runs_without_limits_and_says_so(tmp_path: Path, unified: bool) -> None:
    root, mine = fake(tmp_path, unified=unified)
    found, why = cgroups.found("q", root, mine)  # plain folders have no files of limits
    assert found is None
    assert why.startswith("no limits by control groups: ")
    assert cgroups.found("q", tmp_path, tmp_path / "none")[0] is None
    assert not list(root.rglob("q-probe"))


def test_one_gpu_is_held_by_one_queue_of_the_machine() -> None:
    here = machine.Machine("here", ("GPU-test-a", "GPU-test-b"), "gpu", False, (0,), GIB)
    other = machine.Machine("here", ("GPU-test-b",), "gpu", False, (0,), GIB)
    slots = machine.Machine("here", ("0",), "slot", True, (0,), GIB)
    refused = pytest.raises(QueueError, match=r"GPU 0 \(GPU-test-b\) is held by another queue")
    with machine.held(here), machine.held(slots), machine.held(slots), refused, machine.held(other):
        pass
    with machine.held(other):
        pass


@pytest.mark.parametrize("text", ["many", "-1", "99999", "1.5", ""])
def test_a_number_of_gpus_is_a_number(text: str) -> None:
    with pytest.raises(QueueError, match=f"--gpus {text}: auto, or a number"):
        machine.machine(text)


def test_the_rest_of_a_program_follows_from_its_pace() -> None:
    pace = Pace(100, 0.2)
    assert pace.left(200, 0.2) is None
    assert pace.left(200, 0.45) == 220
    assert pace.left(300, 1.0) == 0
    assert pace.tells(200, 1000, 500)
    assert not pace.tells(201, 1000, 500)  # it was told a moment ago
    assert not Pace(0, 0.0).tells(10**12, 1050, 1000)


def test_no_two_queues_of_a_machine_have_groups_of_one_name(tmp_path: Path) -> None:
    names = {cgroups.name_of(tmp_path / folder, run) for folder in ("a", "b") for run in (1, 2)}
    assert len(names) == 4
    assert cgroups.name_of(tmp_path / "a", 1) in names  # a queue that is taken up finds its own

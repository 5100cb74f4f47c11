"""Forks, execs, and programs that share the shim with their children: each process is a client of its own, lazily."""

from pathlib import Path

import pytest

from tests.native.harness import Built
from tests.native.mini_broker import MiniBroker


@pytest.mark.parametrize("priority", [0, 5])
def test_a_child_has_a_slot_of_its_own_once_it_launches(
    built: Built, broker: MiniBroker, tmp_path: Path, priority: int
) -> None:
    run = built.run(tmp_path, broker.path, "--verb", "fork", "--launch", "300", priority=priority)
    assert (run.status, run.did["errors"], run.did["intact"], run.said) == (0, 0, True, "")
    seen = {one.pid: one.ledger["kernels"] for one in broker.wait(2)}
    assert len(broker.past) == 2  # the child that launched nothing took no slot
    assert seen.pop(run.pid) == 600
    assert list(seen.values()) == [300]
    assert all(one.left for one in broker.past)


def test_a_child_of_a_program_with_threads_finds_no_lock_held(built: Built, broker: MiniBroker, tmp_path: Path) -> None:
    flags = ("--verb", "fork-threads", "--launch", "2000", "--threads", "3", "--sync-every", "5")
    run = built.run(tmp_path, broker.path, *flags, priority=5)
    assert (run.status, run.did["errors"]) == (0, 0)
    seen = {one.pid: one.ledger["kernels"] for one in broker.wait(21)}
    assert seen.pop(run.pid) == 6000
    assert list(seen.values()) == [20] * 20


def test_a_process_that_becomes_another_program_leaves_its_first_slot(
    built: Built, broker: MiniBroker, tmp_path: Path
) -> None:
    run = built.run(tmp_path, broker.path, "--exec", "--launch", "70", "--reach", "dlsym", "--sleep-ms", "200")
    assert run.status == 0
    first, second = broker.wait(2)
    assert (first.pid, second.pid) == (run.pid, run.pid)
    assert (first.ledger["kernels"], second.ledger["kernels"]) == (100, 70)
    assert broker.free()

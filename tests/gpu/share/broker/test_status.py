"""A snapshot: what is in the block, in units that people read."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headway.device import locks as places
from headway.device.locks import Place
from headway.device.nvidia import ANY_GPU
from headway.errors import ShareError
from headway.gpu.share.broker import status
from headway.gpu.share.shim.doctor import checks
from tests.gpu.share.shares import broker_at, join


def test_a_client_is_a_row(place: Place) -> None:
    broker, block, _ = broker_at(place.folder)
    handle = places.hold(place.lock, alone=True)
    assert handle is not None
    slot = join(block, 3, name="low", priority=7)
    ledger = slot.ledger
    ledger.kernels, ledger.graphs, ledger.waits, ledger.waited_ns = 10, 2, 4, 5_000_000
    ledger.harvested_ns, ledger.delay_ns, ledger.open = 7_000_000, 1_500_000, 1
    ledger.reasons[3], ledger.hook_ns, ledger.hooked = 6, 300, 2
    ledger.asked_ns, ledger.asked = 9_000, 4
    slot.kernels[5].id, slot.kernels[5].name, slot.kernels[5].blamed_ns = 5, b"gemm", 1_000_000
    slot.since_ns -= 1_000_000_000
    ledger.work_ns = 500_000_000
    broker.step(time.monotonic_ns())
    block.header.beat_ns = time.monotonic_ns()
    now = status.snapshot(place)
    assert now["healthy"]
    (row,) = now["clients"]
    assert (row["name"], row["program"], row["priority"], row["pid"]) == ("low", "low.py", 7, os.getpid())
    assert (row["launches"], row["waits"], row["waited_ms"], row["harvested_ms"]) == (12, 4, 5.0, 7.0)
    assert (row["blamed_kernel"], row["blamed_ms"], row["delay_ms"]) == ("gemm", 1.0, 1.5)
    assert row["kernel_rows"] == 1
    assert (row["slowdown"], row["slowdown_low"], row["slowdown_holds"], row["slowdown_steps"]) == (None, None, 0, 0)
    assert (row["open"], row["hook_ns"], row["asked_ns"], row["reasons"]) == (True, 150.0, 2_250.0, {"absorbed": 6})
    assert 0.3 < row["busy_share"] < 0.5
    earlier = {**row, "up_s": row["up_s"] - 1, "work_ms": row["work_ms"] - 250}
    assert status.since(row, earlier) == pytest.approx(0.25)
    assert status.since(row, None) == row["busy_share"]
    slot.pulse.launch_ns = time.monotonic_ns() + 1_000_000_000_000  # while we look
    assert status.snapshot(place)["clients"][0]["quiet_ms"] == 0
    os.close(handle)


def test_no_broker_is_one_line(place: Place) -> None:
    with pytest.raises(ShareError, match="no broker of GPU 0 runs: headway share run"):
        status.snapshot(place)


def test_a_broker_that_begins_is_shown_once_it_has_said_how_it_runs(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = places.hold(place.lock, alone=True)
    assert handle is not None
    broker, _, _ = broker_at(place.folder, facts={"pid": os.getpid(), "gpu_name": "H200"})
    read = places.read_json

    def read_before(then: Callable[[], None]) -> None:
        def read_first(path: Path) -> dict[str, Any]:
            found = read(path)
            then()
            return found

        monkeypatch.setattr(places, "read_json", read_first)

    read_before(lambda: broker.publish(time.monotonic_ns()))
    for before in ({}, {"pid": os.getpid() + 1, "gpu_name": "of the broker before"}):
        places.write_json(place.state, before)
        now = status.snapshot(place)
        assert (now["gpu_name"], now["slo"]) == ("H200", 1.05)
    place.state.unlink()
    read_before(lambda: os.closerange(handle, handle + 1))  # it ends before it has said anything
    with pytest.raises(ShareError, match="the broker of GPU 0 has ended without cleaning up"):
        status.snapshot(place)


def test_a_block_of_another_version_is_one_line(place: Place) -> None:
    handle = places.hold(place.lock, alone=True)
    assert handle is not None
    _, block, _ = broker_at(place.folder)
    block.header.version = 99
    with pytest.raises(ShareError, match="not a shared block of this version of headway: restart the broker"):
        status.snapshot(place)
    os.close(handle)


def _library() -> Path:
    raise ShareError("there is none")


def test_the_doctor_tells_all_that_it_could_check(monkeypatch: pytest.MonkeyPatch, place: Place) -> None:
    found = {check.name: check for check in checks(None, _library)}
    assert [name for name, check in found.items() if not check.ok] == [
        *("GPU", "driver", "compute mode", "MPS", "library")
    ]
    assert not found["MPS"].needed
    assert all(check.advice for check in found.values() if not check.ok)
    monkeypatch.setenv(ANY_GPU, "1")
    place.block.touch()
    found = {check.name: check for check in checks(None, lambda: Path("/lib/ours.so"))}
    assert [name for name, check in found.items() if not check.ok] == ["MPS", "broker"]
    assert found["broker"].advice == "headway share stop clears them"

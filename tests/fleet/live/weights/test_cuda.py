"""Ranges on a GPU, by a driver that works on host memory: the order of calls, and what happens where one fails."""

import ctypes
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from headway.device.gpu_memory import Meter
from headway.fleet.live.weights import cuda
from headway.fleet.live.weights.cuda import Driver, GpuRange
from headway.fleet.live.weights.gpu import Gpu
from headway.fleet.live.weights.host import Host
from headway.fleet.live.weights.memory import DriverError, Memory
from headway.fleet.live.weights.modules import skeleton
from headway.fleet.live.weights.origins import Origins
from headway.fleet.live.weights.ranges import Range
from headway.fleet.live.weights.residents import Placed, prepared
from headway.program.pipeline import Model
from tests.fleet.live.fakes import GRANULARITY, FakeLibrary, FakeMeter, FakeNvml, FakeTorch


class HostTensors(GpuRange):
    """A range whose tensors are those of the host, where torch has no GPU."""

    def flat(self) -> Any:
        buffer = (ctypes.c_ubyte * self.size_bytes).from_address(self.address)
        return torch.frombuffer(buffer, dtype=torch.uint8)


@pytest.fixture
def library() -> FakeLibrary:
    return FakeLibrary()


@pytest.fixture
def driver(library: FakeLibrary) -> Driver:
    """A driver whose opening is done."""
    made = Driver(library, 0)
    made.open()
    library.since()
    return made


def net() -> torch.nn.Module:
    """A model of a hundred kilobytes."""
    return torch.nn.Linear(256, 100)


def placed_in(folder: Path, driver: Driver, said: list[str] | None = None, disk: bool = False) -> Placed:
    """The model over a range of the fake GPU."""
    note = (said if said is not None else []).append
    folder.mkdir(exist_ok=True)
    (app := folder / "app.py").write_text("")
    origins = Origins(app, [Model("net", net, None, ())])
    host = Host(folder / "host", folder / "disk" if disk else None, "app", note, origins)

    def reserve(size_bytes: int) -> Range:
        return HostTensors(driver, size_bytes, note)

    model = prepared("net", net, 0, host, reserve)
    assert isinstance(model, Placed)
    return model


def test_opening_takes_the_context_that_torch_uses_and_a_stream(library: FakeLibrary) -> None:
    driver = Driver(library, 0)
    driver.open()
    assert library.since() == [
        *("cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuStreamCreate", "cuMemGetAllocationGranularity"),
    ]
    assert driver.granularity == GRANULARITY
    assert driver.uuid() == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert (library.contexts, library.mode) == ([], 0)


def test_a_model_goes_and_comes_back_at_its_address_and_is_pinned_once(
    tmp_path: Path, driver: Driver, library: FakeLibrary
) -> None:
    model = placed_in(tmp_path, driver)
    assert library.since() == ["cuMemAddressReserve", "cuMemHostRegister_v2"]
    assert model.size_bytes == 2 * GRANULARITY
    model.load()
    mapping = ["cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemcpyHtoDAsync_v2", "cuStreamSynchronize"]
    assert library.since() == mapping
    weight, given = model.value.weight.data_ptr(), torch.rand(256)
    first = model.value(given).clone()
    for _ in range(3):
        model.evict()
        assert library.since() == ["cuMemUnmap", "cuMemRelease"]
        assert (library.mapped, library.handles) == ({}, set())
        model.load()
        assert library.since() == mapping
        assert torch.equal(model.value(given), first)
        assert model.value.weight.data_ptr() == weight
    assert (library.contexts, library.mode) == ([], 0)


def test_large_models_are_copied_in_chunks(
    tmp_path: Path, driver: Driver, library: FakeLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda, "_CHUNK_BYTES", 40_000)
    model = placed_in(tmp_path, driver)
    model.load()
    assert library.since().count("cuMemcpyHtoDAsync_v2") == 3
    source = skeleton(model.value)
    assert source is not None
    assert source.values()["weight"].nbytes == 256 * 100 * 4
    assert model.value.weight.abs().sum() > 0


@pytest.mark.parametrize(
    ("fails", "undone"),
    [
        ("cuMemCreate", []),
        ("cuMemMap", ["cuMemRelease"]),
        ("cuMemSetAccess", ["cuMemUnmap", "cuMemRelease"]),
        ("cuMemcpyHtoDAsync_v2", ["cuMemUnmap", "cuMemRelease"]),
        ("cuStreamSynchronize", ["cuMemUnmap", "cuMemRelease"]),
    ],
)
def test_where_a_step_of_loading_fails_none_of_it_stays_and_the_next_load_works(
    tmp_path: Path, driver: Driver, library: FakeLibrary, fails: str, undone: list[str]
) -> None:
    model = placed_in(tmp_path, driver)
    library.fails[fails] = 2
    library.since()
    with pytest.raises(DriverError, match=f"{fails} failed with 2"):
        model.load()
    calls = library.since()
    assert calls[calls.index(fails) + 1 :] == undone
    assert (library.mapped, library.handles, library.contexts, library.mode) == ({}, set(), [], 0)
    library.fails.clear()
    model.load()
    assert model.value.weight.abs().sum() > 0


def test_out_of_memory_in_mapping_evicts_what_nobody_uses_and_tries_again(
    tmp_path: Path, driver: Driver, library: FakeLibrary
) -> None:
    models = [placed_in(tmp_path / name, driver) for name in ("a", "b")]
    gpu = Gpu(driver, FakeTorch(), FakeMeter(), 10**9, 0, print)
    memory = Memory(models, 10**9, gpu)
    memory.reserve((0,))
    memory.load(0)
    memory.release((0,))

    original = library._cuMemCreate

    def create(handle: Any, size: Any, *rest: Any) -> int:
        """Has room for one model alone."""
        return 2 if library.handles else original(handle, size, *rest) or 0

    library._cuMemCreate = create  # type: ignore[method-assign]
    library.since()
    memory.reserve((1,))
    memory.load(1)
    assert library.since() == [
        *("cuMemCreate", "cuMemUnmap", "cuMemRelease"),
        *("cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemcpyHtoDAsync_v2", "cuStreamSynchronize"),
    ]
    assert memory.used_bytes == models[1].size_bytes


def test_host_memory_that_cannot_be_pinned_is_copied_all_the_same_and_said(
    tmp_path: Path, driver: Driver, library: FakeLibrary
) -> None:
    said: list[str] = []
    library.fails["cuMemHostRegister_v2"] = 801
    model = placed_in(tmp_path, driver, said)
    model.load()
    model.evict()
    model.load()
    assert model.value.weight.abs().sum() > 0
    assert len(said) == 1
    assert "is not pinned (cuMemHostRegister_v2 failed with 801)" in said[0]


def test_without_a_host_copy_weights_come_from_disk_through_a_pinned_stage(
    tmp_path: Path, driver: Driver, library: FakeLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda, "_STAGE_BYTES", 30_000)
    reference = placed_in(tmp_path, driver, disk=True)
    reference.load()
    (tmp_path / "host" / "net.weights").unlink()
    monkeypatch.setattr(Host, "path", lambda self, name: tmp_path / "no such folder" / name)
    model = placed_in(tmp_path, driver, disk=True)
    assert library.registered == [library.registered[0]]
    model.load()
    model.evict()
    model.load()
    assert torch.equal(model.value.weight, reference.value.weight)
    assert len(library.registered) == 2  # the stage, once


def test_without_any_copy_a_model_is_built_again(
    tmp_path: Path, driver: Driver, library: FakeLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Host, "path", lambda self, name: tmp_path / "no such folder" / name)
    monkeypatch.setattr(cuda, "_STAGE_BYTES", 30_000)
    said: list[str] = []
    model = placed_in(tmp_path, driver, said)
    model.load()
    assert model.value.weight.abs().sum() > 0
    assert len(said) == 1


def test_activations_get_what_context_and_models_leave_of_the_budget(driver: Driver) -> None:
    torch_, meter = FakeTorch(), FakeMeter()
    gpu = Gpu(driver, torch_, meter, 500, 100, print)
    gpu.share(150)
    assert torch_.calls == [0.25]
    torch_.reserved = 200
    gpu.share(300)
    assert torch_.calls[1:] == ["empty", 0.1]
    gpu.share(450)
    assert torch_.calls[3:] == ["empty", 0.0]
    gpu.wait()
    gpu.trim()
    gpu.use_cpus(torch.get_num_threads())
    assert torch_.calls[5:] == ["wait cuda:0", "empty", "cuda:0"]


def test_a_dead_context_is_told_with_whose_fault_it_is(driver: Driver, library: FakeLibrary) -> None:
    gpu = Gpu(driver, FakeTorch(), FakeMeter(), 500, 100, print)
    assert gpu.fault() is None
    library.fails["cuStreamQuery"] = 600  # copies run
    assert gpu.fault() is None
    library.fails["cuStreamQuery"] = 700
    assert gpu.fault() == ("the GPU's context is dead: error 700", True)
    library.fails["cuCtxPushCurrent_v2"] = 810
    assert gpu.fault() == ("the GPU's context is dead: error 810", False)


def test_an_overhead_that_grows_is_taken_from_activations(driver: Driver) -> None:
    torch_, meter = FakeTorch(), FakeMeter()
    gpu = Gpu(driver, torch_, meter, 500, 100, print)
    torch_.reserved = 50
    assert gpu.used_bytes(150) == (200, 0)
    meter.reported = 340
    assert gpu.used_bytes(150) == (200, 340)
    gpu.share(150)
    assert torch_.calls == [0.21]


def test_contexts_and_modes_are_as_before_after_calls_from_several_threads(
    tmp_path: Path, driver: Driver, library: FakeLibrary
) -> None:
    models = [placed_in(tmp_path / str(number), driver) for number in range(4)]
    turn = threading.Lock()

    def use(model: Placed) -> None:
        for _ in range(5):
            with turn:  # the fake has one current context for all threads
                model.load()
                model.evict()

    threads = [threading.Thread(target=use, args=(model,)) for model in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (library.mapped, library.handles, library.contexts, library.mode) == ({}, set(), [], 0)


def test_in_a_container_the_new_process_on_the_gpu_is_us(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    meter = Meter("GPU-1")
    nvml.processes = {17: 5}
    before = meter.by_process()
    nvml.processes[4_000_000_000] = 30
    meter.learn(before)
    assert (meter.process, meter.used_bytes(), meter.all_bytes()) == (4_000_000_000, 30, 35)
    nvml.processes[4_000_000_000] = None
    assert meter.used_bytes() == 0


def test_without_nvml_or_with_a_gpu_it_does_not_know_nothing_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    assert Meter("GPU-2").all_bytes() == 0
    monkeypatch.setitem(sys.modules, "pynvml", None)
    meter = Meter("GPU-1")
    meter.learn({})
    assert (meter.used_bytes(), meter.all_bytes(), meter.by_process()) == (0, 0, {})

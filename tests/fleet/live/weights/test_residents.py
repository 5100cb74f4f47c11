"""Models are prepared once a machine, lie in one range, go, and come back as they were."""

import errno
import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from headway.errors import InputError
from headway.fleet.live.weights.host import Host
from headway.fleet.live.weights.modules import skeleton, sketched
from headway.fleet.live.weights.origins import Origins
from headway.fleet.live.weights.ranges import CpuRange
from headway.fleet.live.weights.residents import Placed, Rebuilt, Resident, Unprepared, prepared
from headway.fleet.live.weights.safetensors import ALIGNMENT, placed, read_header, write
from headway.program.pipeline import Model


class Tied(torch.nn.Module):
    """Parameters of several types, a tied one, and buffers of which one is not saved by torch."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(10, 7)
        self.out = torch.nn.Linear(7, 10, bias=False)
        self.out.weight = self.words.weight
        self.scale = torch.nn.Parameter(torch.rand(3).half())
        self.register_buffer("steps", torch.tensor(5))
        self.register_buffer("angles", torch.arange(4.0), persistent=False)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.out(self.words(words)) * self.angles[1] + self.scale[0] + self.steps


WORDS = torch.tensor([1, 2, 3])
Files = tuple[str, ...] | None


class Counted:
    """Builds models, and counts how often with values."""

    def __init__(self, build: Callable[[], Any]) -> None:
        self.build = build
        self.times = 0

    def __call__(self) -> Any:
        self.times += torch.get_default_device().type != "meta"
        return self.build()


def host_in(
    folder: Path,
    disk: bool = False,
    text: str = "app",
    said: list[str] | None = None,
    files: Files = (),
    server: str = "first",
) -> Host:
    """A host folder, with a disk if asked for, and the files that the model declares."""
    app = folder / "app.py"
    app.write_text(text)
    origins = Origins(app, [Model("net", Tied, None, files)])
    say = (said if said is not None else []).append
    return Host(folder / "host", folder / "disk" if disk else None, server, say, origins)


def ready(host: Host, build: Callable[[], Any], name: str = "net") -> Resident:
    """A model on a CPU."""
    return prepared(name, build, 123, host, CpuRange)


def answer(model: Resident) -> torch.Tensor:
    """Of the model while it is loaded."""
    found: torch.Tensor = model.value(WORDS).clone()
    return found


def test_a_module_goes_and_comes_back_at_the_same_address_with_the_same_values(tmp_path: Path) -> None:
    model = ready(host_in(tmp_path), Tied)
    assert isinstance(model, Placed)
    model.load()
    first, address = answer(model), model.value.words.weight.data_ptr()
    for _ in range(3):
        model.evict()
        assert not model.value.words.weight.any()
        model.load()
        assert torch.equal(answer(model), first)
        assert model.value.words.weight.data_ptr() == address
    assert model.value.out.weight is model.value.words.weight
    assert not any(each.requires_grad for each in model.value.parameters())


def test_all_tensors_lie_in_one_range_and_none_is_left_elsewhere(tmp_path: Path) -> None:
    model = ready(host_in(tmp_path), Tied)
    model.load()
    tensors = [*model.value.parameters(), *model.value.buffers()]
    first = min(each.data_ptr() for each in tensors)
    assert all((each.data_ptr() - first) % ALIGNMENT == 0 for each in tensors)
    assert max(each.data_ptr() for each in tensors) - first < model.size_bytes
    assert model.size_bytes % 4096 == 0


def test_the_second_worker_has_the_same_weights_and_builds_none(tmp_path: Path) -> None:
    build = Counted(Tied)
    first, second = ready(host_in(tmp_path), build), ready(host_in(tmp_path), build)
    assert build.times == 1
    first.load()
    second.load()
    assert torch.equal(answer(first), answer(second))
    assert second.value.out.weight is second.value.words.weight


def test_weights_on_disk_are_used_by_the_next_start_and_made_anew_for_another_file(tmp_path: Path) -> None:
    build = Counted(Tied)
    model = ready(host_in(tmp_path, disk=True), build)
    model.load()
    header = read_header(tmp_path / "disk" / "net.safetensors")
    assert header.entries == placed(header.entries, 1)
    (tmp_path / "host" / "net.weights").unlink()
    again = ready(host_in(tmp_path, disk=True), build)
    again.load()
    assert torch.equal(answer(again), answer(model))
    assert build.times == 1
    (tmp_path / "host" / "net.weights").unlink()
    changed = ready(host_in(tmp_path, disk=True, text="another app", server="second"), build)
    changed.load()
    assert build.times == 2
    assert not torch.equal(answer(changed), answer(model))


def test_weights_that_others_wrote_are_used_and_never_written_over(tmp_path: Path) -> None:
    host = host_in(tmp_path, disk=True)
    other = skeleton(Tied())
    assert other is not None
    values, dense = other.values(), placed(other.entries, 1)

    def fill(memory: memoryview) -> None:
        for entry in dense:
            memory[entry.begin : entry.end] = values[entry.name]

    (tmp_path / "disk").mkdir()
    path = tmp_path / "disk" / "net.safetensors"
    write(path, dense, {"format": "pt"}, fill)
    model = ready(host, Tied)
    model.load()
    assert torch.equal(answer(model), other.module(WORDS))
    before = path.read_bytes()
    with pytest.raises(InputError, match="has other tensors than model net"):
        ready(host, lambda: torch.nn.Linear(2, 2))
    assert path.read_bytes() == before


def test_a_module_whose_values_matter_while_it_is_built_is_built_with_them(tmp_path: Path) -> None:
    class Hooked(torch.nn.Linear):
        def __init__(self) -> None:
            super().__init__(7, 7)
            shift = torch.ones(7)
            self.register_forward_hook(lambda *given: given[2] + shift)

    class Measured(torch.nn.Linear):
        def __init__(self) -> None:
            super().__init__(7, 7)
            self.largest = float(self.weight.max())

    for number, kind in enumerate((Hooked, Measured)):
        assert sketched(kind) is None
        build = Counted(kind)
        host = host_in(tmp_path)
        first, second = ready(host, build, f"m{number}"), ready(host, build, f"m{number}")
        assert build.times == 2
        first.load()
        second.load()
        given = torch.rand(7)
        assert torch.equal(first.value(given), second.value(given))


def test_a_model_is_sketched_while_the_sketches_of_others_wait_for_their_memory() -> None:
    kept = [sketched(Tied) for _ in range(3)]
    assert all(each is not None for each in kept)


def test_models_that_are_no_modules_are_built_when_loaded_and_dropped_when_evicted(tmp_path: Path) -> None:
    build = Counted(lambda: {"table": list(range(100))})
    model, second = ready(host_in(tmp_path), build), ready(host_in(tmp_path), build)
    assert isinstance(model, Rebuilt)
    assert isinstance(second, Rebuilt)
    assert (build.times, model.size_bytes, model.value) == (1, 123, None)
    model.load()
    assert model.value["table"][99] == 99
    model.evict()
    assert model.value is None


@pytest.mark.parametrize(
    "build",
    [
        lambda: torch.nn.LazyLinear(3),
        lambda: torch.nn.ParameterList([torch.nn.Parameter(torch.eye(3).to_sparse())]),
    ],
    ids=["lazy", "sparse"],
)
def test_modules_with_tensors_that_cannot_be_laid_out_are_kept_as_objects(
    tmp_path: Path, build: Callable[[], Any]
) -> None:
    assert isinstance(ready(host_in(tmp_path), build), Rebuilt)


def test_a_module_without_tensors_is_loaded_and_evicted(tmp_path: Path) -> None:
    model = ready(host_in(tmp_path), torch.nn.ReLU)
    model.load()
    assert model.value(torch.tensor([-1.0, 2.0])).tolist() == [0.0, 2.0]
    model.evict()


def full_below(monkeypatch: pytest.MonkeyPatch, *folders: Path) -> None:
    """Let the file system be full in some folders."""
    real = os.posix_fallocate

    def fallocate(handle: int, begin: int, size: int) -> None:
        if Path(os.readlink(f"/proc/self/fd/{handle}")).parent in folders:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle, begin, size)

    monkeypatch.setattr(os, "posix_fallocate", fallocate)


def test_full_host_memory_means_loading_from_disk_and_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    full_below(monkeypatch, tmp_path / "host")
    host = host_in(tmp_path, disk=True, said=said)
    model, other = ready(host, Tied), ready(host, Tied, "other")
    model.load()
    other.load()
    first = answer(model)
    model.evict()
    model.load()
    assert torch.equal(answer(model), first)
    assert len([line for line in said if "host memory" in line and "No space left" in line]) == 1
    assert not list((tmp_path / "host").glob("*.weights*"))


def test_a_full_disk_and_full_host_memory_mean_building_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    full_below(monkeypatch, tmp_path / "host", tmp_path / "disk")
    build = Counted(Tied)
    model = ready(host_in(tmp_path, disk=True, said=said), build)
    model.load()
    model.evict()
    model.load()
    assert build.times == 3
    assert answer(model).shape == (3, 10)
    assert ["host memory" in line or "disk" in line for line in said] == [True, True]


def test_weights_stay_readable_when_their_names_are_removed(tmp_path: Path) -> None:
    model = ready(host_in(tmp_path), Tied)
    model.load()
    first = answer(model)
    model.evict()
    (tmp_path / "host" / "net.weights").unlink()
    model.load()
    assert torch.equal(answer(model), first)


def test_a_model_that_could_not_be_prepared_is_tried_again_by_every_load(tmp_path: Path) -> None:
    def build() -> Any:
        if not (tmp_path / "there").exists():
            raise FileNotFoundError("no checkpoint")
        return Tied()

    host = host_in(tmp_path)
    model = Unprepared("net", lambda: ready(host, build), 5)
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            model.load()
    (tmp_path / "there").touch()
    model.load()
    assert answer(model).shape == (3, 10)
    model.evict()
    assert not model.value.words.weight.any()


def test_two_processes_that_start_at_once_make_one_copy(tmp_path: Path) -> None:
    program = """
import os, sys, torch
from pathlib import Path
from headway.fleet.live.weights.host import Host
from headway.fleet.live.weights.ranges import CpuRange
from headway.fleet.live.weights.residents import prepared
def build():
    net = torch.nn.Linear(300, 300)
    if torch.get_default_device().type != "meta":
        Path(sys.argv[1], f"built-{os.getpid()}").touch()
    return net
host = Host(Path(sys.argv[1], "host"), None, "app", print)
model = prepared("net", build, 0, host, CpuRange)
model.load()
print(float(model.value.weight.sum()), Path(sys.argv[1], "host", "net.weights").stat().st_ino)
"""
    source = Path(__file__).resolve().parents[4] / "src"
    command, environment = [sys.executable, "-c", program, str(tmp_path)], {**os.environ, "PYTHONPATH": str(source)}
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) for _ in range(2)]
    said = [process.communicate()[0] for process in processes]
    assert said[0] == said[1] != b""
    assert len(list(tmp_path.glob("built-*"))) == 1


def test_evicting_gives_pages_back(tmp_path: Path) -> None:
    def resident_bytes() -> int:
        rows = Path("/proc/self/status").read_text().splitlines()
        return next(int(row.split()[1]) << 10 for row in rows if row.startswith("RssAnon"))

    model = ready(host_in(tmp_path), lambda: torch.nn.Linear(4096, 2048))  # 32 MiB
    gc.collect()
    away = resident_bytes()
    model.load()
    here = resident_bytes()
    model.evict()
    assert here - away > 30 << 20
    assert here - resident_bytes() > 30 << 20

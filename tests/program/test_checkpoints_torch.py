"""Checkpoints of torch programs: order of samples and random numbers of an undisturbed run, over several ranks too."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import steps_preempted
from headway.errors import CheckpointError
from headway.program import randomness
from headway.program.protocol import SAVED
from tests.program.training import Training

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

FAILS = """
import os, sys
import torch
import headway

def save(path):
    raise ValueError("no room")

def rank(number):
    os.environ.update(RANK=str(number), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[1])
    torch.distributed.init_process_group("gloo")
    try:
        for _ in headway.steps([1] * (5 if number or len(sys.argv) < 4 else 4), checkpoint=save, resume=print, every=2,
                               folder=sys.argv[2]):
            pass
    except Exception as problem:
        os.write(1, f"{number} {type(problem).__name__}: {problem}\\n".encode())  # in one go: the other writes too

if __name__ == "__main__":
    torch.multiprocessing.spawn(rank, (), 2)
"""


@pytest.fixture(autouse=True)
def _random_states() -> Iterator[None]:
    """Leave the random states as they were."""
    states = randomness.captured(None)
    yield
    randomness.restore(states, None)


def drawn(loader: Any) -> list[float]:
    """Numbers from every generator."""
    own = [float(torch.rand((), generator=each)) for each in randomness.generators(loader)]
    gauss = [random.gauss(0, 1), float(numpy.random.standard_normal())]
    return [random.random(), float(numpy.random.random()), float(torch.rand(())), *gauss, *own]


def test_every_generator_is_kept() -> None:
    data = torch.utils.data.TensorDataset(torch.arange(6))
    sampler = torch.utils.data.RandomSampler(data, generator=torch.Generator())
    loader = torch.utils.data.DataLoader(data, 2, sampler=sampler, generator=torch.Generator())
    assert len(randomness.generators(loader)) == 2
    drawn(loader)  # half of a pair of normal numbers is kept by Python and numpy
    states = randomness.captured(loader)
    first = drawn(loader)
    assert drawn(loader) != first
    randomness.restore(states, loader)
    assert drawn(loader) == first
    with pytest.raises(CheckpointError, match="written with 2 random generators in the loader, now there are 0"):
        randomness.restore(states, [])


def test_the_generators_of_gpus_are_kept_and_as_many_are_wanted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = [torch.Generator().manual_seed(seed) for seed in range(2)]  # stand-ins: a machine of tests has no GPU

    def set_all(states: list[Any]) -> None:
        for device, state in zip(devices, states, strict=True):
            device.set_state(state)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(devices))
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: [device.get_state() for device in devices])
    monkeypatch.setattr(torch.cuda, "set_rng_state_all", set_all)
    states = randomness.captured(None)
    first = [float(torch.rand((), generator=device)) for device in devices]
    randomness.restore(states, None)
    assert [float(torch.rand((), generator=device)) for device in devices] == first
    del devices[1]
    with pytest.raises(CheckpointError, match="was written with 2 GPUs, now there are 1: start the program as before"):
        randomness.restore(states, None)


class Noise(torch.utils.data.Dataset[Any]):
    """Samples with random numbers."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, item: int) -> Any:
        return torch.tensor([item, float(torch.rand(())), random.random()])


def loaders(kind: str) -> Any:
    """Return a loader as a program makes it at its start."""
    more: dict[str, Any] = {"shuffle": True}
    torch.manual_seed(3)
    if kind == "own generator":
        more["generator"] = torch.Generator().manual_seed(5)
    if kind == "with replacement":
        own = torch.Generator().manual_seed(5)
        more = {"sampler": torch.utils.data.RandomSampler(Noise(), replacement=True, num_samples=40, generator=own)}
    if kind == "workers":
        more["num_workers"] = 2
    return torch.utils.data.DataLoader(Noise(), 4, **more, collate_fn=listed)


def listed(samples: list[Any]) -> list[list[float]]:
    """A batch that can be written as JSON."""
    return [each.tolist() for each in samples]


@pytest.mark.parametrize("kind", ["shuffled", "own generator", "with replacement", "workers"])
def test_a_loader_goes_on_in_the_same_order(tmp_path: Path, kind: str) -> None:
    alone = Training(tmp_path / "alone", lambda: loaders(kind), epochs=3)
    assert alone.start() == 0
    trained = Training(tmp_path / "disturbed", lambda: loaders(kind), epochs=3)
    assert [trained.start(preempt=at) for at in (0, 3, 4)] == [SAVED] * 3
    assert trained.start() == 0
    assert trained.notes == alone.notes


def test_workers_that_stay_are_refused(tmp_path: Path) -> None:
    data = torch.utils.data.DataLoader(Noise(), 4, num_workers=1, persistent_workers=True)
    with pytest.raises(CheckpointError, match="persistent_workers=True: their random states cannot be kept"):
        Training(tmp_path, lambda: data).start()


def test_workers_outlive_a_signal_to_all_processes(tmp_path: Path) -> None:
    trial = steps_preempted.Trial(tmp_path / "trial", ranks=1, workers=2, every=None, step_s=0.05)
    program = trial.start()
    trial.until(program, 3)
    os.killpg(program.pid, signal.SIGTERM)
    assert trial.ended(program) == SAVED, (trial.folder / "output").read_text()
    assert [int(line.split()[0]) for line in trial.lines()] == list(range(len(trial.lines())))


@pytest.mark.parametrize(("ranks", "times", "kills"), [(1, 4, 1), (2, 3, 0)])
def test_a_disturbed_program_ends_with_the_same_losses(tmp_path: Path, ranks: int, times: int, kills: int) -> None:
    report = steps_preempted.run(tmp_path, ranks, times, kills)
    assert report.problems == []
    assert (report.preempted, report.killed, report.steps) == (times, kills, steps_preempted.STEPS)


@pytest.mark.parametrize(
    ("more", "first", "second"),
    [
        ((), "0 ValueError: no room", "1 CheckpointError: rank 0 failed, so that all ranks end: ValueError: no room"),
        (("uneven",), "0 CheckpointError: ranks have [4, 5] batches", "1 CheckpointError: ranks have [4, 5] batches"),
    ],
)
def test_ranks_fail_together(tmp_path: Path, more: tuple[str, ...], first: str, second: str) -> None:
    script = tmp_path / "fails.py"
    script.write_text(FAILS)
    words = [sys.executable, str(script), str(steps_preempted.free_port()), str(tmp_path / "kept"), *more]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    lines = sorted(done.stdout.splitlines())
    assert len(lines) == 2, done.stderr
    assert lines[0].startswith(first)
    assert lines[1].startswith(second)

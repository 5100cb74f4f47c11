"""How much of a worker is in use: slices, CPUs, and the cache and the batch of an engine; fleets that grow by each."""

from pathlib import Path
from typing import Any

import pytest

from headway.fleet.experiment.scene import prepare
from headway.fleet.model.fleet import Gpu, Worker
from headway.fleet.policies.scalers.use import use_of
from headway.fleet.scenarios.tables.settings import ServingExperiment
from headway.fleet.state.workerstate import Batch, WorkerState
from headway.formats import toml
from headway.runs.measured import numbers
from headway.runs.play import play
from tests.fleet.generating import KV, generation, world_of
from tests.fleet.worlds import MB

KIND = generation(cache_tokens=110, max_batch=20)
"""A request is expected to hold 6 + 5 tokens: a tenth of the cache."""
CATALOGUE = world_of(KIND, ()).catalogue


def worker(cpus_free: int = 8, slices_free: int = 4) -> WorkerState:
    made = WorkerState(0, Worker("w", Gpu("T4", 60 * MB, 4), cpus=8), CATALOGUE)
    made.cpus_free, made.slices_free = cpus_free, slices_free
    return made


@pytest.mark.parametrize(
    ("cpus_free", "slices_free", "used"), [(8, 4, 0.0), (8, 1, 0.75), (1, 4, 0.875), (6, 2, 0.5), (0, 0, 1.0)]
)
def test_the_more_used_of_slices_and_cpus_counts(cpus_free: int, slices_free: int, used: float) -> None:
    assert use_of(worker(cpus_free, slices_free), CATALOGUE) == used


def engine(held_tokens: int, members: int, waiting: int) -> WorkerState:
    made = worker(slices_free=3)
    made.cached[0] = held_tokens * KV
    for lease in range(members):
        made.running[lease] = Batch(lease, ((lease, 0),), 0, (0,), cache_bytes=KV, loaded=lease >= waiting)
    return made


@pytest.mark.parametrize(
    ("held_tokens", "members", "waiting", "used"),
    [
        (11, 1, 0, 0.25),  # the slice decides
        (55, 5, 0, 0.5),  # the cache
        (55, 8, 3, 0.8),  # and those in the line, as they are expected
        (11, 14, 0, 0.7),  # the places of the batch: 14 of 20
        (110, 18, 9, 1.0),  # never more than full
    ],
)
def test_an_engine_counts_with_its_cache_its_batch_and_its_line(
    held_tokens: int, members: int, waiting: int, used: float
) -> None:
    assert use_of(engine(held_tokens, members, waiting), CATALOGUE) == pytest.approx(used)


def grown(path: Path, rate: float) -> float:
    """The mean number of workers of a run that begins with one of eight, at a target of 0.5."""
    document: dict[str, Any] = {
        "serving": {"scenario": str(path), "autoscale": "utilisation(target=0.5,every=1s,initial=1)", "startup": "1s"},
        "workload": {"rate": rate, "requests": 600, "overload": True},
        "policy": {"name": "headway"},
    }
    return float(numbers(play(prepare(toml.typed(document, ServingExperiment, "test")))).row["workers_mean"])


def test_a_fleet_grows_where_its_tasks_run_on_cpus_alone(tmp_path: Path) -> None:
    """60 requests a second for 100 ms on 2 of 4 CPUs: three workers' worth, six at the target."""
    path = tmp_path / "cpus.toml"
    path.write_text(
        '[functions]\nlook = { ms = 100, cpus = 2, slices = 0 }\n[graphs.all]\nchain = ["look"]\n'
        '[fleet]\nworkers = [{ count = 8, memory = "10GB", cpus = 4 }]\n'
    )
    assert 4 < grown(path, 60) < 8


def test_a_fleet_grows_where_only_the_cache_of_its_engines_is_used(tmp_path: Path) -> None:
    """Requests hold no slices and no CPUs; eight of them fill a cache."""
    path = tmp_path / "chat.toml"
    path.write_text(
        'base = "chat"\n'
        "[functions.answer]\n"
        'generate = { cache = "1.5GB", prompt = 1155, output = 211, cpus = 0, slices = 0 }\n'
        '[fleet]\nworkers = [{ count = 8, memory = "141GB", gpu = "h200", cpus = 8 }]\n'
        "[workload]\nprompt_tokens = 1155\noutput_tokens = 211\n"
    )
    assert 3 < grown(path, 16) <= 8

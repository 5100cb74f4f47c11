"""A fixed set of items under a byte budget, shared by the workers of torch's loader."""

import copy
import json
import os
import pickle
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from torch.utils.data import DataLoader

from headway.errors import InputError
from headway.program.cached import BUDGET_VARIABLE, REPORT_VARIABLE, CachedDataset
from tests.program.items import Counted, Mixed, hundred


@pytest.fixture(autouse=True)
def undisturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No profiler runs."""
    monkeypatch.delenv(BUDGET_VARIABLE, raising=False)
    monkeypatch.delenv(REPORT_VARIABLE, raising=False)


def epoch(cache: CachedDataset, workers: int = 0, way: str | None = None, batch: int = 4) -> list[Any]:
    """All items, in the loader's random order."""
    loader: DataLoader[Any] = DataLoader(
        cache,  # type: ignore[arg-type]
        batch_size=batch,
        shuffle=True,
        num_workers=workers,
        multiprocessing_context=way,
        collate_fn=list,
    )
    return [item for each in loader for item in each]


@pytest.mark.parametrize(("workers", "way"), [(0, None), (2, "fork"), (2, "spawn")])
@pytest.mark.parametrize("sized", [True, False])
def test_the_hit_rate_is_exactly_the_cached_share(tmp_path: Path, workers: int, way: str | None, sized: bool) -> None:
    items = Counted(40, tmp_path / "log")
    cache = CachedDataset(items, 1250, size=(lambda index: 100) if sized else None)
    wanted = sorted(items.item(index) for index in range(40))
    for number in range(3):
        assert sorted(epoch(cache, workers, way)) == wanted
        assert (cache.hits, cache.misses) == (12 * number, 40 + 28 * number)
    assert (cache.cached, cache.cached_bytes) == (12, 1200)
    assert sorted(Counter(items.reads()).values()) == [1] * 12 + [3] * 28


@given(st.integers(0, 60), st.integers(0, 3000), st.integers(0, 3), st.booleans())
def test_every_item_is_what_it_was_and_the_budget_holds(count: int, budget: int, seed: int, sized: bool) -> None:
    plain = [Mixed(count, Path("/dev/null")).item(index) for index in range(count)]
    sizes = [len(each if type(each) is bytes else pickle.dumps(each, pickle.HIGHEST_PROTOCOL)) for each in plain]
    cache = CachedDataset(plain, budget, size=sizes.__getitem__ if sized else None, seed=seed)
    for _ in range(3):
        assert [cache[index] for index in range(count)] == plain
        assert cache.cached_bytes <= budget
    kept = cache.cached
    assert cache.hits == 2 * kept
    assert cache.hits + cache.misses == 3 * count
    if budget >= sum(sizes):
        assert kept == count


def test_who_is_kept_is_drawn_by_the_seed_alone(tmp_path: Path) -> None:
    def kept(seed: int, order: list[int]) -> set[int]:
        items = Counted(30, tmp_path / f"{seed}{order[0]}")
        cache = CachedDataset(items, 1000, size=hundred, seed=seed)
        for index in [*order, *order]:
            cache[index]
        return {index for index, reads in Counter(items.reads()).items() if reads == 1}

    forwards, backwards = list(range(30)), list(range(29, -1, -1))
    assert kept(1, forwards) == kept(1, backwards)
    assert kept(1, forwards) != kept(2, backwards)
    assert len(kept(3, forwards)) == 10


@pytest.mark.parametrize("sized", [True, False])
def test_filling_reads_what_is_kept_and_nothing_twice(tmp_path: Path, sized: bool) -> None:
    items = Counted(40, tmp_path / "log")
    cache = CachedDataset(items, "1KB", size=hundred if sized else None)
    cache.fill()
    cache.fill()
    assert (cache.cached, len(items.reads())) == (10, 10)
    epoch(cache)
    assert (cache.hits, cache.misses) == (10, 30)


def test_threads_may_share_it(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    items = Mixed(50, tmp_path / "log")
    cache = CachedDataset(items, 2000)
    with ThreadPoolExecutor(8) as pool:
        read = list(pool.map(cache.__getitem__, [*range(50)] * 8))
    assert read == [items.item(index) for index in range(50)] * 8
    assert cache.cached_bytes <= 2000
    before = cache.cached
    assert [cache[index] for index in range(50)] == [items.item(index) for index in range(50)]
    assert cache.cached == before


def test_processes_that_fill_at_the_same_time_keep_each_item_once(tmp_path: Path) -> None:
    items = Counted(200, tmp_path / "log")
    cache = CachedDataset(items, 100 * 150)
    children = []
    for _ in range(4):
        child = os.fork()
        if not child:
            same = all(cache[index] == items.item(index) for index in range(200))
            os._exit(0 if same else 1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    assert (cache.cached, cache.cached_bytes) == (150, 15000)
    assert cache.hits + cache.misses == 800
    assert [cache[index] for index in range(200)] == [items.item(index) for index in range(200)]
    assert len(items.reads()) == cache.misses


def test_a_worker_that_is_killed_while_it_writes_stops_nobody(tmp_path: Path) -> None:
    items = Counted(20, tmp_path / "log")
    cache = CachedDataset(items, 2000)
    child = os.fork()
    if not child:
        with cache._store._locked():
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert [cache[index] for index in range(20)] == [items.item(index) for index in range(20)]
    assert cache.cached == 20


def test_nothing_is_left_of_a_program_that_is_killed(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys, time\n"
        "from headway import CachedDataset\n"
        "cache = CachedDataset([b'x' * 4096] * 100, '1MB')\n"
        "if not os.fork():\n"
        "    list(cache)\n"
        "    print(os.readlink(f'/proc/self/fd/{cache._store._file}'), flush=True)\n"
        "    os.kill(os.getppid(), signal.SIGKILL)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "time.sleep(600)\n"
    )
    before = set(os.listdir("/dev/shm"))
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == -signal.SIGKILL
    assert done.stdout.strip() == "/memfd:headway-cache (deleted)"
    assert not [name for name in set(os.listdir("/dev/shm")) - before if "headway" in name]


def test_the_descriptor_goes_with_the_cache() -> None:
    def open_files() -> int:
        return sum("headway-cache" in _target(name) for name in os.listdir("/proc/self/fd"))

    before = open_files()
    cache = CachedDataset([b"a"], 10)
    assert open_files() > before
    del cache
    assert open_files() == before


def _target(name: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{name}")
    except OSError:
        return ""


def test_a_copy_that_is_saved_begins_anew(tmp_path: Path) -> None:
    items = Counted(10, tmp_path / "log")
    cache = CachedDataset(items, 500, size=hundred, seed=3)
    epoch(cache)
    for twin in (pickle.loads(pickle.dumps(cache)), copy.copy(cache)):
        assert (len(twin), twin.budget_bytes, twin.cached, twin.misses) == (10, 500, 0, 0)
        assert sorted(twin) == sorted(items.item(index) for index in range(10))
        assert twin.cached == 5
    assert cache.misses == 10


def test_it_is_a_sequence(tmp_path: Path) -> None:
    cache = CachedDataset(Counted(5, tmp_path / "log"), 200)
    assert len(cache) == 5
    assert cache[-1] == cache[4] == b"%100d" % 4
    assert len(list(cache)) == 5
    with pytest.raises(IndexError, match="item 5 of 5"):
        cache[5]


# --- what a profiler asks and is told -------------------------------------------------------------------------


def test_the_environment_has_the_last_word_on_the_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BUDGET_VARIABLE, "700")
    items = Counted(10, tmp_path / "log")
    cache = CachedDataset(items, "1TB")
    assert (cache.budget_bytes, cache.cached) == (700, 7)  # filled already: this hit rate is to be measured


def test_it_reports_itself(tmp_path: Path) -> None:
    report = tmp_path / "report"
    program = (
        "from headway import CachedDataset\n"
        "cache = CachedDataset([b'x' * 10, b'y' * 30] * 5, 90, size=lambda i: (10, 30)[i % 2])\n"
        "for _ in range(2): list(cache)\n"
    )
    told = {**os.environ, REPORT_VARIABLE: str(report)}
    subprocess.run([sys.executable, "-c", program], env=told, check=True)
    first, *_, last = map(json.loads, report.read_text().splitlines())
    sizes = {"items": 10, "item_bytes_mean": 20.0, "dataset_bytes": 200}
    assert first == {**sizes, "cached_bytes": 0, "hits": 0, "misses": 0}
    assert last["cached_bytes"] <= 90
    assert last["hits"] + last["misses"] == 20
    assert set(last) == set(first)


def test_sizes_that_nobody_told_are_learnt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "report"
    monkeypatch.setenv(REPORT_VARIABLE, str(report))
    cache = CachedDataset([b"x" * 10, b"y" * 30] * 5, 0)
    list(cache)
    del cache
    last = json.loads(report.read_text().splitlines()[-1])
    assert (last["item_bytes_mean"], last["dataset_bytes"], last["cached_bytes"]) == (20.0, 200, 0)


def test_a_report_that_cannot_be_written_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REPORT_VARIABLE, str(tmp_path / "nowhere" / "report"))
    assert len(list(CachedDataset([b"x"] * 3, 10))) == 3


@pytest.mark.parametrize(
    ("dataset", "budget", "line"),
    [
        ([1], "20 bananas", "cache budget '20 bananas' is not understood"),
        ([1], -1, "cache budget -1 must not be negative"),
        (iter([1]), 10, "CachedDataset: list_iterator needs a length and items by number"),
    ],
)
def test_what_it_cannot_use_is_named(dataset: Any, budget: str | int, line: str) -> None:
    with pytest.raises(InputError, match=line):
        CachedDataset(dataset, budget)

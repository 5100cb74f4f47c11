"""A sweep over a Ray cluster of three nodes, one of them killed meanwhile: every cell is done, none differs."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep
from types import SimpleNamespace
from typing import Any

import pytest

from headway.cli import main
from headway.errors import ExperimentError
from headway.runs.sweep import ray_pool

STORE_BYTES = 80_000_000
GRID = """
scale = "jobs"
[trace.synthetic]
jobs = 6000
load = 0.9
[cluster]
nodes = 24
gpus_per_node = 8
[measure]
seeds = 5
[sweep]
policy.name = ["fifo", "srtf+easy"]
"""
SWEEP = ("jobs", "sweep", "--grid")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Three nodes on the loopback interface, one core each."""
    source = str(Path(__file__).resolve().parents[3] / "src")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([source, os.environ.get("PYTHONPATH", "")]))
    ray_pool.library()
    from ray.cluster_utils import Cluster

    size = {"num_cpus": 1, "object_store_memory": STORE_BYTES, "node_ip_address": "127.0.0.1"}
    three = Cluster(initialize_head=True, head_node_args={**size, "include_dashboard": False})
    try:
        for _ in range(2):
            three.add_node(**size)
        yield three
    finally:
        three.shutdown()


def _digests(folder: Path) -> dict[str, str]:
    """Of each cell, by the name of its file."""
    cells = {path.stem: json.loads(path.read_text()) for path in (folder / "cells").glob("*.json")}
    return {name: cell["row"]["digest"] for name, cell in cells.items() if not cell["error"]}


def _busy(cluster: Any) -> list[Any]:
    """The nodes, but the head, that are at a cell at this moment: a process at a task goes by the task's name."""
    return [node for node in cluster.worker_nodes if _at_a_cell(node.all_processes["raylet"][0].process.pid)]


def _at_a_cell(raylet: int) -> bool:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == raylet and (folder / "cmdline").read_bytes().startswith(b"ray::_steps"):
                return True
        except OSError:
            continue
    return False


@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_a_killed_node_loses_no_cell_and_results_are_those_of_the_local_engine(tmp_path: Path, cluster: Any) -> None:
    grid, far, near = tmp_path / "grid.toml", tmp_path / "far", tmp_path / "near"
    grid.write_text(GRID)
    words = [sys.executable, "-m", "headway", *SWEEP, grid, "-o", far, "--engine", "ray", "--address", cluster.address]
    with subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        began = monotonic()
        while len(list((far / "cells").glob("*.json"))) < 2 or not (busy := _busy(cluster)):
            assert running.poll() is None, running.communicate()
            assert monotonic() - began < 120
            sleep(0.01)
        left = 10 - len(list((far / "cells").glob("*.json")))
        cluster.remove_node(busy[0], allow_graceful=False)
        out, err = running.communicate(timeout=180)
    assert running.returncode == 0, err
    assert left > 0
    assert "failed" not in err
    assert "srtf+easy" in out
    with pytest.raises(SystemExit) as ended:
        main([*SWEEP, str(grid), "-o", str(near), "--processes", "2"])
    assert ended.value.code == 0
    assert len(_digests(far)) == 10
    assert _digests(far) == _digests(near)


# --- against a cluster that is not one ---------------------------------------------------------------------------


class OutOfMemoryError(Exception):
    """What Ray says of a task that it killed for want of memory."""


class Cluster:
    """So much of Ray as the pool asks of it; tasks are done when somebody waits for them."""

    exceptions = SimpleNamespace(RayError=OutOfMemoryError)

    def __init__(self, cpus: int = 2, busy: int = 0) -> None:
        self.cpus = cpus
        self.busy = busy
        self.most_given = 0
        self.begun: list[Any] = []
        self.options: dict[str, Any] = {}

    def is_initialized(self) -> bool:
        return False

    def init(self, **_given: object) -> None:
        pass

    def shutdown(self) -> None:
        pass

    def remote(self, **options: Any) -> Any:
        self.options = options
        return lambda steps: SimpleNamespace(remote=lambda work, task: self._stream(steps, work, task))

    def _stream(self, steps: Any, work: Any, task: Any) -> Iterator[Any]:
        for answer in steps(work, task):
            if answer is None:
                self.begun.append(task)
            yield OutOfMemoryError("no memory") if answer is not None and task == "large" else answer

    def wait(self, references: list[Any], **_given: object) -> tuple[list[Any], list[Any]]:
        self.most_given = max(self.most_given, len(references))
        self.busy -= 1
        return ([], references) if self.busy >= 0 else (references[:1], references[1:])

    def get(self, answer: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": self.cpus}

    def available_resources(self) -> dict[str, float]:
        return {}


def length(task: Any, _progress: Any) -> int:
    return len(task)


def test_a_task_that_is_too_large_for_all_machines_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    monkeypatch.setattr(ray_pool, "library", lambda: cluster)
    found = {done.task: done for done in ray_pool.RayPool("auto").run(["one", "large", "three"], length)}
    assert (found[0].result, found[2].result) == (3, 5)
    assert "lost 6 times: OutOfMemoryError (no memory)" in str(found[1].problem)
    assert cluster.begun.count("large") == ray_pool.ATTEMPTS
    assert cluster.options["max_retries"] == 0  # Ray would begin it again for ever


def test_ray_has_few_tasks_at_a_time_and_those_at_work_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(cpus=2)
    monkeypatch.setattr(ray_pool, "library", lambda: cluster)
    told: list[tuple[int, Any]] = []
    tasks = ["x" * number for number in range(60)]
    ends = list(ray_pool.RayPool("auto").run(tasks, length, lambda task, far: told.append((task, far))))
    assert sorted(end.result for end in ends) == list(range(60))
    assert cluster.most_given == 2 * ray_pool.AHEAD_PER_CPU
    assert sorted(told) == [(number, None) for number in range(60)]


def test_a_cluster_without_a_free_cpu_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(cpus=3, busy=5)
    monkeypatch.setattr(ray_pool, "library", lambda: cluster)
    monkeypatch.setattr(ray_pool, "NOTICE_S", 0.0)
    notes: list[str] = []
    assert len(list(ray_pool.RayPool("auto", note=notes.append).run(["a"], length))) == 1
    assert notes == ["the Ray cluster runs none of the tasks: 0 of its 3 CPUs are free; still waiting"]


def test_without_ray_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ExperimentError, match=r"pip install 'headway\[ray\]'"):
        ray_pool.library()


def test_a_cluster_that_is_not_there_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Absent:
        def is_initialized(self) -> bool:
            return False

        def init(self, **_given: object) -> None:
            raise ConnectionError("Could not find any running Ray instance.\nMore about it.")

    monkeypatch.setattr(ray_pool, "library", Absent)
    (tmp_path / "grid.toml").write_text(GRID)
    with pytest.raises(SystemExit) as ended:
        main([*SWEEP, str(tmp_path / "grid.toml"), "-o", str(tmp_path / "s"), "--engine", "ray", "--address", "auto"])
    assert ended.value.code == 2
    line = "headway: Ray cluster 'auto': cannot be joined (Could not find any running Ray instance.)\n"
    assert capsys.readouterr().err == line

"""A sweep over a Ray cluster of three nodes, one of them killed meanwhile: every cell is done, none differs."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from headway.cli import main
from headway.errors import ExperimentError
from headway.live import ray_pool

STORE_BYTES = 80_000_000
GRID = """
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


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Three nodes on the loopback interface, one core each."""
    source = str(Path(__file__).resolve().parents[2] / "src")
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
            if parent == raylet and (folder / "cmdline").read_bytes().startswith(b"ray::_call"):
                return True
        except OSError:
            continue
    return False


@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_a_killed_node_loses_no_cell_and_results_are_those_of_the_local_engine(tmp_path: Path, cluster: Any) -> None:
    grid, far, near = tmp_path / "grid.toml", tmp_path / "far", tmp_path / "near"
    grid.write_text(GRID)
    words = [sys.executable, "-m", "headway", "sweep", grid, "-o", far, "--engine", "ray", "--address", cluster.address]
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
        main(["sweep", str(grid), "-o", str(near), "--processes", "2"])
    assert ended.value.code == 0
    assert len(_digests(far)) == 10
    assert _digests(far) == _digests(near)


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
        main(["sweep", str(tmp_path / "grid.toml"), "-o", str(tmp_path / "s"), "--engine", "ray", "--address", "auto"])
    assert ended.value.code == 2
    line = "headway: Ray cluster 'auto': cannot be joined (Could not find any running Ray instance.)\n"
    assert capsys.readouterr().err == line

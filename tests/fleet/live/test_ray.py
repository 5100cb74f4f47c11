"""Serving on a Ray cluster of three nodes: graphs are answered, a killed replica too, and the run replays.

The cluster is started once, for all tests that need it.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from urllib.request import Request, urlopen

import pytest

from headway.core.replay import first_difference
from headway.fleet.audit.replay import about
from headway.fleet.live.client.client import Client
from headway.fleet.model.rows import Kind
from headway.runs.folder.folder import open_run
from headway.runs.sweep import ray_pool

APP = Path(__file__).with_name("app.py")
ROOT = APP.parents[3]
STORE_BYTES = 80_000_000
PATIENCE_S = 120
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own


def ignore_ends_of_routers() -> None:
    """Have Ray's router threads end as they like: one may fail long after its cluster is gone, in another test."""
    before = threading.excepthook

    def hook(failed: threading.ExceptHookArgs) -> None:
        if failed.thread is None or "_run_router_event_loop" not in failed.thread.name:
            before(failed)

    threading.excepthook = hook


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of three nodes on the loopback interface."""
    ignore_ends_of_routers()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    ray_pool.library()
    from ray.cluster_utils import Cluster

    size = {"num_cpus": 2, "object_store_memory": STORE_BYTES, "node_ip_address": "127.0.0.1"}
    three = Cluster(initialize_head=True, head_node_args={**size, "include_dashboard": False})
    try:
        for _ in range(2):
            three.add_node(**size)
        yield three.address
    finally:
        three.shutdown()


class Started:
    """A server on Ray, started by the command."""

    def __init__(self, folder: Path, address: str, *flags: str) -> None:
        self.place, self.run = folder / "place", folder / "run"
        words = ["serve", "start", APP, "--engine", "ray", "--address", address, "--workers", "3", "--port", "0"]
        more = ["--gpu-memory", "1GB", "--folder", self.place, "--out", self.run, *flags]
        command = [sys.executable, "-m", "headway", *words, *more]
        self.log = folder / "log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log)
        self.until(lambda: "headway call" in self.log.read_text())
        self.client = Client(str(self.place))

    def until(self, done: Any) -> None:
        """Wait for something while the server runs."""
        began = monotonic()
        while not done():
            assert self.process.poll() is None, self.log.read_text()
            assert monotonic() - began < PATIENCE_S, self.log.read_text()
            sleep(0.05)

    def workers(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.client.status()["server"]["workers"]
        return found

    def http(self, value: Any) -> Any:
        """The answer of Serve's proxy."""
        url = self.client.status()["url"] + "/v1/graphs/one"
        with urlopen(Request(url, json.dumps({"input": value}).encode()), timeout=60) as found:
            return json.load(found)["output"]

    def stop(self) -> None:
        self.client.close()
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(PATIENCE_S) == 0, self.log.read_text()


def test_a_graph_is_answered_a_killed_replica_too_and_the_run_replays(tmp_path: Path, address: str) -> None:
    started = Started(tmp_path, address)
    try:
        assert started.http({"n": 7}) == {"n": 7, "trail": ["read"]}
        orders: list[dict[str, Any]] = [{"n": n} for n in range(12)]
        orders[3] = {"n": 3, "do": "kill", "at": "read", "once": str(tmp_path / "once")}
        with ThreadPoolExecutor(12) as many:
            answers = list(many.map(lambda order: started.client.call("both", order), orders))
        assert [answer["n"] for answer in answers] == list(range(12))
        assert all(answer["trail"] == ["begin", "read", "begin", "speak", "join"] for answer in answers)
        started.until(lambda: all(each["up"] for each in started.workers()))
        assert sorted(each["starts"] for each in started.workers()) == [1, 1, 2]
        assert started.client.call("one", {"n": 8}) == {"n": 8, "trail": ["read"]}
    finally:
        started.stop()
    run = open_run(started.run, trust=True)
    assert run.scene.experiment.serving.engine == "ray"
    assert run.scene.audit(run.tape, complete=True) == []
    again = run.scene.replay(run.tape, complete=True)
    assert (difference := first_difference(run.tape, again, Kind, about)) is None, difference


def test_serve_chooses_the_number_of_workers_and_no_request_is_lost(tmp_path: Path, address: str) -> None:
    told = {"min_replicas": 1, "upscale_delay_s": 0.5, "downscale_delay_s": 2}
    pairs = {**told, "look_back_period_s": 1, "metrics_interval_s": 0.2}
    flags = (word for key, value in pairs.items() for word in ("--scale", f"{key}={value}"))
    started = Started(tmp_path, address, *flags)

    def up() -> int:
        return sum(each["up"] for each in started.workers())

    try:
        assert up() == 1  # the least
        with ThreadPoolExecutor(8) as many:
            most, number = 1, 0
            while most < 2:
                orders = [{"n": number + each, "do": "sleep", "at": "read", "s": 0.05} for each in range(8)]
                answers = list(many.map(lambda order: started.client.call("one", order), orders))
                assert [answer["n"] for answer in answers] == [order["n"] for order in orders]
                most, number = max(most, up()), number + 8
                assert number < 8_000, started.log.read_text()
        started.until(lambda: up() == 1)  # nothing to do
        assert started.client.call("one", {"n": 9})["n"] == 9
    finally:
        started.stop()
    run = open_run(started.run, trust=True)
    assert run.scene.audit(run.tape, complete=True) == []
    again = run.scene.replay(run.tape, complete=True)
    assert (difference := first_difference(run.tape, again, Kind, about)) is None, difference


def test_the_router_alone_sends_a_call_where_its_model_is(address: str) -> None:
    import ray
    from ray import serve

    from tests.fleet.live.models import routed

    ray.init(address=address, _node_ip_address="127.0.0.1", log_to_driver=False, logging_level="ERROR")
    try:
        handle = serve.run(routed.bind(), name="models", route_prefix="/models")
        where = {model: handle.remote(model=model).result()[0] for model in "abc"}
        assert len(set(where.values())) == 3  # a replica has room for one
        for model in "cabbaccab":
            replica, asked = handle.remote(model=model).result()
            assert (replica, asked) == (where[model], [model])
        serve.delete("models")
    finally:
        ray.shutdown()

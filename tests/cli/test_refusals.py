"""Input that used to be taken in silence, or to run for ever: refused in one line, at every scale."""

import socket
from pathlib import Path
from typing import Any

import pytest

from headway.cli import main
from headway.errors import ExperimentError
from headway.fleet.scenarios import file as scenario_file
from headway.fleet.scenarios.tables.settings import ServingExperiment, parse_slo
from headway.formats import toml
from headway.jobs.state.queue import Queue
from headway.jobs.tables import cluster as cluster_table
from headway.runs.sweep import ray_pool

SIZE = ("--nodes", "2", "--gpus-per-node", "8")
JOBS = "submit_s,work_s,gpus\n0,100,8\n0,100,8\n1,50,8\n"
FLEET = ("fleet", "simulate", "compass", "--requests", "20", "--policy")


@pytest.fixture
def jobs(tmp_path: Path) -> str:
    """Three jobs without names."""
    path = tmp_path / "jobs.csv"
    path.write_text(JOBS)
    return str(path)


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line with which a command ends."""
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (2, ""), said.err
    assert said.err.count("\n") == 1
    return said.err


# --- numbers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (("--round", "1ns"), "policy fifo+round(1ns): its round is 1ns: must be at least 1s, or 0s"),
        (("--policy", "srtf+round(5ms)"), "its round is 5ms: must be at least 1s"),
        (("--policy", "ftf(lease=1us)"), "its order computes keys anew every 1us: must be at least 1s"),
        (("--failures", "mtbf=1ns"), "failures mtbf '1ns' must be at least 1s"),
        (("--failures", "mtbf=1s,repair=1ns"), "failures mtbf is 1s: job 0 wants 1m40s without a failure"),
        (("--set", "costs.migration=nan"), "costs.migration is nan: must be a finite number"),
        (("--set", "cluster.gpu_speed.gpu=inf"), "cluster.gpu_speed.gpu is inf: must be a finite number"),
        (("--set", "cluster.node_groups=[{nodes=1,gpus=8}]"), "cluster: nodes = 2 stands beside node_groups"),
    ],
)
def test_what_would_never_end_or_means_nothing_for_jobs(
    flags: tuple[str, ...], line: str, jobs: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert line in refused(capsys, "jobs", "simulate", jobs, *SIZE, *flags)


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (("--rate", "nan"), "workload.rate is nan: must be a finite number"),
        (("--failures", "every=1ns"), "failures every '1ns' must be at least 1s"),
        (("--failures", "mtbf=1ms,repair=1s"), "failures mtbf '1ms' must be at least 1s"),
        (("--set", "workload.mix.translation=inf"), "workload.mix.translation is inf: must be a finite number"),
        (("--slo", "9" * 400 + "L"), "must not be over 1,000,000 times the critical path"),
        (("--slo", "200000d"), "must not be over 100 years"),
    ],
)
def test_what_would_never_end_or_means_nothing_for_requests(
    flags: tuple[str, ...], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert line in refused(capsys, "fleet", "simulate", "compass", *flags)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
@pytest.mark.parametrize(
    "place",
    [
        ("fleet", "prices", "cpu_hour"),
        ("fleet", "prices", "memory_gib_hour"),
        ("fleet", "workers", 0, "hour_usd"),
        ("functions", "f", "ms"),
        ("functions", "f", "spread"),
        ("functions", "f", "cold_start"),
        ("workload", "rate"),
    ],
)
def test_a_number_of_a_scenario_is_finite_and_not_negative(
    place: tuple[Any, ...], value: float, tmp_path: Path
) -> None:
    table: dict[str, Any] = {
        "models": {"m": "1GB"},
        "functions": {"f": {"models": ["m"], "ms": 10.0}},
        "graphs": {"g": {"chain": ["f"]}},
        "fleet": {"workers": [{"memory": "14GB"}], "prices": {}},
        "workload": {},
    }
    at: Any = table
    for step in place[:-1]:
        at = at[step]
    at[place[-1]] = value
    path = tmp_path / "mine.py"
    path.write_text(f"nan, inf = float('nan'), float('inf')\ndef scenario(experiment):\n    return {table!r}\n")
    experiment = toml.typed({"serving": {"scenario": str(path)}}, ServingExperiment, "test")
    with pytest.raises(ExperimentError if place[-1] not in ("ms", "spread") else Exception) as caught:
        scenario_file.load(experiment)
    assert str(place[-1]) in str(caught.value) or "takes -1 ms" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_deadline_that_is_far_away_is_still_one() -> None:
    assert parse_slo("1000000L") == (0, 1e6)


def test_groups_of_nodes_alone_are_no_contradiction() -> None:
    groups = [cluster_table.NodeGroup(nodes=2, gpus=4)]
    assert len(cluster_table.build(cluster_table.ClusterTable(node_groups=groups)).nodes) == 2
    for key, value in {"gpus_per_node": 8, "cpus_per_node": 4, "memory_per_node": "1GB", "gpu_type": "a"}.items():
        with pytest.raises(ExperimentError, match=f"cluster: {key} = .* stands beside node_groups"):
            cluster_table.build(cluster_table.ClusterTable(node_groups=groups, **{key: value}))  # type: ignore[arg-type]


# --- lists --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("jobs", "compare", "JOBS", *SIZE, "--policies", "fifo,srtf,fifo"),
        ("fleet", "compare", "compass", "--policies", "hash, hash"),
        ("gpu", "compare", "vgg16", "matmul", "--policies", "mps,mps"),
    ],
)
def test_no_policy_is_compared_with_itself(
    words: tuple[str, ...], jobs: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = refused(capsys, *(jobs if word == "JOBS" else word for word in words))
    assert "is named twice; name each once" in line


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("jobs", "JOBS", *SIZE, "fifo,fifo+none"), "policies: fifo+none is the same as fifo; name each once"),
        (("jobs", "JOBS", *SIZE, "srtf+fit,las,srtf"), "policies: srtf is the same as srtf+fit; name each once"),
    ],
)
def test_nor_is_one_that_is_written_in_two_ways(
    words: tuple[str, ...], line: str, jobs: str, capsys: pytest.CaptureFixture[str]
) -> None:
    scale, *work, policies = (jobs if word == "JOBS" else word for word in words)
    assert line in refused(capsys, scale, "compare", *work, "--policies", policies)


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (("--loads", ""), "--loads is empty"),
        (("--policies", " "), "--policies is empty"),
        (("--nodes", ""), "--nodes is empty"),
        (("--loads", "nan"), "--loads nan is not a number above 0"),
        (("--loads", "1,inf"), "--loads inf is not a number above 0"),
        (("--loads", "1,1"), "--loads '1,1': 1 is named twice"),
        (("--policies", "fifo,fifo"), "policies 'fifo,fifo': fifo is named twice"),
        (("--vary", "costs.migration=1.5,nan"), "costs.migration is nan: must be a finite number"),
    ],
)
def test_a_sweep_is_over_different_numbers(
    flags: tuple[str, ...], line: str, jobs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (jobs, "--gpus-per-node", "8", "--set", "cluster.nodes=2", "-o", str(tmp_path / "s"))
    assert line in refused(capsys, "jobs", "sweep", *words, *flags)


# --- names --------------------------------------------------------------------------------------------------------


def test_an_empty_job_is_none(jobs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["jobs", "simulate", jobs, *SIZE, "--out", str(tmp_path / "run")])
    capsys.readouterr()
    for job in ("", " "):
        assert "the job is empty: name it by its id" in refused(capsys, "story", str(tmp_path / "run"), job)


# --- orders of one's own --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "key", "line"),
    [
        ("mixed", "'x' if js.id == 1 else js.id", "the key of job 1 is 'x' and that of job 0 is 0, which cannot be"),
        ("nans", "(float('nan'), js.id) if js.id == 2 else (1.0, js.id)", "the key of job 2 is (nan, 2): nothing"),
        ("none", "{}", "the key of job 0 is {}, which cannot be compared"),
    ],
)
def test_keys_that_cannot_be_sorted_are_refused_with_the_policy_the_job_and_the_value(
    name: str, key: str, line: str, jobs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = "from headway.jobs.policies.parts import Order\n\n\n"
    body = f"class Mine(Order):\n    name = '{name}'\n\n    def key(self, now, js):\n        return {key}\n"
    (tmp_path / f"{name}.py").write_text(head + body)
    words = ("jobs", "simulate", jobs, *SIZE, "--policy", f"{tmp_path / name}.py:Mine")
    assert f"headway: policy {name}: {line}" in refused(capsys, *words)


def test_keys_that_differ_further_inside_are_refused_where_they_meet() -> None:
    queue = Queue()
    queue.add("", ((0, 5), 0))
    with pytest.raises(ExperimentError, match=r"key \(0, 'y'\) of job 1 cannot be compared"):
        queue.add("", ((0, "y"), 1))
    queue.add("", ((0, 6), 1))
    with pytest.raises(ExperimentError, match="cannot be compared"):
        queue.rekey([""], {0: (0, 5), 1: (0, "y")}.__getitem__)


# --- serving policies of one's own ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "body", "line"),
    [
        ("returns-none", "return None", "decide returned None; it must yield actions"),
        ("yields-text", "yield 'go'", "(own.py, line 9): decide yields 'go'; it must yield actions: PlaceRequest,"),
        ("names-text", "yield PlaceRequest('a', (0,))", "line 9): PlaceRequest(request='a'): must be a whole number"),
        ("half-task", "yield RunBatch(0, ((0,),))", "RunBatch(tasks=((0,),)): must be pairs (request, task)"),
        ("no-worker", "yield RunBatch(99, ((0, 0),))", "line 9): RunBatch(worker=99"),
        ("too-late", "yield WakeAt(now)", "must be later than now"),
        ("leaves", "exit(3)", "SystemExit in own.py, line 9"),
        ("errs", "return [state.nothing]", "AttributeError in own.py, line 9: 'ServingState' object has no"),
    ],
)
def test_what_a_serving_policy_gets_wrong_is_said_with_its_name_file_and_line(
    name: str, body: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.py").write_text(
        "from headway.fleet.model.actions import PlaceRequest, RunBatch, WakeAt\n"
        "from headway.fleet.policies.parts import ServingPolicy\n\n\n"
        f"class Own(ServingPolicy):\n    name = '{name}'\n\n    def decide(self, now, state):\n        {body}\n"
    )
    said = refused(capsys, *FLEET, f"{tmp_path / 'own.py'}:Own")
    assert said.startswith(f"headway: policy {name}")
    assert line in said


def test_a_method_of_a_serving_policy_that_cannot_be_called_is_refused_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bound.py").write_text(
        "from headway.fleet.policies.compass.hash import Hash\n\n\n"
        "class Bound(Hash):\n    name = 'bound'\n\n    def bind(self):\n        pass\n"
    )
    line = "policy bound: bind(self) has the wrong arguments: define it as bind(self, state)"
    assert line in refused(capsys, *FLEET, f"{tmp_path / 'bound.py'}:Bound")


# --- a cluster that is not there --------------------------------------------------------------------------------------


def test_a_ray_address_where_nobody_listens_is_refused_before_ray_is_asked(
    jobs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Asked:
        def is_initialized(self) -> bool:
            return False

        def init(self, **_given: object) -> None:
            pytest.fail("Ray would try for minutes")

    monkeypatch.setattr(ray_pool, "library", Asked)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    words = ("jobs", "sweep", jobs, *SIZE[2:], "--nodes", "1,2", "-o", str(tmp_path / "s"), "--engine", "ray")
    said = refused(capsys, *words, "--address", f"127.0.0.1:{port}")
    assert f"Ray cluster '127.0.0.1:{port}': cannot be joined (Connection refused)" in said
    assert "is no address: write auto, or host:port" in refused(capsys, *words, "--address", "127.0.0.1")
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
    assert "cannot be joined" in refused(capsys, *words, "--address", "auto")

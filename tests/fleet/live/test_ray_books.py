"""The books of headway's router for other deployments, and options of the command for Ray."""

from pathlib import Path

import pytest

from headway.cli import main
from headway.errors import InputError, ServeError
from headway.fleet.ray.residency import Books

APP = Path(__file__).with_name("app.py")
REPLICAS = ["x", "y", "z"]


def books(memory: str = "90MB", load_calls: float = 2) -> Books:
    return Books({"a": "40MB", "b": "40MB", "c": 40_000_000}, memory, load_calls)


def test_a_call_goes_where_its_model_is() -> None:
    kept = books()
    kept.use("a", "y")
    assert kept.ranked("a", REPLICAS) == ["y", "x", "z"]
    assert kept.ranked("b", REPLICAS) == REPLICAS
    assert kept.ranked("b", REPLICAS, holding=["z"]) == ["z", "x", "y"]


def test_a_queue_that_is_longer_than_a_load_is_avoided() -> None:
    kept = books(load_calls=2)
    kept.use("a", "y")
    for _ in range(2):
        kept.begin("y")
    assert kept.ranked("a", REPLICAS)[0] == "y"
    kept.begin("y")
    assert kept.ranked("a", REPLICAS) == ["x", "z", "y"]
    kept.end("y")
    assert kept.ranked("a", REPLICAS)[0] == "y"


def test_room_decides_between_equal_queues_and_what_was_used_least_lately_goes() -> None:
    kept = books()
    for model in ("a", "b", "a"):
        kept.use(model, "x")
    assert kept.ranked("c", REPLICAS) == ["y", "z", "x"]
    kept.use("c", "x")
    assert kept.models("x") == ["a", "c"]


def test_a_replica_that_is_gone_is_forgotten_and_unknown_models_go_to_the_shortest_queue() -> None:
    kept = books()
    kept.use("a", "x")
    kept.begin("x")
    assert kept.ranked("other", REPLICAS) == ["y", "z", "x"]
    kept.use("other", "x")
    kept.keep(["y"])
    assert kept.models("x") == []
    kept.end("x")
    assert kept.ranked("a", ["x", "y"]) == ["x", "y"]


def test_sizes_that_cannot_be_are_refused() -> None:
    with pytest.raises(ServeError, match=r"model a: 40,000,000 bytes, and a replica has 10MB"):
        books("10MB")
    with pytest.raises(InputError, match="'much' is not understood"):
        Books({"a": "much"}, "1GB")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--engine", "slurm"], "--engine 'slurm'"),
        (["--address", "auto"], "--address auto: needs --engine ray"),
        (["--worker-option", "num_gpus=1"], "--worker-option: needs --engine ray"),
        (["--scale", "min_replicas=1"], "--scale: needs --engine ray"),
        (["--engine", "ray", "--slices", "1,2"], "--slices 1,2: Ray does not start workers with shares of a GPU"),
        (["--set", "serving.start=warm"], "serving.start warm: real workers begin without models"),
        (["--engine", "ray", "--scale", "min_replicas"], "--scale min_replicas: write KEY=VALUE"),
        (["--engine", "ray", "--worker-option", "num_gpus"], "--worker-option num_gpus: write KEY=VALUE"),
        (["--engine", "ray", "--worker-option", "label_selector.=a"], "--worker-option label_selector.=a: write"),
    ],
)
def test_wrong_options_are_one_line(words: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["serve", "start", str(APP), "--no-http", *words])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert line in said
    assert said.count("\n") == 1

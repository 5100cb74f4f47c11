"""Networks measured over batch × CPUs × share: what is measured, what is composed, what is said when it cannot be."""

import itertools
import math
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from bench import gpu_networks
from headway.errors import ProfileError
from headway.fleet.model.catalogue import Configuration
from headway.fleet.profiling import (
    colocation as model_colocation,
    model,
    process as model_process,
    session as model_session,
)
from headway.fleet.profiling.model import ModelProfile, measure, profile_of, write
from headway.fleet.profiling.session import Effort, Grid, Log, Session, checks_of
from headway.fleet.scenarios.tables.profile import read

PROGRAM = '''
import torch
print("a program may print")


class Service:
    """Decodes nothing, multiplies twice."""

    input_bytes = 48
    output_bytes = 16

    def __init__(self):
        self.network = torch.nn.Sequential(torch.nn.Linear(12, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
        self.threads = []

    def prepare(self, batch, cpus):
        return torch.ones(batch, 12)

    def finish(self, outputs, cpus):
        assert outputs.shape[1] == 4
        assert torch.get_num_threads() == cpus
        return outputs.tolist()


def pair():
    return torch.nn.Linear(3, 2), lambda batch: torch.ones(batch, 3)


def nothing():
    return 17


def broken():
    raise ValueError("no weights\\nare here")
'''
QUICK = Effort(runs=3, least_s=0.0, cold_starts=1, passes=2)
WEIGHTS = 4 * (12 * 8 + 8 + 8 * 4 + 4)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("program") / "serve.py"
    path.write_text(PROGRAM)
    return path


# --- for real, on the CPU -------------------------------------------------------------------------------------------


def test_a_network_is_measured_resumed_written_and_read_back(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    told: list[str] = []
    log, grid = tmp_path / "lines.jsonl", Grid((1, 2), (1,), (1, 7))

    def once() -> ModelProfile:
        factory = f"{program}:Service"
        tell = lambda done, of, text: told.append(text)  # noqa: E731
        return measure(factory, grid, effort=QUICK, device="cpu", log=log, say=said.append, tell=tell)

    found = once()
    assert said == ["there is no GPU: only the whole device is measured, as share 7 of 7"]
    assert [cell[:3] for cell in found.cells] == [(1, 1, 7), (2, 1, 7)]
    assert found.weights_bytes == WEIGHTS
    assert (found.seen["input_bytes"], found.seen["output_bytes"]) == (48, 16)
    network, host = ({tuple(row[:2]): row[2] for row in found.seen[key]} for key in ("network_ms", "host_ms"))
    for cell in found.cells:
        whole = network[cell.batch, 7] + host[cell.batch, 1]
        assert cell.ms == pytest.approx(whole, abs=1e-3)
    assert {check[:3] for check in found.checks} == {(1, 1, 7), (2, 1, 7)}
    assert set(found.load_ms) == {"pageable"}
    assert 0 < found.cold_start_s < sum(found.seen["cold_start_s"].values()) + 1e-3
    assert found.instance_bytes > 1 << 20
    assert len(told) == 2 + 2 * 2 + 2  # the network, two passes over the CPUs' part, the checks

    lines = log.read_text()
    monkeypatch.setattr(model_session, "Worker", None)  # whatever is started now fails
    assert once() == found
    assert log.read_text() == lines

    path = tmp_path / "profile.toml"
    write(found, path, name="mine", source="a test")
    back = read(path)
    assert back.gpu == ""
    for cell in found.cells:
        expected = round(float(f"{cell.ms:.5g}") * 1e6)
        assert back.functions["Service"].cells[Configuration(*cell[:3])] == expected
    assert back.functions["Service"].weights_bytes == WEIGHTS


def test_what_a_program_does_wrong_is_one_line(program: Path, tmp_path: Path) -> None:
    wrong = {
        "nothing": "nothing gave int: it must give (network, inputs)",
        "broken": "ValueError: no weights",
        "absent": "serve.py has no function 'absent'",
    }
    with model_process.Worker("cpu", log=tmp_path / "said") as worker:
        for factory, line in wrong.items():
            with pytest.raises(ProfileError) as problem:
                worker.ask("load", name=factory, factory=f"{program}:{factory}")
            assert line in str(problem.value)
            assert "\n" not in str(problem.value)
        worker.ask("load", name="pair", factory=f"{program}:pair")
        timed = worker.ask("gpu", name="pair", batch=2, cpus=1, runs=4, least_s=0.0)
        assert len(timed["ns"]) == 4
        worker.ask("drop", name="pair")
        with pytest.raises(ProfileError, match="KeyError"):
            worker.ask("gpu", name="pair", batch=2, cpus=1, runs=4, least_s=0.0)
    assert "a program may print" in (tmp_path / "said").read_text()


def test_a_machine_without_a_gpu_says_so(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(ProfileError, match="torch sees no GPU"):
        measure(f"{program}:pair", Grid((1,), (1,), (7,)), effort=QUICK, log=tmp_path / "lines.jsonl")


# --- before anything is started -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("factory", "grid", "line"),
    [
        ("serve.py", Grid(), "'serve.py' is not understood: write PROGRAM.py:FACTORY"),
        ("absent.py:f", Grid(), "absent.py:f: there is no file absent.py"),
        ("HERE:f", Grid((), (1,), (7,)), "batch sizes none: must be different whole numbers from 1"),
        ("HERE:f", Grid((1, 1), (1,), (7,)), "batch sizes 1, 1: must be different"),
        ("HERE:f", Grid((1,), (100_000,), (7,)), "CPU counts 100000: must be different whole numbers from 1 to"),
        ("HERE:f", Grid((1,), (1,), (8,)), "shares 8: must be different whole numbers from 1 to 7"),
    ],
)
def test_what_is_asked_wrongly_is_refused(program: Path, factory: str, grid: Grid, line: str) -> None:
    with pytest.raises(ProfileError) as problem:
        measure(factory.replace("HERE", str(program)), grid)
    assert line in str(problem.value)


def test_without_torch_nothing_is_started(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "find_spec", lambda name: None)
    with pytest.raises(ProfileError, match="torch is not installed"):
        measure(f"{program}:pair", Grid((1,), (1,), (7,)))


def test_the_log_of_a_program_moves_when_the_program_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_PROFILES", str(tmp_path / "kept"))
    path = tmp_path / "one.py"
    path.write_text("a = 1")
    before = model.log_of(f"{path}:f", "cpu", QUICK)
    assert before == model.log_of(f"{path}:f", "cpu", QUICK)
    assert before.is_relative_to(tmp_path / "kept")
    path.write_text("a = 2")
    assert model.log_of(f"{path}:f", "cpu", QUICK) != before


# --- the order of things, with a process that is played -------------------------------------------------------------


class Played:
    """A process that answers at once: a network of 70 ms on one seventh, CPUs of 10 ms; what it was asked is kept."""

    asked: list[tuple[int, str, dict[str, Any]]]
    refuse = False

    def __init__(self, device: str, environment: dict[str, str] | None = None, log: Path | None = None) -> None:
        self.share = int((environment or {}).get("SHARE", "7"))
        if self.refuse and environment:
            raise ProfileError("the daemon refuses its clients")
        self.spawned_ns = 0
        stamps = {"began_ns": 1e9, "imported_ns": 3e9, "context_ns": 4e9}
        self.about = {"device": "NVIDIA H200", "sms": 18 * self.share, "memory_bytes": 1, "torch": "2", "cuda": "13"}
        self.about |= {**stamps, "cpus": [0, 1, 2, 3]}
        self.waiting: list[dict[str, Any]] = []

    def ask(self, do: str, **order: Any) -> dict[str, Any]:
        Played.asked.append((self.share, do, order))
        batch, cpus = order.get("batch", 1), order.get("cpus", 1)
        network = [round(70e6 * batch / self.share)] * 3
        answers: dict[str, Any] = {
            "load": {"built_ns": 5e9, "loaded_ns": 7e9, "weights_bytes": 400, "allocated_bytes": 400, "tensors": 2},
            "first": {"ready_ns": 8e9, "resident_bytes": 900},
            "loads": {"pageable_ns": [4e6, 5e6, 6e6], "pinned_ns": [1e6, 1e6, 2e6]},
            "drop": {},
            "gpu": {"ns": network, "peak_bytes": 1000 + 100 * batch},
        }
        if do == "cpu":
            host = round(10e6 * batch / cpus)
            return {"ns": [host, host, 2 * host], "input_bytes": 5, "output_bytes": 6}
        if do == "joint":
            return {"ns": [1.25 * (network[0] + 10e6 * batch / cpus)] * 3}
        found: dict[str, Any] = answers[do]
        return found

    def tell(self, do: str, **order: Any) -> None:
        self.waiting.append({"do": do, **order})

    def answer(self) -> dict[str, Any]:
        order = self.waiting.pop()
        Played.asked.append((self.share, order.pop("do"), order))
        return {"ns": [order["batch"] * 1_000_000] * 4}

    def end(self) -> None: ...

    def __enter__(self) -> "Played":
        return self

    def __exit__(self, *_: object) -> None: ...


class PlayedMps:
    """A daemon that is there."""

    def environment(self, share: int) -> dict[str, str]:
        return {"SHARE": f"{share}"}

    def end(self) -> None: ...


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Played]]:
    Played.asked = []
    monkeypatch.setattr(Played, "refuse", False)
    monkeypatch.setattr(model_session, "Worker", Played)
    monkeypatch.setattr(model_session, "Mps", PlayedMps)
    return Played


GRID = Grid((1, 4), (1, 2), (1, 3, 7))


def session(tmp_path: Path, **more: Any) -> Session:
    return Session({"net": "net.py:make"}, GRID, Log(tmp_path / "log.jsonl"), QUICK, **more)


def test_the_network_is_measured_at_every_share_and_the_cpus_in_passes_on_other_cpus(
    tmp_path: Path, played: type[Played]
) -> None:
    with session(tmp_path) as one:
        one.measure()
    network = [(share, order["batch"]) for share, do, order in played.asked if do == "gpu"]
    assert sorted(network) == sorted(itertools.product((1, 3, 7), (1, 4)))
    assert all(order["cpus"] == 2 for _, do, order in played.asked if do == "gpu")
    host = {(share, order["first"]) for share, do, order in played.asked if do == "cpu"}
    assert host == {(7, 0), (3, 3)}
    whole = {(order["batch"], order["cpus"], share) for share, do, order in played.asked if do == "joint"}
    assert whole == set(checks_of(GRID))
    assert [row["sms"] for row in Log(tmp_path / "log.jsonl").all("share")] == [126, 54, 18]


def test_a_profile_is_the_sum_of_its_parts_and_says_how_far_that_is_off(tmp_path: Path, played: type[Played]) -> None:
    with session(tmp_path) as one:
        one.measure()
    found = profile_of("net", Log(tmp_path / "log.jsonl"))
    assert found.gpu == "H200"
    assert len(found.cells) == 2 * 2 * 3
    assert found.ms(4, 2, 7) == pytest.approx(4 * 70 / 7 + 4 * 10 / 2)
    with pytest.raises(ProfileError, match="net: no cell for batch 3, cpus 1, share 1"):
        found.ms(3, 1, 1)
    assert {round(check.off, 6) for check in found.checks} == {-0.2}
    assert found.cold_start_s == pytest.approx(8 - 2)
    assert found.load_ms == {"pageable": 5, "pinned": 1}
    assert found.activation_bytes == 1100
    assert found.seen["activation_bytes"] == {"1": 1100, "4": 1400}
    host = math.log(2) * math.sqrt(4 / 15)  # two of six runs took twice as long
    cell = next(cell for cell in found.cells if cell[:3] == (1, 1, 7))
    assert cell.spread == pytest.approx(10 * host / 20)
    assert len(profile_of("net", Log(tmp_path / "log.jsonl"), Grid((1,), (2,), (1, 7))).cells) == 2


def test_what_is_in_the_log_is_not_measured_again_and_a_torn_line_is(tmp_path: Path, played: type[Played]) -> None:
    with session(tmp_path) as one:
        one.measure()
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    torn = next(number for number, line in enumerate(lines) if '"part": "gpu"' in line and '"share": 3' in line)
    (tmp_path / "log.jsonl").write_text("\n".join([*lines[:torn], lines[torn][:20], *lines[torn + 1 :]]) + "\n")
    played.asked = []
    with session(tmp_path) as again:
        again.measure()
    assert [(share, do) for share, do, _ in played.asked] == [(3, "load"), (3, "gpu"), (3, "drop")]


def test_a_deadline_stops_between_measurements_and_keeps_them(tmp_path: Path, played: type[Played]) -> None:
    with session(tmp_path, deadline=-math.inf) as one, pytest.raises(TimeoutError):
        one.measure()
    assert not played.asked
    with pytest.raises(ProfileError, match="nothing is measured of about"):
        profile_of("net", Log(tmp_path / "log.jsonl"))


@pytest.mark.parametrize("cause", ["daemon", "clients"])
def test_without_mps_the_whole_gpu_is_measured_and_that_is_said(
    tmp_path: Path, played: type[Played], monkeypatch: pytest.MonkeyPatch, cause: str
) -> None:
    if cause == "clients":
        monkeypatch.setattr(Played, "refuse", True)
        why = "the daemon refuses its clients"
    else:
        monkeypatch.setattr(model_session, "Mps", model_process.Mps)
        monkeypatch.setenv("PATH", str(tmp_path))
        why = "nvidia-cuda-mps-control is not installed"
    said: list[str] = []
    with session(tmp_path, say=said.append) as one:
        one.measure()
        with pytest.raises(ProfileError, match="MPS does not divide this GPU"):
            model_colocation.measure(one)
    assert said == [f"{why}: only the whole device is measured, as share 7 of 7"]
    assert {share for share, _, _ in played.asked} == {7}
    found = profile_of("net", Log(tmp_path / "log.jsonl"))
    assert {cell.share for cell in found.cells} == {7}


def test_pairs_run_on_cpus_of_their_own_in_the_same_window(tmp_path: Path, played: type[Played]) -> None:
    grid = Grid((4,), (1,), (1, 3, 7))
    log = Log(tmp_path / "log.jsonl")
    with Session({"a": "a.py:a", "b": "b.py:b"}, grid, log, QUICK) as one:
        model_colocation.measure(one)
        seen = [order for _, do, order in played.asked if do == "window"]
        assert len(seen) == 2 * 2 + 3 * 2
        for left, right in zip(seen[4::2], seen[5::2], strict=True):
            assert not set(left["cpus"]) & set(right["cpus"])
            assert (left["begin_ns"], left["end_ns"]) == (right["begin_ns"], right["end_ns"])
        played.asked = []
        model_colocation.measure(one)
        assert not played.asked
    for row in log.all("beside"):  # the pair (a, b) as if b had slowed a down by half
        row["ns"] = [[6_000_000], [4_000_000]] if row["names"] == ["a", "b"] else row["ns"]
    slower = model_colocation.slowdowns(log)
    assert slower == {("a", "a"): 1, ("a", "b"): 1.5, ("b", "a"): 1, ("b", "b"): 1}


# --- what ships -------------------------------------------------------------------------------------------------------


def test_the_percentages_are_the_nearest_to_sevenths() -> None:
    assert [model_process.percent_of(share) for share in range(1, 8)] == [14, 29, 43, 57, 71, 86, 100]


def test_the_measured_profile_that_ships_is_whole_and_of_the_functions_of_its_scenario() -> None:
    folder = Path(model.__file__).parents[1] / "scenarios" / "shipped"
    found = read(folder / "esg-h200.toml")
    scenario = tomllib.loads((folder / "esg.toml").read_text())
    assert found.gpu == "H200"
    assert set(found.functions) == set(scenario["functions"])
    axes = ((1, 2, 4, 8), (1, 2, 4, 8), tuple(range(1, 8)))
    for function in found.functions.values():
        assert set(function.cells) == set(map(Configuration._make, itertools.product(*axes)))
        for batch, cpus, slices in function.cells:  # a larger share is never slower, a larger batch never faster
            here = function.cells[Configuration(batch, cpus, slices)]
            assert here <= function.cells[Configuration(batch, cpus, max(1, slices - 1))]
            assert here >= function.cells[Configuration(max(1, batch // 2), cpus, slices)]
        assert 0 < function.spread < 0.2
        assert function.weights_bytes
        assert function.activation_bytes
        assert function.cold_start
        assert function.load
    assert found.host_to_gpu is not None
    assert 10e9 < found.host_to_gpu < 64e9


@pytest.mark.parametrize(
    ("kind", "small", "shape"),
    [
        (gpu_networks.Upscaler, {"width": 8, "blocks": 2}, (2, 256, 256, 3)),
        (gpu_networks.Segmenter, {"width": 8, "blocks": (1, 1, 1, 1)}, (2, 64, 64)),
        (gpu_networks.Deblurrer, {"width": 8}, (2, 64, 64, 3)),
        (gpu_networks.Classifier, {"side": 64, "width": 32, "blocks": 2, "heads": 2}, (2, 5)),
        (gpu_networks.Remover, {"scale": 8}, (2, 64, 64)),
        (gpu_networks.Depth, {"side": 64, "width": 32, "blocks": 4, "heads": 2, "features": 16}, (2, 64, 64)),
    ],
)
def test_the_networks_that_were_measured_answer_each_picture_by_itself(
    kind: type[torch.nn.Module], small: dict[str, Any], shape: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    network = kind(**small).eval()
    with torch.inference_mode():
        pictures = torch.rand(2, 3, 64, 64)
        found = network(pictures)
        alone = network(pictures[:1])
    assert tuple(found.shape) == shape
    assert not found.is_floating_point()
    difference = (found[:1].double() - alone.double()).abs().max()
    assert difference <= 1 or shape == (2, 5)  # rounding; of classes the order may turn where two are nearly equal

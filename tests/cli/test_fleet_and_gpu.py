"""What people who run fleets and GPUs are told: notes, refusals, tables and help, as a command line prints them."""

import json
from pathlib import Path
from typing import Any

import pytest

import headway as hw
from headway.cli import main
from headway.gpu.experiment.flags import PROGRAMS
from headway.gpu.experiment.in_memory import Setting, few
from headway.gpu.programs import load as kernel_programs
from headway.runs.registry import domain
from headway.runs.result import played
from headway.statistics.replications import over_seeds

Told = tuple[int, str, str]
REQUESTS = 'timestamp":{},"input_length":5,"output_length":3,"hash_ids":[1]}}\n'
POLICIES = """
from headway.gpu.policies.parts import KernelsPolicy
from headway.fleet.policies.parts import ServingPolicy


class Deep(ServingPolicy):
    name = "deep"

    def decide(self, now, state):
        return self.decide(now, state)


class DeepBelow(KernelsPolicy):
    name = "deep-below"

    def decide(self, now, state):
        return self.decide(now, state)


class Idle(ServingPolicy):
    name = "idle"

    def decide(self, now, state):
        return ()
"""
SMALL = ["compass", "--requests", "30", "--rate", "2"]
PAIR = ["resnet50", "resnet101-b64", "--seconds", "0.02"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(POLICIES)
    return tmp_path


def call(capsys: pytest.CaptureFixture[str], *words: str) -> Told:
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main(list(words))
    told = capsys.readouterr()
    return int(end.value.code or 0), told.out, told.err


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    status, out, err = call(capsys, *words)
    assert status
    assert not out
    assert err.count("\n") == 1, err
    assert "internal error" not in err
    return err


# --- what is left out ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [(), ("--skip-bad-rows",)])
def test_rows_of_a_trace_of_requests_that_were_dropped_are_told(
    here: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...]
) -> None:
    rows = ['{"' + REQUESTS.format(300 * number) for number in range(20)]
    rows[7] = '{"timestamp":bad}\n'
    (here / "moon.jsonl").write_text("".join(rows))
    _, _, err = call(capsys, "fleet", "simulate", "compass", "--arrivals", "moon.jsonl", *more)
    assert "note: 1 of 20 rows dropped: line 8: row '{\"timestamp\":bad}' is no request" in err


# --- a run again ---------------------------------------------------------------------------------------------------


def test_the_experiment_of_a_run_folder_runs_again(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "own.toml").write_text('base = "compass"\n')
    call(capsys, "fleet", "simulate", "own.toml", *SMALL[1:], "--out", "run")
    first = json.loads((here / "run" / "result.json").read_text())
    (here / "own.toml").unlink()
    status, out, _ = call(capsys, "run", "run/experiment.toml", "--json")
    assert status == 0
    assert json.loads(out)["digest"] == first["digest"]
    document = (here / "run" / "experiment.toml").read_text()
    (here / "run" / "experiment.toml").write_text(document.replace("version = 2", "version = 1"))
    assert "has version 1, and this headway reads version 2" in refused(capsys, "run", "run/experiment.toml")


def test_a_folder_of_a_run_that_was_killed_before_its_tape_is_taken_over(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "run").mkdir()
    (here / "run" / ".claim").touch()
    (here / "run" / "scenario.toml").write_text("left")
    assert call(capsys, "fleet", "simulate", *SMALL, "--out", "run")[0] == 0
    assert (here / "run" / "tape.parquet").exists()
    assert "already holds a run" in refused(capsys, "fleet", "simulate", *SMALL, "--out", "run")


def test_a_comparison_that_is_stopped_says_what_is_done_and_where(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 0

    def interrupted(*given: Any) -> Any:
        nonlocal count
        count += 1
        if count == 2:
            raise KeyboardInterrupt
        return measured(*given)

    from headway.runs.measured import measured

    monkeypatch.setattr("headway.runs.several.measured", interrupted)
    work = hw.Fleet("compass", requests=30, rate=2, out="runs")
    experiments = [("", each) for each in (_under(work, "compass"), _under(work, "hash"))]
    found = played(experiments)
    assert found.stopped == "stopped; 1 of 2 runs are done: runs/compass"
    assert len(found.rows) == 1


def _under(work: Any, policy: str) -> Any:
    from headway.runs.settings.files import for_each_policy

    return for_each_policy(work.document, [policy])[0][1]


# --- policies of one's own -----------------------------------------------------------------------------------------


def test_a_policy_that_calls_itself_without_end_is_one_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fleet = refused(capsys, "fleet", "simulate", *SMALL, "--policy", "mine.py:Deep")
    assert "policy deep at " in fleet
    assert "decide calls itself without end (mine.py, line 9)" in fleet
    gpu = refused(capsys, "gpu", "simulate", *PAIR, "--policy", "mine.py:DeepBelow")
    assert "decide calls itself without end (mine.py, line 16)" in gpu
    with pytest.raises(hw.HeadwayError, match="calls itself without end"):
        hw.simulate(hw.Fleet("compass", requests=30, rate=2, policy="mine.py:Deep"))


def test_a_policy_that_asks_for_nothing_says_who_is_left(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "fleet", "simulate", *SMALL, "--policy", "mine.py:Idle")
    assert "request 0 and 29 more are left, and the policy asked for nothing more" in line


def test_a_policy_file_without_a_class_is_asked_for_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "fleet", "simulate", *SMALL, "--policy", "./mine.py")
    assert "policy ./mine.py: which class of the file? Write mine.py:CLASS" in line


# --- tables and notes ----------------------------------------------------------------------------------------------


def test_the_table_of_one_gpu_has_seeds_intervals_and_changes(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compare = ["gpu", "compare", *PAIR, "--policies", "mps,strict"]
    _, out, _ = call(capsys, *compare, "--baseline", "strict", "--seeds", "2")
    head = out.splitlines()[0]
    for heading in ("seeds", "interval", "vs strict", "low share vs strict", "latency p50", "slow-down p99"):
        assert heading in head
    assert "interval" not in call(capsys, *compare, "--seeds", "2", "--confidence", "0")[1]
    plain = call(capsys, "gpu", "simulate", *PAIR, "--policy", "mps")[1].splitlines()[0]
    assert not any(heading in plain for heading in ("seeds", "interval", "vs "))


def test_programs_keep_their_order_over_seeds() -> None:
    rows = [{"clients": [{"client": "z", "n": 1}, {"client": "a", "n": 2}], "peak_rss_bytes": 0} for _ in range(2)]
    rule = domain("gpu").view.replication
    rule = type(rule)(intervals=(), of_one_seed=(), groups=rule.groups)
    assert [each["client"] for each in over_seeds(rows, 0.0, rule)["clients"]] == ["z", "a"]


def test_a_short_run_is_noted_only_where_its_beginning_counts() -> None:
    def said(**given: Any) -> list[str]:
        setting = {"high": ("vgg16",), "low": ("matmul",), "seconds": 0.5, **given}
        return few(Setting(**setting), ["headway"])

    assert said()[0].startswith("the first 0.6 s or so, until headway lets a steady amount through")
    assert said(settle=1_000_000_000) == said(low=()) == said(seconds=2.0) == []


def test_drops_in_the_warm_up_are_told_beside_the_share_in_time(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["esg", "--setting", "strict-light", "--requests", "200", "--warmup", "50%", "--policy", "headway"]
    row = json.loads(call(capsys, "fleet", "simulate", *words, "--json")[1])
    assert row["dropped_warmup"] == sum(graph["dropped_warmup"] for graph in row["graphs"])
    assert row["dropped_warmup"]
    shown = f"{row['dropped']} of 200, {row['dropped_warmup']} in the warm-up"
    assert shown in call(capsys, "fleet", "simulate", *words)[1]


# --- refusals ------------------------------------------------------------------------------------------------------


def test_a_sweep_does_not_replace_the_results_of_another_grid(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def sweep(*more: str) -> tuple[str, ...]:
        return ("fleet", "sweep", *SMALL[:3], "--rates", "2", "-o", "sw", "--processes", "1", *more)

    assert call(capsys, *sweep("--policies", "compass,hash"))[0] == 0
    before = (here / "sw" / "grid.toml").read_bytes(), (here / "sw" / "results.csv").read_bytes()
    line = refused(capsys, *sweep("--policies", "compass,heft"))
    assert "sweep folder sw: holds another grid, and 1 of its 2 combinations are not in this one" in line
    assert ((here / "sw" / "grid.toml").read_bytes(), (here / "sw" / "results.csv").read_bytes()) == before
    assert call(capsys, *sweep("--policies", "compass,hash,heft"))[0] == 0
    line = refused(capsys, "report", "sw", "-o", "page.html")
    assert "sw is the folder of a sweep" in line
    assert "--keep-runs keeps them" in line


def test_what_is_another_kind_of_thing_is_said(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "own.toml").write_text("[graphs.a]\n[functions.f]\n")
    line = refused(capsys, "run", "own.toml")
    assert "own.toml: is a scenario, not an experiment: headway fleet simulate own.toml" in line
    line = refused(capsys, "fleet", "plan", "compass", "--rate", "2")
    assert "a plan needs a deadline for graph translation" in line
    line = refused(capsys, "fleet", "plan", "compas", "--rate", "2", "--slo", "3x")
    assert "unknown graph or scenario 'compas'; did you mean 'compass'?" in line
    assert "translation" in line


def test_a_story_without_a_subject_says_what_it_wants(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call(capsys, "gpu", "simulate", *PAIR, "--out", "run")
    line = refused(capsys, "story", "run")
    assert "story of which program? Write headway story run PROGRAM (resnet50, resnet101-b64)" in line


def test_what_is_to_be_profiled_is_looked_for_before_the_gpu(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "serve.py").write_text("def classify():\n    pass\n")
    line = refused(capsys, "profile", "model", "serve.py:clasify", "--cpus", "1")
    assert "unknown function 'clasify'; did you mean 'classify'?" in line
    assert "nosuchprog: there is no such program" in refused(capsys, "profile", "kernels", "--", "nosuchprog")


def test_a_measured_profile_of_other_functions_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "other.toml").write_text('name = "x"\n[functions.elsewhere]\ncells = [[1, 1, 1, 5]]\n')
    (here / "own.toml").write_text('base = "compass"\nmeasured = "other.toml"\n')
    line = refused(capsys, "fleet", "simulate", "own.toml")
    assert "measured profile other.toml has none of its functions, but elsewhere" in line


# --- help ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scale", "example"),
    [("jobs", "cluster.nodes=40,80"), ("fleet", "workload.rate=2,4"), ("gpu", "gpu.think=0ms,5ms")],
)
def test_each_scale_shows_an_example_of_its_own(
    here: Path, capsys: pytest.CaptureFixture[str], scale: str, example: str
) -> None:
    assert example in call(capsys, scale, "sweep", "--help")[1]
    assert f"write it like {example}" in refused(capsys, scale, "sweep", "-o", "sw", "--vary", "nodes")


def test_help_is_true(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sorted(PROGRAMS) == sorted(kernel_programs.shipped())
    assert "2d" not in call(capsys, "fleet", "simulate", "--help")[1]
    assert "densenet201" in call(capsys, "gpu", "simulate", "--help")[1]
    assert "tiresias(promote=8)+easy" in call(capsys, "policies", "--help")[1]
    assert "``" not in call(capsys, "policies")[1]


def test_the_last_lines_of_a_program_are_lines(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, _, err = call(capsys, "profile", "job", "--", "python3", "-c", "print(12345)")
    assert "the last lines of the program:\n  12345\n" in err

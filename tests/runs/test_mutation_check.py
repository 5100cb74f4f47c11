"""A policy that changes what it is given has no result; and whatever its file raises is one line."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headway.cli import main
from headway.errors import ChangedInputError, InfeasibleActionError, StalledRunError
from headway.runs.mutation_check import unchanged

JOBS = "submit_s,work_s,gpus,gpu_types\n" + "".join(f"{30 * i},{100 + 37 * i % 400},{1 + i % 3},\n" for i in range(20))
FLAGS = ("jobs.csv", "--nodes", "2", "--gpus-per-node", "4")
FLEET = ("compass", "--workers", "2", "--rate", "2", "--requests", "30")
KERNELS = ("vgg16", "resnet101-b64", "--seconds", "0.01")
ORDER = """
import sys
from headway.jobs.policies.orders.fifo import Fifo
{top}

class Mine(Fifo):
    name = "mine-{number}"

    def key(self, now, js):
        {body}
        return super().key(now, js)
"""
SERVING = """
import sys
from headway.fleet.policies.compass.hash import Hash
{top}

class Mine(Hash):
    name = "mine-{number}"

    def decide(self, now, state):
        {body}
        return super().decide(now, state)
"""
KERNEL = """
import sys
from headway.gpu.model.actions import LetGo
from headway.gpu.policies.parts import KernelsPolicy, in_turn
{top}

class Mine(KernelsPolicy):
    name = "mine-{number}"

    def decide(self, now, state):
        {body}
        for client in in_turn(state):
            yield LetGo(client.id, client.reached)
"""
SCALES = {"jobs": (ORDER, FLAGS), "fleet": (SERVING, FLEET), "gpu": (KERNEL, KERNELS)}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "jobs.csv").write_text(JOBS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """What a command exits with, and what it writes."""
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code, *capsys.readouterr()


def policy(here: Path, source: str, body: str, top: str = "") -> str:
    """A policy of the user's own in a file, with a name of its own: they all stay registered in this process."""
    path = here / "mine.py"
    path.write_text(source.format(body=body, top=top, number=abs(hash((str(here), source, body)))))
    return f"{path}:Mine"


@pytest.mark.parametrize(
    ("scale", "body", "said"),
    [
        ("jobs", "object.__setattr__(js.job, 'work', 10**9)", "job 0, work: 100000000000 became 1000000000"),
        ("jobs", "object.__setattr__(js.job, 'gpu_types', ['a'])", "job 0, gpu_types: [] became ['a']"),
        ("fleet", "object.__setattr__(state.catalogue.graphs[0].tasks[0], 'output_bytes', 7)", ", tasks:"),
        ("fleet", "object.__setattr__(state.catalogue.models[0], 'name', 'other')", ", name:"),
        ("fleet", "object.__setattr__(state.fleet.workers[1], 'cpus', 99)", ", cpus:"),
        (
            "gpu",
            "p = state.clients[0].client.program; object.__setattr__(p, 'launches', p.launches[:1])",
            "client vgg16, program, launches:",
        ),
    ],
)
def test_a_policy_that_changes_the_workload_has_no_result(
    here: Path, scale: str, body: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source, flags = SCALES[scale]
    code, shown, err = call(
        capsys, scale, "simulate", *flags, "--policy", policy(here, source, body), "--out", "a", "--json"
    )
    assert (code, shown) == (1, "")
    assert err.count("\n") == 1
    assert "changed what it was given: " in err
    assert said in err
    assert not (here / "a").exists()


@pytest.mark.parametrize(
    ("body", "said"), [("js.gpus = 4", "job 0, gpus: 1 became 4"), ("js.attained += 5", "job 0, attained: 0 became 5")]
)
def test_a_policy_that_changes_the_state_of_a_job_is_told_which_and_what(
    here: Path, body: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    own = policy(here, ORDER, body)
    code, shown, err = call(capsys, "jobs", "simulate", *FLAGS, "--policy", own, "--json")
    assert (code, shown) == (1, "")
    assert f": key changed what it is shown: {said}; a policy may read a job, never change it" in err


def _change(thing: Any, error: type[Exception]) -> None:
    thing.gpus = 3
    raise error("the consequence")


@pytest.mark.parametrize("error", [InfeasibleActionError, StalledRunError])
def test_a_change_is_the_cause_of_what_cannot_be_done_after_it(error: type[Exception]) -> None:
    @dataclass
    class Thing:
        gpus: int = 1

    thing = Thing()
    with (
        pytest.raises(ChangedInputError, match="policy p changed what it was given: job 0, gpus: 1 became 3"),
        unchanged("p", {"job": [thing]}, watched=True),
    ):
        _change(thing, error)
    with pytest.raises(error, match="the consequence"), unchanged("p", {"job": [thing]}, watched=True):
        raise error("the consequence")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("other.done += 10**9", "its run does not pass the audit: row "),
        ("other.job = None", "the run broke down after it had decided (AttributeError: "),
    ],
)
def test_a_policy_that_changes_the_state_has_no_result(
    here: Path, body: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The jobs that are changed are others than is asked about: what ``key`` is shown is compared on the spot."""
    others = f"for other in seen:\n            {body}\n        seen.append(js)"
    own = policy(here, ORDER, others, top="seen = []")
    code, shown, err = call(capsys, "jobs", "simulate", *FLAGS, "--policy", own, "--out", "a", "--json")
    assert (code, shown) == (1, "")
    assert err.count("\n") == 1
    assert said in err
    assert "never change it" in err
    assert not (here / "a" / "result.json").exists()


@pytest.mark.parametrize("scale", SCALES)
def test_one_that_changes_nothing_has_one(here: Path, scale: str, capsys: pytest.CaptureFixture[str]) -> None:
    source, flags = SCALES[scale]
    assert call(capsys, scale, "simulate", *flags, "--policy", policy(here, source, "pass"), "--json")[0] == 0


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("body", ["sys.exit(0)", "raise SystemExit", "raise GeneratorExit", "raise BrokenPipeError"])
def test_a_policy_that_ends_the_program_is_an_error(
    here: Path, scale: str, body: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source, flags = SCALES[scale]
    code, shown, err = call(capsys, scale, "simulate", *flags, "--policy", policy(here, source, body), "--json")
    assert code in (1, 2)
    assert shown == ""
    assert err.count("\n") == 1
    assert "in mine.py, line" in err


@pytest.mark.parametrize("command", ["simulate", "compare"])
def test_so_it_is_in_processes_of_a_pool(here: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    own = policy(here, ORDER, "sys.exit(0)", "")
    flags = ("--policies", f"fifo,{own}", "--processes", "2") if command == "compare" else ("--policy", own)
    code, _, err = call(capsys, "jobs", command, *FLAGS, *flags, "--json")
    assert code == 2
    assert "SystemExit in mine.py, line" in err


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(
    "top",
    ["sys.exit(0)", "raise GeneratorExit('no')", "raise KeyError('x')", "class Odd(BaseException): pass\nraise Odd"],
)
def test_a_file_that_ends_the_program_when_it_is_imported_is_an_error(
    here: Path, scale: str, top: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source, flags = SCALES[scale]
    code, _, err = call(capsys, scale, "simulate", *flags, "--policy", policy(here, source, "pass", top))
    assert code == 2
    assert err.count("\n") == 1
    assert "mine.py: cannot be loaded (" in err


def test_a_scenario_that_ends_the_program_is_an_error(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("import sys\nsys.exit(0)\n", "import sys\ndef scenario(experiment):\n    sys.exit(0)\n"):
        (here / "mine.py").write_text(text)
        code, _, err = call(capsys, "fleet", "simulate", "mine.py", *FLEET[1:])
        assert code == 2
        assert "scenario mine.py: cannot be loaded (SystemExit: 0)" in err

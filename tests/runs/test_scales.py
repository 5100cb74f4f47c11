"""What holds for run folders of every scale: what they say of themselves, and what can be asked of them."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from headway.api import open as opened_run
from headway.cli import main
from headway.errors import TapeError
from headway.fleet.policies.compass.hash import Hash
from headway.gpu.model.actions import LetGo
from headway.gpu.model.state import KernelsState
from headway.gpu.policies.parts import KernelsPolicy, in_turn
from headway.jobs.policies.orders.fifo import Fifo
from headway.plugins import offer
from headway.runs.folder.folder import EXPERIMENT_NAME, SCHEMA_VERSION, open_run
from headway.runs.measured import measured
from headway.runs.settings.files import typed

DOCUMENTS: dict[str, dict[str, Any]] = {
    "jobs": {"trace": {"synthetic": {"jobs": 30, "load": 2.0}}, "cluster": {"nodes": 2, "gpus_per_node": 8}},
    "fleet": {"serving": {"scenario": "compass", "workers": 2}, "workload": {"requests": 30, "rate": 2.0}},
    "gpu": {"gpu": {"high": ["vgg16"], "low": ["resnet101-b64"], "seconds": 0.01}},
}
SUBJECTS = {"jobs": "7", "fleet": "3", "gpu": "vgg16"}
COMMANDS = (
    ("report", "{run}", "-o", "page.html"),
    ("export", "{run}", "--csv", "tables"),
    ("story", "{run}", "{subject}"),
    ("audit", "{run}"),
    ("replay", "{run}"),
    ("explain", "{run}", "{subject}"),
    ("whatif", "{run}", "--at", "50%"),
)
ELSEWHERE = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from headway.cli import main
told = []
for arguments in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main(arguments)
    except SystemExit as ended:
        told.append([ended.code, out.getvalue(), err.getvalue()])
print(json.dumps(told))
"""


def leave(scale: str, folder: Path, policy: str = "") -> Path:
    """Make a small run of a scale, under its own policy or another one."""
    table = {"policy": {"name": policy}} if policy else {}
    measured(typed({"scale": scale, **DOCUMENTS[scale], **table, "run": {"out": str(folder)}}, "test"))
    return folder


def arguments(command: tuple[str, ...], run: Path, scale: str) -> list[str]:
    return [part.format(run=run, subject=SUBJECTS[scale]) for part in command]


def refused(capsys: pytest.CaptureFixture[str], *given: str) -> str:
    """Return the one line of a command that is refused."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(list(given))
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, ""), (given, err)
    assert re.fullmatch(r"headway: .+\n", err), (given, err)
    return err


def changed(run: Path, old: str, new: str) -> None:
    """Put something else into the experiment of a run folder."""
    path = run / EXPERIMENT_NAME
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


# --- what a folder says of itself ---------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", DOCUMENTS)
def test_a_run_folder_says_its_version_and_its_scale(here: Path, scale: str) -> None:
    said = tomllib.loads((leave(scale, here / "run") / EXPERIMENT_NAME).read_text(encoding="utf-8"))
    assert (said["version"], said["scale"]) == (SCHEMA_VERSION, scale)
    saved = opened_run(here / "run").save(here / "saved")
    again = tomllib.loads((saved.folder / EXPERIMENT_NAME).read_text(encoding="utf-8"))
    assert again == {**said, "run": {**said["run"], "out": str(here / "saved")}}


@pytest.mark.parametrize("scale", DOCUMENTS)
@pytest.mark.parametrize(
    ("version", "said"),
    [("", "has no version"), ("version = 1\n", "has version 1"), ('version = "x"\n', "has version 'x'")],
)
def test_a_folder_of_another_version_is_refused_by_every_command(
    here: Path, scale: str, version: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = leave(scale, here / "runs" / "a")
    changed(run, f"version = {SCHEMA_VERSION}\n", version)
    line = f"run folder {run}: {said}, and this headway reads version {SCHEMA_VERSION}: run the experiment again"
    for command in COMMANDS:
        assert line in refused(capsys, *arguments(command, run, scale))
    assert line in refused(capsys, "report", str(run.parent))
    with pytest.raises(TapeError, match=said):
        open_run(run)
    assert sorted(path.name for path in here.iterdir()) == ["runs"]


@pytest.mark.parametrize(
    ("scale", "said"),
    [
        ("", "does not say what is scheduled"),
        ('scale = "job"\n', "unknown scale 'job'; did you mean 'jobs'"),
        ('scale = "gpu"\n', EXPERIMENT_NAME),
        ("scale = 3\n", "unknown scale '3'"),
    ],
)
def test_a_folder_that_names_no_scale_or_another_one_is_refused(
    here: Path, scale: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = leave("fleet", here / "run")
    changed(run, 'scale = "fleet"\n', scale)
    for command in COMMANDS:
        assert said in refused(capsys, *arguments(command, run, "fleet"))


# --- what can be asked of which scale -----------------------------------------------------------------------------


def test_a_report_shows_runs_of_one_scale(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = {scale: leave(scale, here / "runs" / scale) for scale in DOCUMENTS}
    for scales in (("jobs", "fleet"), ("jobs", "gpu"), ("gpu", "fleet"), tuple(DOCUMENTS)):
        named = " and some of ".join(sorted(scales))
        given = [str(runs[scale]) for scale in scales]
        line = f"headway: some of these runs are of {named}: a report shows one kind\n"
        assert refused(capsys, "report", *given, "-o", "page.html") == line
    assert "a report shows one kind" in refused(capsys, "report", "runs", "-o", "page.html")
    assert not (here / "page.html").exists()


def test_explain_and_whatif_say_that_this_scale_cannot_do_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(leave("gpu", here / "run"))
    for subject in (SUBJECTS["gpu"], "nobody"):
        assert "explain is about jobs that wait and requests of fleets" in refused(capsys, "explain", run, subject)
    for more in ([], ["--load", "2"], ["--policy", "fifo", "--out", "later"], ["--quota", "a=1"]):
        assert "whatif is about runs of jobs and fleets" in refused(capsys, "whatif", run, "--at", "1s", *more)
    assert sorted(path.name for path in here.iterdir()) == ["run"]


@pytest.mark.parametrize("seeds", [0, -1, 10**9])
@pytest.mark.parametrize("scale", DOCUMENTS)
def test_a_number_of_seeds_that_cannot_be_is_refused(
    scale: str, seeds: int, capsys: pytest.CaptureFixture[str]
) -> None:
    work = {
        "jobs": ["--nodes", "2", "--gpus-per-node", "8", "--set", "trace.synthetic.jobs=5"],
        "fleet": ["compass"],
        "gpu": ["vgg16"],
    }
    assert "seeds" in refused(capsys, scale, "simulate", *work[scale], "--set", f"measure.seeds={seeds}")


# --- a policy that was given as an object -------------------------------------------------------------------------


class OwnOrder(Fifo):
    """First come, first served."""

    name = "own-order"


class OwnHash(Hash):
    """Every function has its worker."""

    name = "own-hash"


class OwnGate(KernelsPolicy):
    """Everybody may go ahead, in turn."""

    name = "own-gate"

    def decide(self, now: int, state: KernelsState) -> Iterable[LetGo]:
        """Let everybody go."""
        for client in in_turn(state):
            yield LetGo(client.id, client.reached)


OWN = {"jobs": OwnOrder(), "fleet": OwnHash(), "gpu": OwnGate()}


@pytest.mark.parametrize("scale", DOCUMENTS)
def test_a_run_of_a_python_object_is_looked_at_anywhere_and_replayed_where_it_is_known(here: Path, scale: str) -> None:
    spec = offer(OWN[scale])
    assert spec == f"python:{OWN[scale].name}()"
    run = opened_run(leave(scale, here / "run", spec))
    assert (run.audit(), run.replay()) == ([], None)
    saved = run.save(here / "saved")
    assert (saved.row, saved.stored.tape.digest) == (run.row, run.stored.tape.digest)
    assert saved.replay() is None
    assert OWN[scale].name in saved.report(here / "known.html").read_text(encoding="utf-8")

    told = elsewhere(here, [arguments(command, saved.folder, scale) for command in COMMANDS])
    for command, (code, out, err) in zip(COMMANDS[:4], told[:4], strict=True):
        assert code == 0, (command, err)
        assert "--trust" not in err, command
        assert command[0] != "audit" or "nothing wrong" in out
    assert OWN[scale].name in (here / "page.html").read_text(encoding="utf-8")
    unknown = f"headway: policy {re.escape(spec)}: was given as a Python object, and is not known in this program: .+\n"
    for command, (code, out, err) in zip(COMMANDS[4:], told[4:], strict=True):
        if (scale, command[0]) == ("fleet", "explain"):  # the tape says it all
            assert (code, err) == (0, "")
            continue
        assert (code, out) == (2, ""), command
        if scale == "jobs" or command[0] == "replay":
            assert re.fullmatch(unknown, err), command
        else:
            assert any(line in err for line in ("runs of jobs and fleets", "about jobs", "from its beginning"))


def test_what_is_left_out_for_want_of_the_object_is_said(here: Path) -> None:
    run = leave("jobs", here / "run", offer(OWN["jobs"]))
    given = [["audit", str(run)], ["story", str(run), "7"], ["audit", str(run), "--trust"]]
    for (code, _, err), said in zip(
        elsewhere(here, given), ("was not checked", "why it waited is left out", "was not checked"), strict=True
    ):
        assert code == 0
        assert err.startswith("note: the policy was given as a Python object and is not known in this program: ")
        assert err.rstrip().endswith(said)


def elsewhere(folder: Path, given: list[list[str]]) -> list[tuple[int, str, str]]:
    """Return the exit status and the output of some commands in a program that knows nothing of this one's classes."""
    command = [sys.executable, "-c", ELSEWHERE, json.dumps(given)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return [(code, out, err) for code, out, err in json.loads(done.stdout)]

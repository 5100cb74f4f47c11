"""A run folder is data: no Python file that it names or holds is run unless the user says so."""

import shutil
from pathlib import Path

import pytest

from headway.cli import main
from headway.errors import TapeError
from headway.runs.folder.folder import open_run

JOBS = "submit_s,work_s,gpus\n" + "".join(f"{30 * i},{100 + 37 * i % 400},{1 + i % 3}\n" for i in range(20))
FLAGS = ("jobs.csv", "--nodes", "2", "--gpus-per-node", "4")
FLEET = ("compass", "--workers", "2", "--rate", "2", "--requests", "30")
GPU = ("vgg16", "resnet101-b64", "--seconds", "0.01")
ORDER = '''
"""First come, first served; tells that it was imported."""

from pathlib import Path

from headway.jobs.policies.orders.fifo import Fifo

(Path(__file__).parent / "imported").touch()


class {name}(Fifo):
    name = "{label}"
'''
SERVING = ORDER.replace("jobs.policies.orders.fifo import Fifo", "fleet.policies.compass.hash import Hash").replace(
    "(Fifo)", "(Hash)"
)
GATE = ORDER.replace("jobs.policies.orders.fifo import Fifo", "gpu.policies.mps import Mps").replace("(Fifo)", "(Mps)")
SCENARIO = '''
"""The pipelines of compass; tells that it was run."""

from pathlib import Path

(Path(__file__).parent / "imported").touch()


def scenario(experiment):
    return {"base": "compass"}
'''
BUILT = SCENARIO.replace(
    'return {"base": "compass"}',
    """import msgspec
    from headway.fleet.scenarios import file as scenario_file
    return scenario_file.load(
        msgspec.structs.replace(experiment, serving=msgspec.structs.replace(experiment.serving, scenario="compass"))
    )""",
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "jobs.csv").write_text(JOBS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """What a command exits with, and what it writes."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code, *capsys.readouterr()


def renamed(run: Path, policy: str) -> Path:
    """A copy of a run under fifo, as if this policy had made it."""
    copy = run.with_name(f"{run.name}-of-somebody")
    shutil.copytree(run, copy)
    text = (copy / "experiment.toml").read_text()
    (copy / "experiment.toml").write_text(text.replace('name = "fifo"', f'name = "{policy}"'))
    return copy


def test_what_needs_no_policy_works_and_the_rest_is_refused_with_the_hint(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = here / "mine"
    mine.mkdir()
    (mine / "own.py").write_text(ORDER.format(name="Own", label="own-trust"))
    assert call(capsys, "jobs", "simulate", *FLAGS, "--policy", f"{mine / 'own.py'}:Own+easy", "--out", "a")[0] == 0
    here.joinpath("elsewhere").mkdir()
    other = here / "elsewhere" / "own.py"  # not imported in this process yet
    shutil.copy(mine / "own.py", other)
    text = Path("a/experiment.toml").read_text()
    Path("a/experiment.toml").write_text(text.replace(str(mine / "own.py"), str(other)))
    for arguments, said in (
        (("audit", "a"), "was not run: what only it could prove"),
        (("story", "a", "7"), "was not run: why it waited is left out"),
        (("export", "a", "--csv", "tables"), ""),
        (("report", "a", "-o", "page.html"), ""),
    ):
        code, out, err = call(capsys, *arguments)
        assert code == 0, err
        assert said in err
        assert "own-trust" in out or arguments[0] != "story"
    page = Path("page.html").read_text()
    assert "Why jobs waited cannot be told" in page
    assert "own-trust" in page
    for arguments in (("replay", "a"), ("explain", "a", "7"), ("whatif", "a", "--at", "50%", "--load", "2")):
        code, out, err = call(capsys, *arguments)
        assert (code, out) == (2, "")
        assert err.count("\n") == 1
        assert f"{other}:Own+easy: a run folder is data" in err
        assert "--trust" in err
    assert not (here / "elsewhere" / "imported").exists()


def test_with_trust_the_file_is_run(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "told.py").write_text(ORDER.format(name="Told", label="told-trust"))
    assert call(capsys, "jobs", "simulate", *FLAGS, "--policy", "./told.py:Told", "--out", "a")[0] == 0
    assert f'name = "{here / "told.py"}:Told"' in Path("a/experiment.toml").read_text()
    for arguments in (("replay", "a"), ("explain", "a", "7"), ("whatif", "a", "--at", "50%", "--load", "2")):
        assert call(capsys, *arguments, "--trust")[0] == 0
    code, out, err = call(capsys, "audit", "a", "--trust")
    assert (code, err) == (0, "")
    assert "nothing wrong" in out
    assert "waits" in call(capsys, "story", "a", "7", "--trust")[1]


@pytest.mark.parametrize(
    ("scale", "flags", "source", "subject"), [("fleet", FLEET, SERVING, "3"), ("gpu", GPU, GATE, "vgg16")]
)
def test_so_it_is_at_the_other_scales(
    here: Path, scale: str, flags: tuple[str, ...], source: str, subject: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / f"own_{scale}.py").write_text(source.format(name="Own", label=f"own-{scale}"))
    assert call(capsys, scale, "simulate", *flags, "--policy", f"./own_{scale}.py:Own", "--out", "a")[0] == 0
    own = f"{here / f'own_{scale}.py'}:Own"
    assert f'name = "{own}"' in Path("a/experiment.toml").read_text()
    (here / "imported").unlink()
    (here / "elsewhere").mkdir()
    other = here / "elsewhere" / "own.py"  # not imported in this process yet
    shutil.copy(here / f"own_{scale}.py", other)
    shutil.copytree("a", "b")
    text = Path("b/experiment.toml").read_text()
    Path("b/experiment.toml").write_text(text.replace(str(here / f"own_{scale}.py"), str(other)))
    for arguments in (("audit", "b"), ("story", "b", subject), ("export", "b", "--csv", "t"), ("report", "b")):
        code, _, err = call(capsys, *arguments)
        assert code == 0, err
    assert f"own-{scale}" in Path("report.html").read_text()
    code, out, err = call(capsys, "replay", "b")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"{other}:Own: a run folder is data" in err
    assert not list(here.rglob("imported"))
    assert call(capsys, "replay", "a", "--trust")[0] == 0


def test_a_relative_file_is_never_taken_from_the_current_folder(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "jobs", "simulate", *FLAGS, "--policy", "fifo", "--out", "a")[0] == 0
    theirs = renamed(here / "a", "evil.py:Evil")
    (here / "evil.py").write_text(ORDER.format(name="Evil", label="evil-here"))
    for arguments in (("replay", theirs), ("audit", theirs), ("replay", theirs, "--trust")):
        code, _, err = call(capsys, *arguments)
        assert code == 2
        assert err.count("\n") == 1
    assert f"policy file {theirs / 'evil.py'}: there is no such file" in err
    assert not (here / "imported").exists()
    (theirs / "evil.py").write_text(ORDER.format(name="Evil", label="evil-there"))
    assert call(capsys, "replay", theirs)[0] == 2
    assert not (theirs / "imported").exists()
    assert call(capsys, "replay", theirs, "--trust")[0] == 0
    assert (theirs / "imported").exists()


@pytest.mark.parametrize("spec", ["fifo+{there}:Evil", "{there}:Evil(a=1)+easy", " {there}:Evil", "x+evil.py:Evil"])
def test_no_way_to_write_a_file_gets_it_run(here: Path, spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "a+b").mkdir()
    assert call(capsys, "jobs", "simulate", *FLAGS, "--policy", "fifo", "--out", "a+b/run")[0] == 0
    evil = here / "a+b" / "evil.py"
    evil.write_text(ORDER.format(name="Evil", label="evil-way"))
    shutil.copy(evil, here / "evil.py")
    theirs = renamed(here / "a+b" / "run", spec.format(there=evil))
    for arguments in (("replay", theirs), ("report", theirs, "-o", "page.html"), ("whatif", theirs, "--at", "50%")):
        call(capsys, *arguments)
    with pytest.raises(TapeError, match="--trust"):
        open_run(theirs).scene.policy()
    assert not list(here.rglob("imported"))


def test_the_files_that_a_run_was_given_are_taken_from_its_folder_alone(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(Path(__file__).parents[2] / "src/headway/fleet/scenarios/shipped/compass.toml", here / "scenario.toml")
    flags = ("scenario.toml", *FLEET[1:])
    assert call(capsys, "fleet", "simulate", *flags, "--out", "a")[0] == 0
    assert call(capsys, "audit", "a")[0] == 0
    (here / "a" / "scenario.toml").unlink()
    code, _, err = call(capsys, "audit", "a")
    assert code == 2
    assert "scenario.toml is missing beside the tape" in err


def test_a_scenario_that_a_python_file_says_is_kept_as_data(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "mine").mkdir()
    (here / "mine" / "own.py").write_text(SCENARIO)
    flags = ("mine/own.py", *FLEET[1:])
    assert call(capsys, "fleet", "simulate", *flags, "--policy", "hash", "--out", "a")[0] == 0
    (here / "mine" / "imported").unlink()
    for arguments in (("audit", "a"), ("replay", "a"), ("story", "a", "3"), ("report", "a", "-o", "page.html")):
        assert call(capsys, *arguments)[0] == 0
    assert not list(here.rglob("imported"))
    assert call(capsys, "fleet", "simulate", *FLEET, "--policy", "hash", "--out", "b")[0] == 0
    assert open_run("a").tape.digest == open_run("b").tape.digest


def test_a_scenario_made_by_hand_in_python_is_run_only_if_trusted(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "mine").mkdir()
    (here / "mine" / "own.py").write_text(BUILT)
    assert call(capsys, "fleet", "simulate", "mine/own.py", *FLEET[1:], "--out", "a")[0] == 0
    for arguments in (("audit", "a"), ("replay", "a"), ("story", "a", "3"), ("export", "a", "--csv", "tables")):
        code, _, err = call(capsys, *arguments)
        assert code == 2
        assert err.count("\n") == 1
        assert "scenario.py: a run folder is data" in err
        assert not (here / "a" / "imported").exists()
    for arguments in (("audit", "a"), ("replay", "a"), ("story", "a", "3"), ("report", "a", "-o", "page.html")):
        assert call(capsys, *arguments, "--trust")[0] == 0

"""A policy in a file of the user's own, by its name on the command line; and the example that shows how."""

import ast
import json
import shlex
from pathlib import Path

import pytest
from hypothesis import given, settings

from headway.cli import main
from headway.errors import InputError
from headway.gpu.experiment.in_memory import Setting
from headway.gpu.experiment.scene import policy_of
from headway.gpu.model.device import Device
from headway.gpu.model.program import Client
from headway.gpu.model.reflex import Reason
from headway.gpu.model.rows import Kind
from headway.gpu.policies.registry import build
from headway.gpu.replay import replay
from headway.plugins import resolve
from tests.gpu.worlds import Watched, drive, program, worlds

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "kernels" / "short_first.py"
SPEC = f"{EXAMPLE}:ShortFirst"
RUN = ["vgg16", "resnet101-b64", "--seconds", "0.01"]
HEAD = (
    "from headway.gpu.model.actions import LetGo\nfrom headway.gpu.policies.parts import KernelsPolicy, in_turn\n\n\n"
)
MINE = f"""{HEAD}class Mine(KernelsPolicy):
    "All go."

    name = "mine"

    def decide(self, now, state):
        for client in in_turn(state):
            yield LetGo(client.id, client.reached)
"""


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """A command: its status, what it wrote, and what it said."""
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    written = capsys.readouterr()
    return int(ended.value.code or 0), written.out, written.err


def test_one_in_a_file_stands_beside_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    spec = f"{tmp_path / 'mine.py'}:Mine"
    status, out, _ = call(capsys, "gpu", "compare", *RUN, "--policies", f"mps,{spec}", "--json")
    rows = json.loads(out)
    assert status == 0
    assert [row["policy"] for row in rows] == ["mps", "mine"]
    assert rows[1]["clients"][1]["reasons"]["off"] > 0, "those below asked it"
    status, out, _ = call(capsys, "gpu", "simulate", *RUN, "--policy", spec)
    assert status == 0
    assert "mine" in out
    listed = json.loads(call(capsys, "policies", "--json")[1])
    assert ("kernels", "mine") in [(part["kind"], part["name"]) for part in listed]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "unknown part 'Mine'"),
        (MINE.replace("mine", "mps"), "the name 'mps' of class Mine is taken"),
        (MINE.replace('"mine"', "3"), "needs a name of letters"),
        ("import nothing_of_the_kind\n", "cannot be loaded (ModuleNotFoundError"),
        (MINE.replace("client.reached", "client.gone"), "AttributeError in mine.py, line 12: "),
        (
            MINE.replace("    def decide", "    def __init__(self, at: int):\n        self.at = at\n\n    def decide"),
            "no default",
        ),
        (
            MINE.replace("    def decide", "    def __init__(self, at: int = 1):\n        pass\n\n    def decide"),
            "self.at",
        ),
    ],
)
def test_what_is_wrong_with_one_is_said_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    (tmp_path / "mine.py").write_text(text)
    status, out, err = call(capsys, "gpu", "simulate", *RUN, "--policy", f"{tmp_path / 'mine.py'}:Mine")
    assert (status, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_a_policy_that_is_not_there_is_refused_before_the_first_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.runs.measured.play", lambda *_, **__: pytest.fail("something was played"))
    status, _, err = call(capsys, "gpu", "compare", *RUN, "--policies", "mps,./none.py:Mine")
    assert status == 2
    assert "there is no such file" in err


# --- the example ----------------------------------------------------------------------------------------------------


def test_the_example_has_the_options_and_reasons_that_it_says() -> None:
    policy = policy_of(Setting(("vgg16",), policy=f"{SPEC}(longest=30us)"))
    assert (policy.name, vars(policy)) == ("short-first", {"longest": 30_000})
    with pytest.raises(InputError, match="option longest 'x' is not understood"):
        policy_of(Setting(("vgg16",), policy=f"{SPEC}(longest=x)"))
    above = program((5, 4, 1_000), name="h")
    low = [Client(f"l{each}", program((1, 4, each)), 1, start=10, requests=1) for each in (20, 40)]
    run = drive(build(resolve(f"{SPEC}(longest=30ns)")), [Client("h", above, 0, requests=1), *low])
    gone = {row.subject: (row.detail, row.time) for row in run.rows(Kind.LET_GO)}
    assert gone[1] == (Reason.CREDIT, 11)
    assert gone[2][0] == Reason.ALONE
    assert gone[2][1] >= run.times(Kind.FINISHED, 0)[-1]


@settings(max_examples=15)
@given(worlds())
def test_the_example_ends_leaves_the_state_alone_and_replays(world: tuple[tuple[Client, ...], Device]) -> None:
    clients, device = world
    run = drive(build(resolve(SPEC)), clients, device, watch=Watched)
    assert run.state.over()
    assert replay(clients, device, run.tape, build(resolve(SPEC))).digest == run.tape.digest


def test_the_command_in_the_example_works(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    described = ast.get_docstring(ast.parse(EXAMPLE.read_text())) or ""
    words = shlex.split(described[described.index("headway gpu compare") :].replace("\\\n", " "))
    words[words.index("--seconds") + 1] = "0.01"
    status, out, _ = call(capsys, *words[1:])
    assert status == 0
    assert "short-first(longest=30us)" in out

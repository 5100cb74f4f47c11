"""A policy that is given as an object is played with the values it holds; one from a file needs types that text has."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Optional

import polars as pl
import pytest

import headway as hw
from headway import plugins
from headway.cli import main
from headway.fleet.policies.compass.hash import Hash
from headway.gpu.policies.parts import KernelsPolicy
from headway.jobs.policies import registry
from headway.jobs.policies.parts import Order

SEEN: list[Any] = []
HEAD = "from headway.jobs.policies.parts import Order\n\n\n"


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Leave no policy behind."""
    before = dict(registry.ORDERS)
    monkeypatch.chdir(tmp_path)
    yield
    registry.ORDERS.clear()
    registry.ORDERS.update(before)
    plugins._OFFERED.clear()
    plugins._HELD.clear()


@pytest.fixture
def work() -> Any:
    frame = pl.DataFrame({"submit_s": [0.0, 1.0, 2.0, 3.0], "work_s": [60.0, 30.0, 20.0, 9.0], "gpus": [2, 1, 2, 1]})
    return hw.Jobs(frame, nodes=1, gpus_per_node=2)


class Untyped(Order):
    """An option without a type."""

    name = "untyped"

    def __init__(self, sign=1) -> None:  # type: ignore[no-untyped-def]
        self.sign = sign

    def key(self, now: int, js: Any) -> Any:
        """Note what it holds."""
        SEEN.append(self.sign)
        return self.sign * js.job.gpus if isinstance(self.sign, int) else js.id


class Needed(Order):
    """An option that has to be given."""

    name = "needed"

    def __init__(self, sign: Optional[int]) -> None:  # noqa: UP045 - as users write it
        self.sign = sign

    def key(self, now: int, js: Any) -> Any:
        """Note what it holds."""
        SEEN.append(self.sign)
        return js.id


class Forgetful(Order):
    """An option that is not stored."""

    name = "forgetful"

    def __init__(self, sign: int = 1) -> None:
        pass

    def key(self, now: int, js: Any) -> int:
        """Count."""
        return int(js.id)


def test_objects_that_differ_in_an_untyped_option_are_two_policies(work: Any) -> None:
    found = hw.compare(work, [Untyped(1), Untyped(-1)])
    assert [row["policy"] for row in found.rows] == ["untyped", "untyped(sign=-1)"]
    assert found.rows[0]["digest"] != found.rows[1]["digest"]
    assert found["untyped(sign=-1)"].replay() is None
    assert hw.simulate(work, Untyped(-1)).row["digest"] == found.rows[1]["digest"]


@pytest.mark.parametrize(
    "value", [[1, 2], (1, 2), {"a": 1}, None, "x,y+(z)%", "", "random", 5, float("inf"), True], ids=repr
)
@pytest.mark.parametrize("kind", [Untyped, Needed])
def test_an_object_is_played_with_whatever_it_holds(work: Any, kind: Callable[[Any], Order], value: Any) -> None:
    SEEN.clear()
    run = hw.simulate(work, kind(value), seed=3)
    assert SEEN
    assert all(each == value and type(each) is type(value) for each in SEEN)
    shown = f"{kind(value).name}(sign={value!r})"
    assert run.row["policy"] == (kind(value).name if kind is Untyped and value == 1 else shown)
    assert run.replay() is None


def test_attributes_that_are_no_options_are_kept_and_runs_do_not_share_an_object(work: Any) -> None:
    mine = Untyped()
    mine.sign = -1
    mine.extra = [7]  # type: ignore[attr-defined]
    first, second = hw.simulate(work, mine), hw.simulate(work, mine)
    assert first.row["digest"] == second.row["digest"] == hw.simulate(work, Untyped(-1)).row["digest"]
    assert vars(mine) == {"sign": -1, "extra": [7]}


def test_an_object_keeps_its_parts_beside_text(work: Any) -> None:
    run = hw.simulate(work, Untyped((1, 2)), preemption="on")
    assert run.row["policy"] == "untyped(sign=(1, 2))+preempt"


def test_objects_of_serving_and_kernels_are_played_as_they_are() -> None:
    class Near(Hash):
        name = "near-own"

        def __init__(self, far=None) -> None:  # type: ignore[no-untyped-def]
            super().__init__()
            self.far = far

    run = hw.simulate(hw.Fleet("compass", workers=2, rate=2, requests=20), Near(far=[1]))
    assert run.row["policy"] == "near-own(far=[1])"
    assert run.replay() is None

    class Gate(KernelsPolicy):
        name = "gate-own"
        gating = False

        def __init__(self, far=None) -> None:  # type: ignore[no-untyped-def]
            self.far = far

    kernels = hw.simulate(hw.Gpu("vgg16", "resnet101-b64", seconds=0.01), Gate((1, 2)))
    assert kernels.row["policy"] == "gate-own(far=(1, 2))"


@pytest.mark.parametrize("given", [Forgetful(), Forgetful(2), Forgetful])
def test_an_option_that_is_not_stored_is_named(work: Any, given: Any) -> None:
    with pytest.raises(
        hw.HeadwayError, match=r"option sign must be stored .*class Forgetful in test_own_objects.py, l"
    ):
        hw.simulate(work, given)


def test_an_object_that_cannot_be_copied_is_refused(work: Any) -> None:
    with pytest.raises(hw.HeadwayError, match=r"policy untyped.* cannot be copied \(TypeError"):
        hw.simulate(work, Untyped(each for each in ()))


# --- from files ---


@pytest.mark.parametrize(
    ("code", "options", "line"),
    [
        ("def __init__(self, x=1): self.x = x", "x=2", "option x has no type, which cannot be read from text"),
        ("def __init__(self, x: list = None): self.x = x", "x=2", "option x is of type list, which cannot be read"),
        ("def __init__(self, x: int | None = 1): self.x = x", "x=2", "option x is of type int | None, which cannot"),
        ("def __init__(self, x: tuple[int, str] = ()): self.x = x", "x=2", "option x is of type tuple"),
        ("def __init__(self, x): self.x = x", "", "option x has no default and is not given"),
        ("def __init__(self, x: int = 3): pass", "", "option x must be stored under its name, self.x"),
        ("def __init__(self, x: int = 3): self.x = x", "x=.", "(x=...): '.' is not a whole number"),
        ("def __init__(self): raise ValueError('no')", "", ": ValueError in mine.py, line 6: no"),
        (
            "def key(self, js): return js.id",
            "",
            "key(self, js) has the wrong arguments: define it as key(self, now, js)",
        ),
        ("def rank(self, js): return js.id", "", "rank(self, js) has the wrong arguments"),
    ],
)
@pytest.mark.parametrize("verb", ["simulate", "compare"])
def test_mistakes_of_a_file_are_one_line(
    code: str, options: str, line: str, verb: str, tmp_path: Path, request: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    number = f"{verb}-{request.node.callspec.indices['code']}"
    key = "" if "def key" in code else "\n    def key(self, now, js): return js.id\n"
    (tmp_path / "mine.py").write_text(f"{HEAD}class Mine(Order):\n    name = 'mine-{number}'\n    {code}\n{key}")
    (tmp_path / "jobs.csv").write_text("submit_s,work_s,gpus\n0,60,1\n")
    spec = f"./mine.py:Mine({options})" if options else "./mine.py:Mine"
    flag = "--policy" if verb == "simulate" else "--policies"
    with pytest.raises(SystemExit) as ended:
        main(["jobs", verb, "jobs.csv", "--nodes", "1", "--gpus-per-node", "1", flag, spec])
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert line in said
    assert said.count("\n") == 1
    assert "mine.py, line " in said or options == "x=."
    played = hw.simulate if verb == "simulate" else hw.compare
    with pytest.raises(hw.HeadwayError):
        played(hw.Jobs("jobs.csv", nodes=1, gpus_per_node=1), spec)

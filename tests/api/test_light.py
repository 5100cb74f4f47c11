"""``import headway`` costs next to nothing: a training program may do it in every process."""

import ast
import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import headway as hw
from headway import fleet, gpu, jobs
from tests.architecture.test_public_names import API, PACKAGES

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("polars", "numpy", "msgspec", "typer", "rich", "plotly", "pyarrow", "scipy", "networkx", "torch", "ray")


def told(program: str) -> str:
    """Run a program of its own; return what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert ended.stderr == ""
    return ended.stdout


@pytest.mark.parametrize("more", ["", "; hw.__version__; dir(hw); hw.HeadwayError; hw.step; hw.steps"])
def test_the_import_brings_nothing_heavy_along(more: str) -> None:
    program = (
        f"import sys; before = set(sys.modules); import headway as hw{more}; print(sorted(set(sys.modules) - before))"
    )
    loaded = ast.literal_eval(told(program))
    assert not [name for name in loaded if name.partition(".")[0] in HEAVY]
    own = [name for name in loaded if name.startswith("headway")]
    assert len(own) <= 8, own
    assert len(loaded) <= 60, loaded


@pytest.mark.parametrize(
    "program",
    [
        "import headway as hw; assert hw.Jobs.__name__ == 'Jobs'; import headway.jobs.policies.parts as parts",
        "import headway.jobs.policies.parts as parts, headway as hw; assert hw.Jobs.__name__ == 'Jobs'",
        "from headway import jobs, Jobs; import headway as hw; from headway.jobs.policies import parts",
        "import headway.jobs; from headway.jobs import Order; import headway as hw; parts = hw.jobs.policies.parts",
        "from headway import *; import headway as hw; parts = jobs.policies.parts if jobs.Order else 0; assert Jobs",
    ],
)
def test_packages_and_classes_are_the_same_whichever_is_asked_for_first(program: str) -> None:
    same = "hw.jobs.Order is parts.Order, hw.Jobs is hw.api.Jobs, hw.jobs.__name__, callable(hw.jobs)"
    assert told(f"{program}; print({same}, open is __import__('io').open)") == ("True True headway.jobs False True\n")


def test_a_class_of_a_package_comes_through_a_pickle_to_a_process_that_has_imported_nothing() -> None:
    kept = [hw.Jobs, hw.Fleet, hw.Gpu, jobs.Order, jobs.Placement, jobs.StartJob, fleet.Policy, gpu.Policy]
    text = pickle.dumps([*kept, hw.Gpu("resnet50", "bert"), hw.work("jobs", nodes=2)]).hex()
    found = told(f"import pickle; print(*pickle.loads(bytes.fromhex('{text}')), sep='|')").strip().split("|")
    assert found[: len(kept)] == [str(each) for each in kept]
    assert found[len(kept) :] == [repr(hw.Gpu("resnet50", "bert")), "hw.Jobs: cluster.nodes=2"]


def test_the_router_for_ray_is_found_by_a_process_that_imports_it_first() -> None:
    program = "from headway.ray import Router; import pickle; same = pickle.loads(pickle.dumps(Router))"
    assert told(f"{program}; import headway as hw; print(same is hw.ray.Router, Router.__module__)") == (
        "True headway.fleet.ray.router\n"
    )


@pytest.mark.parametrize("package", ["headway", *PACKAGES])
def test_import_of_everything_brings_the_public_names_and_no_others(package: str) -> None:
    found = told(f"from {package} import *; print(*sorted(name for name in dir() if name[0] != '_'))").split()
    assert found == PACKAGES.get(package, sorted(set(API) - {"open"}))


@pytest.mark.parametrize("package", [jobs, fleet, gpu])
def test_the_public_names_of_a_package(package: ModuleType) -> None:
    assert sorted(package._NAMES) == PACKAGES[package.__name__]
    assert set(package._NAMES) <= set(dir(package))
    for name in package._NAMES.keys() - {"Action"}:  # a type, which has no words of its own
        assert getattr(package, name).__doc__, name
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'Orderr'"):
        package.Orderr  # noqa: B018


def test_a_scale_by_name_is_the_class_of_that_scale() -> None:
    assert isinstance(hw.work("jobs"), hw.Jobs)
    assert isinstance(hw.work("fleet"), hw.Fleet)
    assert isinstance(hw.Gpu("resnet50").with_settings(seconds=0.1), hw.Gpu)
    with pytest.raises(hw.HeadwayError, match="document"):
        hw.Jobs("jobs.csv", document={})


def test_the_public_names() -> None:
    assert sorted(name for name in hw._NAMES) == API
    assert set(API) <= set(dir(hw))
    for name in API:
        assert getattr(hw, name).__doc__, name
    with pytest.raises(AttributeError, match="has no attribute 'simulat'"):
        hw.simulat  # noqa: B018

"""No document, source or test names a place of the source that is gone: an old module, path or folder of tests.

Packages were named by kind of code once (``GONE``); now each scale is a tree. What tells of the past may name the past
(``PAST``). Words such as *training* and keys such as ``serving.window`` are no places.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.source import FILES, PACKAGE, ROOT

GONE = {
    *("experiment", "kernels", "live", "metrics", "profiles", "report", "scenarios", "serving", "sim", "traces"),
    "training",
}
"""Folders of the package that are gone."""
PAST = (
    *("native/", "CHANGELOG.md", "docs/background/decisions/", "docs/background/results/"),
    *("tests/samples/", "tests/golden/digests/", "tests/docs/test_old_places.py"),
    *("src/headway/moved.py", "tests/test_moved.py"),
)
FOLDERS = (".ci", "bench", "docs", "examples", "experiments", "scripts", "src", "tests")
TEXT = ("", ".css", ".html", ".ipynb", ".js", ".md", ".py", ".sh", ".toml")
HERE = {path.relative_to(PACKAGE).parts[0] for path in FILES if path.parent != PACKAGE}
ROOMS = {part for path in FILES for part in path.relative_to(PACKAGE).parts[:-1]}
SETTINGS = (PACKAGE / "fleet/scenarios/tables/settings.py").read_text(encoding="utf-8")

_GONE, _ANY = ("|".join(sorted(names)) for names in (GONE, GONE | HERE))
_MODULE = re.compile(rf"(?<![\w/.@-])(?:headway\.(?:{_ANY})|tests\.(?:{_GONE}))\b(?:\.[A-Za-z_]\w*)*")
_WHOLE_PATH = re.compile(r"(?<![\w/.-])(?:src/headway|tests)/[\w./-]*[\w/]")
_PATH = re.compile(rf"(?<![\w/.-])(?:{_ANY})/[\w./-]*[\w/](?:(?<=/)|(?=`)|(?<=\.py)|(?<=\.toml))")
_SHORT = re.compile(rf"``({_GONE})\.(?!(?:css|html|js|md|py|toml)`)([a-z_]+)(?:\.\w+)*``")


def old_places(text: str, file: str) -> list[str]:
    """Return the places that a text names and that do not exist; paths may begin at any folder above its file."""
    found = [name for name in _MODULE.findall(text) if name.split(".")[1] in GONE or not _is_module(name)]
    found += [path for path in _WHOLE_PATH.findall(text) if not (ROOT / path).exists()]
    roots = [ROOT, PACKAGE, *(parent for parent in (ROOT / file).parents if parent.is_relative_to(ROOT))]
    for path in _PATH.findall(text):
        first, second = path.split("/")[:2]
        if first in GONE:
            is_place = path.endswith((".py", ".toml")) or second in GONE | ROOMS
        else:  # tests make up paths
            is_place = (path.endswith(".py") and not file.startswith("tests/")) or second in GONE - ROOMS
        if is_place and not any((root / path).exists() for root in roots):
            found.append(path)
    for first, second in _SHORT.findall(text) if file.endswith(".py") else ():
        is_setting = first == "serving" and re.search(rf"^    {second}:", SETTINGS, re.MULTILINE)
        if not is_setting and not any((root / first / name).exists() for root in roots for name in _names(second)):
            found.append(f"{first}.{second}")
    return found


def _is_module(name: str) -> bool:
    """Whether a dotted name leads to a module, or to what a module or package names."""
    folder, parts = PACKAGE.parent, name.split(".")
    for place, part in enumerate(parts):
        if (folder / part).is_dir():
            folder /= part
            continue
        module = folder / f"{part}.py"
        wanted = parts[place + 1 : place + 2] if module.is_file() else [part]
        within = module if module.is_file() else folder / "__init__.py"
        return within.is_file() and all(re.search(rf"\b{each}\b", within.read_text("utf-8")) for each in wanted)
    return True


def _names(module: str) -> tuple[str, ...]:
    return (module, f"{module}.py", f"{module}.toml", f"{module}.md")


def _files() -> Iterator[Path]:
    for path in (*ROOT.glob("*"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))):
        name = path.relative_to(ROOT).as_posix()
        if path.is_file() and path.suffix in TEXT and not name.startswith(PAST):
            yield path


def test_what_is_gone_is_gone() -> None:
    assert HERE.isdisjoint(GONE)


def test_no_document_and_no_source_names_an_old_place() -> None:
    files = list(_files())
    assert len(files) > 1000
    texts = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8", "replace") for path in files}
    found = {file: old for file, text in texts.items() if (old := old_places(text, file))}
    assert found == {}


@pytest.mark.parametrize(
    ("text", "file"),
    [
        ("`headway.training.state` holds it", "docs/a.md"),
        ("from headway.live.serving import server", "bench/a.py"),
        ("see headway.formats.slurm.records", "docs/a.md"),
        ("`headway.jobs.policies.orders.shortest`", "docs/a.md"),
        ('LINE = ("toy", "tests.experiment.toy")', "tests/a.py"),
        ("the contract is src/headway/training/policies/parts.py", "docs/a.md"),
        ("`src/headway/scenarios/`", "docs/a.md"),
        ("`tests/training/policies`", "CONTRIBUTING.md"),
        ("a part in `training/policies/`", "ARCHITECTURE.md"),
        ("the broker (``live/kernels/broker.py``)", "src/headway/gpu/a.py"),
        ("what `experiment/jobs/` says", "docs/a.md"),
        ("the tables of `formats/training`", "docs/a.md"),
        ("`profiling/kernels_file.py` reads it", "docs/a.md"),
        ('"""As ``training.state`` has it."""', "src/headway/jobs/a.py"),
        ('"""As ``serving.scalers`` says."""', "src/headway/fleet/a.py"),
    ],
)
def test_an_old_place_is_found(text: str, file: str) -> None:
    assert old_places(text, file)


@pytest.mark.parametrize(
    ("text", "file"),
    [
        ("`headway.jobs.state.state` holds it", "docs/a.md"),
        ("`headway.jobs.policies.parts.Order`", "docs/a.md"),
        ("entry points under `headway.policies`", "docs/a.md"),
        ("`src/headway/jobs/policies/parts.py`", "docs/a.md"),
        ("`tests/jobs/policies`", "CONTRIBUTING.md"),
        ("``sim/`` and ``live/`` of each tree, `SCALE/sim/`", "tests/a.py"),
        ("the case training/philly fifo, and kernels/resnet50+vgg16", "docs/a.md"),
        ("~/.cache/headway/kernels/stub/api.json", "docs/a.md"),
        ('Path("live/events.txt"), load("traces/philly.csv.gz")', "tests/a.py"),
        ("``metrics/summary.py`` sums it up", "src/headway/fleet/show/a.py"),
        ("with `serving.window = 3`, written to `report.html`", "docs/a.md"),
        ('"""The setting ``serving.controller``, of training jobs."""', "src/headway/fleet/a.py"),
        ('"""As ``metrics.summary`` has it."""', "src/headway/jobs/a.py"),
    ],
)
def test_what_is_no_old_place_passes(text: str, file: str) -> None:
    assert old_places(text, file) == []

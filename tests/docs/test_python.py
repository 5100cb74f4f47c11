"""docs/tutorials/python.md: its blocks run one after the other, and its lists are those of the package."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headway
from headway.runs.registry import DOMAINS, domain
from headway.runs.settings import common_flags
from tests.docs.pages import blocks, read, spans, tables

PAGE = read("docs/tutorials/python.md")


def _keywords(cell: str) -> list[str]:
    return re.findall(r"`([\w-]+)`", cell)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The folder in which the blocks ran, which is the current one, and what they left behind."""
    folder = tmp_path_factory.mktemp("python")
    scope: dict[str, Any] = {"__name__": "notebook"}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for block in blocks(PAGE, "python"):
            exec(block.text, scope)
        yield folder, scope


def test_the_blocks_run_and_leave_what_they_say(played: tuple[Path, dict[str, Any]]) -> None:
    folder, scope = played
    assert {path.name for path in folder.iterdir()} == {"srtf.html", "both.html", "sweeps", "runs", "tables"}
    assert {path.name for path in (folder / "runs").iterdir()} == {"srtf", "fifo"}
    assert scope["found"].names == ["fifo", "narrow"]
    assert scope["again"].audit() == []
    assert scope["result"].replay() is None
    assert "job 17" in repr(scope["result"].story(17))
    assert scope["busy"].document["trace"]["load"] == 1.2
    assert len(scope["swept"].rows) == 4


def test_the_environment_of_the_page_earns_what_fifo_with_fit_does(played: tuple[Path, dict[str, Any]]) -> None:
    scope = played[1]
    hw = scope["hw"]
    work = hw.Jobs(hw.synthetic(100, load=0.8), nodes=4, gpus_per_node=8, seed=3)
    row = hw.simulate(work, "fifo+fit").row
    assert scope["total"] == pytest.approx(-row["jct_mean_s"] * row["jobs"])
    assert scope["info"]["refused"] == []


def test_the_tables_and_figures_of_each_scale_are_those_that_exist(played: tuple[Path, dict[str, Any]]) -> None:
    scope = played[1]
    runs = [scope["result"], scope["fleet"], scope["pair"][0]]
    ((_, rows),) = (found for found in tables(PAGE) if found[0][1:] == list(DOMAINS))
    assert [_keywords(cell) for cell in rows[0][1:]] == [run.tables() for run in runs]
    for run, cell in zip(runs, rows[1][1:], strict=True):
        with pytest.raises(headway.HeadwayError) as refused:
            run.figure("none")
        assert set(_keywords(cell)) == set(re.findall(r"[\w-]+", str(refused.value).partition("valid: ")[2]))


def test_the_line_of_the_readme_is_a_comparison(
    played: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scope = played[1]
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{20 * i},{600 + i},{1 + i % 4}\n" for i in range(20))
    Path("jobs.csv").write_text(f"submit_s,work_s,gpus\n{rows}")
    (line,) = (span for span in spans(read("README.md")) if span.startswith("hw."))
    assert eval(line, scope).names == ["fifo", "narrow"]


def test_every_public_name_is_on_the_page() -> None:
    named = set(re.findall(r"\bhw\.(\w+)", "\n".join(spans(PAGE))))
    assert set(headway._NAMES) - named == set()


def test_the_keywords_are_the_flags_of_each_scale() -> None:
    ((_, rows),) = (found for found in tables(PAGE) if found[0] == ["for", "keywords"])
    listed = {row[0].strip("`").removeprefix("hw."): _keywords(row[1]) for row in rows}
    assert set(listed.pop("all of them")) == {*(flag.name for flag in common_flags.ALL), "set"}
    assert listed == {scale.capitalize(): [flag.name for flag in domain(scale).flags] for scale in DOMAINS}


def test_the_changes_of_a_what_if_are_those_that_it_takes() -> None:
    ((of_jobs, of_fleets),) = re.findall(r"`whatif` takes what its command takes: (.+)\. Of a fleet: (.+)\.", PAGE)
    assert [_keywords(of_jobs), _keywords(of_fleets)] == [list(domain(scale).changes) for scale in ("jobs", "fleet")]

"""Files that were changed after a run: a page says what the tape says, and a sweep runs a changed cell again."""

import json
from pathlib import Path

import pytest

from headway import api
from headway.runs.sweep.pool import LocalPool
from headway.runs.sweep.sweep import cells_of, outstanding, sweep

SMALL = {"scale": "gpu", "gpu": {"high": ["resnet50"], "low": ["bert"], "seconds": 0.005}}


def work(scale: str) -> api.Work:
    """Return something small to run."""
    if scale == "fleet":
        return api.Fleet("compass", requests=20, set={"workload.overload": True})
    return api.Gpu("resnet50", "bert", seconds=0.005)


@pytest.mark.parametrize("scale", ["fleet", "gpu"])
def test_a_page_shows_the_numbers_of_the_tape_whatever_the_stored_ones_became(scale: str, tmp_path: Path) -> None:
    run, pages = tmp_path / "run", []
    api.simulate(work(scale), out=str(run))
    path = run / "result.json"
    stored = json.loads(path.read_text())
    for name, changed in (
        ("as-stored", stored),
        ("less", {key: stored[key] for key in ("policy", "digest", "stopped")}),
        ("more", {**stored, "slowdown_mean": "x", "slowdown_p50": [1], "clients": 3, "graphs": {}, "seed": None}),
    ):
        path.write_text(json.dumps(changed))
        page = tmp_path / f"{name}.html"
        api.open(run).report(page)
        pages.append(page.read_text())
    assert pages[0] == pages[1] == pages[2]


def test_a_cell_whose_file_was_changed_is_run_again(tmp_path: Path) -> None:
    axes = {"policy.name": ["mps", "headway"]}
    found = sweep(SMALL, axes, tmp_path / "swept", LocalPool(1))
    cells, store = found.cells, found.store
    assert outstanding(cells, store) == []
    path = store.cells / f"{cells[0].digest}.json"
    whole = json.loads(path.read_text())
    for changed in ({**whole, "row": None}, {**whole, "seed": 7}, {"row": {}, "error": ""}, [], {}):
        path.write_text(json.dumps(changed))
        assert outstanding(cells_of(SMALL, axes, "test"), store) == [cells[0]]
    path.write_text(json.dumps(whole))
    assert outstanding(cells, store) == []

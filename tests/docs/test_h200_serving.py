"""The page of serving on an H200 says what its rows say, and its tapes replay."""

import json

import pytest

from headway.experiment.folder import open_run
from tests.docs.pages import ROOT, read, rows, table

FOLDER = "docs/background/results/h200-serving"
PAGE, CELLS = read(f"{FOLDER}.md"), rows(f"{FOLDER}/policies.csv")
MEMORY = [json.loads(line) for line in read(f"{FOLDER}/memory.jsonl").splitlines()]


def test_the_table_of_policies_is_that_of_the_rows() -> None:
    _, body = table(PAGE, "## Policies")
    assert len(body) == len(CELLS) == 15
    for shown, row in zip(body, CELLS, strict=True):
        hits, loads = int(row["cache_hits"]), int(row["loads"])
        times = [f"{float(row[name]):.3f}" for name in ("mean_s", "p50_s", "p99_s")]
        moved = f"{int(row['moved_bytes']) / 1e9:.1f}"
        wanted = [row["machine"], row["policy"], row["rate"], row["answered"], *times, f"{hits / (hits + loads):.0%}"]
        assert shown == [*wanted, moved]
        assert row["failed"] == "0"


def test_the_table_of_distances_is_that_of_the_rows() -> None:
    _, body = table(PAGE, "## Against the simulation")
    for shown, row in zip(body, CELLS, strict=True):
        off = [
            f"{float(row[f'{run}_{name}_s']) / float(row[f'live_{name}_s']) - 1:+.0%}"
            for run in ("simulated", "scaled")
            for name in ("mean", "p99")
        ]
        assert shown[3:] == off


def test_the_sentences_on_memory_are_those_of_the_rows() -> None:
    of = {row["step"]: row for row in MEMORY}
    assert (of["graph"]["same"], of["graph"]["of"], of["graph-input-freed"]["same"]) == (10, 10, 0)
    assert f"{of['budget']['reported_of_budget']:.1%} of the budget" in PAGE
    assert of["share"]["same_result"]


@pytest.mark.parametrize("policy", ["headway", "compass", "jit", "hash"])
def test_a_recorded_live_tape_yields_the_identical_actions(policy: str) -> None:
    run = open_run(ROOT / FOLDER / policy)
    assert run.scene.replay(run.tape, complete=False).digest == run.tape.digest
    assert not run.scene.audit(run.tape, complete=False)

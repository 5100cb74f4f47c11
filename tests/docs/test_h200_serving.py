"""The page of serving on an H200 says what its rows say, and its tapes replay."""

import json
from pathlib import Path
from statistics import median

import pytest

from bench import gpu_serve_tables as tables
from headway.profiling import pairs as pair_file
from headway.runs.folder.folder import open_run
from tests.docs.pages import ROOT, read, rows, table

FOLDER = "docs/background/results/h200-serving"
PAGE, CELLS = read(f"{FOLDER}.md"), rows(f"{FOLDER}/policies.csv")
MEMORY = [json.loads(line) for line in read(f"{FOLDER}/memory.jsonl").splitlines()]
RUNS = ("headway", "compass", "jit", "hash", "heft", "esg/headway", "esg/esg", "esg/infless")


def off(row: dict[str, str], name: str, run: str = "simulated") -> float:
    """Return how far a simulated number is from the live one."""
    return float(row[f"{run}_{name}_s"]) / float(row[f"live_{name}_s"]) - 1


def test_the_table_of_policies_is_that_of_the_rows() -> None:
    _, body = table(PAGE, "## Policies")
    assert len(body) == len(CELLS) == 27
    for shown, row in zip(body, CELLS, strict=True):
        hits, loads = int(row["cache_hits"]), int(row["loads"])
        times = [f"{float(row[name]):.3f}" for name in ("mean_s", "p50_s", "p99_s")]
        moved = f"{int(row['moved_bytes']) / 1e9:.1f}"
        wanted = [row["machine"], row["policy"], row["rate"], row["answered"], *times, f"{hits / (hits + loads):.0%}"]
        assert shown == [*wanted, moved]
        assert row["failed"] == "0"


def test_headway_has_the_lowest_mean_and_p99_in_every_cell() -> None:
    for row in CELLS:
        best = next(
            each
            for each in CELLS
            if (each["policy"], each["machine"], each["load"]) == ("headway", row["machine"], row["load"])
        )
        assert float(best["mean_s"]) <= float(row["mean_s"])
        assert float(best["p99_s"]) <= float(row["p99_s"])


def test_the_table_of_distances_is_that_of_the_rows() -> None:
    _, body = table(PAGE, "## Against the simulation")
    for shown, row in zip(body, CELLS, strict=True):
        assert shown[3:] == [
            f"{off(row, name, run):+.0%}" for run in ("simulated", "plain") for name in ("mean", "p99")
        ]
    near = sum(abs(off(row, "mean")) <= 0.15 for row in CELLS)
    assert f"in {near} of {len(CELLS)} cells, {median(abs(off(row, 'mean')) for row in CELLS):.0%}" in PAGE.replace(
        " %", "%"
    )


def test_the_table_of_esg_is_that_of_the_rows() -> None:
    _, body = table(PAGE, "## ESG's applications")
    for shown, row in zip(body, rows(f"{FOLDER}/esg.csv"), strict=True):
        hits = [f"{float(row[f'{run}_hits']):.1%}" for run in ("live", "simulated")]
        paid = [f"{float(row[f'{run}_usd_1000']):.4f}" for run in ("live", "simulated")]
        assert shown == [row["setting"], f"{row['slo']} L", row["rate"], row["policy"], *hits, *paid]


def test_the_sentences_on_memory_are_those_of_the_rows() -> None:
    of = {row["step"]: row for row in MEMORY}
    assert (of["graph"]["same"], of["graph"]["of"], of["graph-input-freed"]["same"]) == (10, 10, 0)
    assert f"{of['budget']['reported_of_budget']:.1%} of the budget" in PAGE
    assert of["share"]["same_result"]


def test_the_table_of_pairs_follows_from_what_was_timed(tmp_path: Path) -> None:
    timed = [json.loads(line) for line in read(f"{FOLDER}/timed.jsonl").splitlines()]
    mix = next(row for row in timed if row["part"] == "mix")
    stored = pair_file.read(ROOT / FOLDER / "pairs.json")
    scene = open_run(ROOT / FOLDER / "jit").scene
    models = {each.name: str(each.models) for each in scene.built.catalogue.functions if each.models}
    fitted = tables.fit(mix, models)
    tables.write_pairs(fitted, tmp_path / "pairs.json")
    for ours, theirs in zip(pair_file.read(tmp_path / "pairs.json").pairs, stored.pairs, strict=True):
        assert (ours.program, ours.co_runner) == (theirs.program, theirs.co_runner)
        assert abs(ours.slowdown_ppm - theirs.slowdown_ppm) < 100
    said = f"{len(mix['samples'])} drawn runs beside drawn neighbours"
    assert said in PAGE
    assert f"{100 * fitted.mean:.1f} ± {100 * fitted.error:.1f} %" in PAGE


@pytest.mark.parametrize("run", RUNS)
def test_a_recorded_live_tape_yields_the_identical_actions(run: str) -> None:
    stored = open_run(ROOT / FOLDER / run)
    assert stored.scene.replay(stored.tape, complete=False).digest == stored.tape.digest
    assert not stored.scene.audit(stored.tape, complete=False)

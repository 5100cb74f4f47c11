"""The page about training programs has the table of its rows, and says what they say."""

from bench.queue_distance import COLUMNS as OF_DISTANCE
from bench.queue_faults_program import SAVE_EVERY
from bench.queue_slurm_faults import COLUMNS as OF_FAULTS, WHAT
from bench.queue_synergy import COLUMNS as OF_SYNERGY
from bench.serve_rows import read as rows_of, table
from bench.steps_preempted import COLUMNS
from tests.docs.pages import ROOT, read

PAGE = "docs/background/results/live-training.md"
FOLDER = ROOT / "docs/background/results/live-training"
ROWS = rows_of(FOLDER / "preempted.jsonl")


DISTANCE, FAULTS, SYNERGY = (rows_of(FOLDER / f"{name}.jsonl") for name in ("distance", "slurm-faults", "synergy"))


def test_the_tables_are_those_of_the_rows() -> None:
    tables = {"preempted": (ROWS, COLUMNS), "distance": (DISTANCE, OF_DISTANCE), "slurm-faults": (FAULTS, OF_FAULTS)}
    for name, (rows, columns) in (tables | {"synergy": (SYNERGY, OF_SYNERGY)}).items():
        assert f"<!-- {name} -->\n{table(rows, columns)}\n<!-- end -->" in read(PAGE)


def test_the_simulation_is_within_a_tenth_of_every_live_run() -> None:
    assert {(row["engine"], row["jobs"]) for row in DISTANCE} == {("local", 60), ("slurm", 60)}
    assert all(abs(float(row["hindsight"].strip("%"))) <= 10 for row in DISTANCE)


def test_fifty_kills_on_slurm_lose_nothing() -> None:
    for row in FAULTS:
        assert sum(row["kills"][what] for what in WHAT) >= 50
        assert (row["problems"], row["twice"]) == ([], [])
        assert row["lost_steps"] <= SAVE_EVERY


def test_preempted_twenty_times_with_one_and_with_four_ranks_nothing_differs() -> None:
    assert {(row["ranks"], row["preempted"]) for row in ROWS} >= {(1, 20), (4, 20)}
    assert all(row["identical"] and not row["problems"] for row in ROWS)
    assert any(row["killed"] and row["workers"] for row in ROWS)

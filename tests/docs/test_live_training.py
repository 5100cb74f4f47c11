"""The page about training programs has the table of its rows, and says what they say."""

from bench.queue_distance import COLUMNS as OF_DISTANCE
from bench.queue_faults_program import SAVE_EVERY
from bench.queue_slurm_faults import COLUMNS as OF_FAULTS, WHAT
from bench.queue_synergy import COLUMNS as OF_SYNERGY
from bench.serve_rows import Rows, read as rows_of, table
from bench.slurm_headway import COLUMNS as OF_SLURM, SYSTEMS, summary
from bench.steps_preempted import COLUMNS
from tests.docs.pages import ROOT, read

PAGE = "docs/background/results/live-training.md"
FOLDER = ROOT / "docs/background/results/live-training"
ROWS = rows_of(FOLDER / "preempted.jsonl")


DISTANCE, FAULTS, SYNERGY = (rows_of(FOLDER / f"{name}.jsonl") for name in ("distance", "slurm-faults", "synergy"))
KILLS, AGAINST_SLURM = (rows_of(FOLDER / f"{name}.jsonl") for name in ("faults", "slurm-headway"))


def test_the_tables_are_those_of_the_rows() -> None:
    tables = {"preempted": (ROWS, COLUMNS), "distance": (DISTANCE, OF_DISTANCE), "slurm-faults": (FAULTS, OF_FAULTS)}
    tables |= {
        "synergy": (SYNERGY, OF_SYNERGY),
        "faults": (KILLS, OF_FAULTS),
        "slurm-headway": (AGAINST_SLURM, OF_SLURM),
    }
    for name, (rows, columns) in tables.items():
        assert f"<!-- {name} -->\n{table(rows, columns)}\n<!-- end -->" in read(PAGE)


def test_the_simulation_is_within_a_tenth_of_every_live_run() -> None:
    assert {(row["engine"], row["jobs"]) for row in DISTANCE} == {("local", 60), ("slurm", 60)}
    assert all(abs(float(row["hindsight"].strip("%"))) <= 10 for row in DISTANCE)


def test_the_rows_of_slurm_and_headway_are_the_means_of_their_runs() -> None:
    runs = Rows(FOLDER, "slurm-headway-runs")
    assert summary(runs) == AGAINST_SLURM
    assert {row["system"] for row in runs.rows} == set(SYSTEMS)
    assert all(row["jobs"] == 200 for row in runs.rows)


def test_kills_lose_nothing_fifty_on_slurm_and_five_hundred_here() -> None:
    for row in KILLS:
        assert sum(row["kills"][what] for what in ("queue", "runner", "program")) >= 500
    for row in FAULTS:
        assert sum(row["kills"][what] for what in WHAT) >= 50
    for row in (*FAULTS, *KILLS):
        assert (row["problems"], row["twice"]) == ([], [])
        assert row["lost_steps"] <= SAVE_EVERY


def test_preempted_twenty_times_with_one_and_with_four_ranks_nothing_differs() -> None:
    assert {(row["ranks"], row["preempted"]) for row in ROWS} >= {(1, 20), (4, 20)}
    assert all(row["identical"] and not row["problems"] for row in ROWS)
    assert any(row["killed"] and row["workers"] for row in ROWS)

"""docs/background/results/slurm-lab.md: its tables are those of the recordings."""

from bench.slurm_compare import compared, table
from bench.slurm_replay import past
from bench.slurm_rule_cases import CASES
from tests.docs.pages import ROOT, read
from tests.jobs.experiment.test_slurm_recorded import DIFFERS

PAGE = read("docs/background/results/slurm-lab.md")
SAMPLES = ROOT / "tests" / "samples" / "slurm-lab"


def test_replays_are_as_near_to_slurm_as_slurm_is_to_itself_and_the_page_says_so() -> None:
    found, told = compared(SAMPLES / "site")
    assert [(line.qos, line.kept) for line in found if not all(line.kept)] == []
    assert table(found) in PAGE
    assert told in PAGE


def test_every_case_is_on_the_page_with_how_it_came_out() -> None:
    section = PAGE.partition("\n## Rule by rule\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("| `")]
    assert {row[0].strip("`"): row[3] for row in rows} == {name: "no" if name in DIFFERS else "yes" for name in CASES}
    assert {row[0].strip("`"): int(row[2]) for row in rows} == {
        name: len(past(SAMPLES / "cases" / name)) for name in CASES
    }

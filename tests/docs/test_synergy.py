"""The pages about Synergy's figures say what their CSV files say."""

import re

from tests.docs.pages import read, rows, table, tables

FOLDER = "docs/background/results/synergy"
FIGURES, DUELS = rows(f"{FOLDER}/figures.csv"), rows(f"{FOLDER}/headway-against-tune.csv")
PAGE, TALK = read(f"{FOLDER}.md"), read("docs/background/synergy.md")
MEAN, TIMES = "jct_mean_h", "times_better_mean"
WAIT, RATIO, TAIL = "wait_share_under_tune_pct", "jct_mean_headway_to_tune", "jct_p99_headway_to_tune"


def _cell(figure: str, order: str, setting: str, allocation: str, column: str) -> str:
    """Return one number of figures.csv; a dash where there is no such line."""
    wanted = {"figure": figure, "order": order, "setting": setting, "allocation": allocation}
    found = [row[column] for row in FIGURES if wanted.items() <= row.items()]
    assert len(found) <= 1, wanted
    return found[0] if found else "–"


def _means(figure: str, setting: str, allocations: list[str], order: str = "fifo") -> list[str]:
    return [_cell(figure, order, setting, each, MEAN) for each in allocations]


def test_the_rows_of_the_files_are_as_many_as_the_page_says() -> None:
    _, listed = table(PAGE, "## The files")
    for link, count, _ in listed:
        assert len(rows(f"{FOLDER}/{link[1:].partition(']')[0]}")) == int(count)


def test_the_tables_of_load_splits_and_storage_are_those_of_the_file() -> None:
    for setting, mine, tune, better, headway, best in table(PAGE, "## Load")[1]:
        assert [mine, tune, headway] == _means("load fifo", setting, ["proportional", "tune", "headway"])
        assert [better, best] == [_cell("load fifo", "fifo", setting, each, TIMES) for each in ("tune", "headway")]
    for heading, figure in (("## Splits", "splits fifo"), ("## Storage", "storage fifo")):
        header, body = table(PAGE, heading)
        assert {row[0] for row in body} == {row["setting"] for row in FIGURES if row["figure"] == figure}
        for setting, *cells in body:
            assert cells == _means(figure, setting, header[1:])


def test_the_tables_of_traces_and_of_the_papers_simulator_are_those_of_the_files() -> None:
    header, body = table(PAGE, "## Public traces")
    for figure, order, setting, *cells in body:
        assert cells == _means(figure, setting, header[3:], order)
    both = {(row["workload"], row["order"], row["allocation"]): row for row in rows(f"{FOLDER}/papers-simulator.csv")}
    for workload, order, *cells in table(PAGE, "## The paper's simulator")[1]:
        found = [both[workload, order, allocation] for allocation in ("proportional", "tune")]
        assert cells == [row[column] for row in found for column in ("jct_mean_theirs_h", "jct_mean_here_h")]
    for (workload, order, allocation), row in both.items():
        here = _cell(f"crosscheck {workload}", order, "", allocation, MEAN)
        assert abs(float(row["jct_mean_here_h"]) - float(here)) <= 0.0051


def test_the_first_table_of_each_page_is_that_of_the_files() -> None:
    missed = [row for row in DUELS if row["missed"]]
    _, body = next(tables(PAGE))
    assert body == [[row[each] for each in ("figure", "setting", "seed", WAIT, RATIO, TAIL)] for row in missed]
    wanted = (
        *(("load fifo", setting) for setting in ("7/h", "9/h", "12/h")),
        *(("ratio fifo", "6 CPUs a GPU"), ("splits fifo", "50/0/50"), ("storage fifo", "125 MB/s")),
        *(("philly", ""), ("helios", ""), ("helios", "twice the pace")),
    )
    _, body = next(tables(TALK))
    for (figure, setting), (_, *cells) in zip(wanted, body, strict=True):
        line = [_cell(figure, "fifo", setting, *each) for each in (("proportional", MEAN), ("tune", TIMES))]
        ours = _cell(figure, "fifo", setting, "headway", TIMES)
        assert cells == [*line, "not run" if ours == "–" else ours]


def test_what_is_said_of_headway_and_tune_is_so() -> None:
    waits = [row for row in DUELS if float(row[WAIT]) > 10]
    met = [float(row[RATIO]) for row in waits if not row["missed"]]
    rest = [row for row in DUELS if row not in waits]
    means = [float(row[RATIO]) for row in rest]
    missed = sum(bool(row["missed"]) for row in DUELS)
    assert f"in {missed} of {len(DUELS)} pairs of runs" in TALK
    assert f"Two of {len(DUELS)} pairs of runs miss it" in PAGE
    assert missed == 2
    assert f"in {len(waits)} of the pairs" in PAGE
    told = f"in {len(waits)} pairs; {len(met)} of them meet it, at {min(met):.2f} to {max(met):.2f} of tune's mean"
    assert told in TALK
    above = max(float(row[TAIL]) for row in rest) - 1
    told = f"In the other {len(rest)} the mean is {min(means):.2f} to {max(means):.2f} of tune's and p99 at most"
    assert f"{told} {100 * above:.1f} % above" in TALK
    for allocation, words in (
        ("tune", "mean JCT under tune is {} to {} times better"),
        ("headway", "under headway {} to {} times"),
    ):
        times = [row[TIMES] for row in FIGURES if row["allocation"] == allocation and row[TIMES]]
        assert words.format(min(times, key=float), max(times, key=float)) in PAGE


def test_what_is_said_of_tune_and_opt_is_so() -> None:
    found = rows(f"{FOLDER}/tune-against-opt.csv")
    for row in found:
        below, all_, least = (
            row[each] for each in ("rounds_with_tune_below_90_pct", "contended_rounds", "tune_to_opt_least")
        )
        told = re.search(rf"in {below} of {all_}(?: rounds)? \((?:least )?{least}\)", TALK)
        assert (told is not None) == (int(below) > 0)
        assert (float(least) < 0.9) == (int(below) > 0)
        assert float(row["leftovers_to_opt_least"]) >= 0.9

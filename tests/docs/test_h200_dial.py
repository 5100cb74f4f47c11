"""The page of the dial on an H200 says what was measured."""

import csv
from pathlib import Path

from bench.gpu_share_dial_table import best, cells, other_cells, total
from bench.gpu_share_new import table
from bench.gpu_share_rows import rows

PAGE = Path("docs/background/results/h200-dial.md")
ROWS = list(csv.DictReader((PAGE.with_suffix("") / "pairs.csv").read_text().splitlines()))


def number(row: dict[str, str], name: str) -> float:
    return float(row[name])


def test_the_table_has_every_row_as_measured() -> None:
    lines = [line for line in PAGE.read_text().splitlines() if line[:4] in ("| 1 ", "| 2 ", "| 3 ")]
    assert len(lines) == len(ROWS)
    for line, row in zip(lines, ROWS, strict=True):
        build, above, below, first, last, dial, p99, rate, mps, mps_rate = line.strip("| ").split(" | ")
        assert (build, above) == (row["build"], f"`{row['above']}`")
        assert below.replace("`", "").replace(", ", ",") == row["below"]
        assert first == f"{number(row, 'first'):.3f} ± {number(row, 'first_half'):.3f}"
        assert last == f"{number(row, 'last'):.3f} ± {number(row, 'last_half'):.3f}"
        low, high = number(row, "dial_low"), number(row, "dial_high")
        assert dial == f"{number(row, 'dial'):.3f} ({low:.3f}–{high:.3f}, {row['holds']})"
        assert p99 == f"{number(row, 'gate_p99_ms') / number(row, 'alone_p99_ms'):.2f}"
        assert rate == ", ".join(f"{float(each):.3f}" for each in row["below_rate"].split("+"))
        assert mps_rate == ", ".join(f"{float(each):.3f}" for each in row["mps_below_rate"].split("+"))
        assert mps == f"{number(row, 'mps_p50'):.{1 if number(row, 'mps_p50') > 10 else 2}f}"


def test_what_is_said_of_all_of_them() -> None:
    text = PAGE.read_text()
    apart = [abs(number(row, "dial") - number(row, "last")) for row in ROWS]
    assert f"In {sum(each <= 0.03 for each in apart)} of {len(ROWS)} measurements" in text
    assert max(number(row, "last") for row in ROWS) <= 1.05 + 0.018
    assert max(number(row, "first") for row in ROWS) <= 1.045
    covered = [number(row, "dial_low") <= number(row, "last") <= number(row, "dial_high") for row in ROWS]
    assert f"in {sum(covered)} of {len(ROWS)}, and overlaps" in text
    overlap = [
        number(row, "dial_low") <= number(row, "last") + number(row, "last_half")
        and number(row, "last") - number(row, "last_half") <= number(row, "dial_high")
        for row in ROWS
    ]
    assert f"the interval of that in {sum(overlap)}." in text
    held = [number(row, "held") for row in ROWS]
    assert (round(min(held), 3), round(max(held), 3)) == (0.044, 0.047)
    assert sum(number(row, "last") < 1.01 for row in ROWS) == 9
    assert sum(number(row, "last_half") > 0.03 for row in ROWS) == 5


FOLDER = PAGE.with_suffix("")
EVERY = list(csv.DictReader((FOLDER / "one-build.csv").read_text().splitlines()))
ONE_BUILD = [row for row in EVERY if (row["aim"], row["sms"]) == ("1.0500", "100")]
MPS = list(csv.DictReader((FOLDER / "limits.csv").read_text().splitlines()))
BEFORE = list(csv.DictReader((FOLDER / "build-before.csv").read_text().splitlines()))


def test_the_tables_of_one_build_are_made_of_its_rows() -> None:
    section = PAGE.read_text().partition("## One build")[2].partition("## The build before")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    every = [cells(row, MPS) for row in ONE_BUILD]
    for others in [("1.0200", "100"), ("1.2000", "100")], [("1.0500", "30"), ("1.0500", "100")]:
        for row in ONE_BUILD:
            pair = [each for each in EVERY if (each["above"], each["below"]) == (row["above"], row["below"])]
            mine = [each for other in others for each in pair if (each["aim"], each["sms"]) == other]
            if len(mine) == 2:
                every.append(other_cells(row, mine))
    assert [f"| {' | '.join(each)} |" for each in every] == lines
    assert len({row["build"] for row in EVERY}) == 1


def test_what_is_said_of_one_build() -> None:
    words = {5: "five", 8: "eight", 11: "eleven", 12: "twelve", 13: "thirteen", 14: "fourteen"}
    text = PAGE.read_text()
    assert f"Of {words[len(ONE_BUILD)]} new pairs" in text
    above = [row for row in ONE_BUILD if number(row, "last") > 1.05 + 0.03]
    assert [(row["above"], row["below"], row["last"]) for row in above] == [("prefill-2048", "stream", "1.0868")]
    assert max(number(row, "last") for row in ONE_BUILD if row not in above) <= 1.05 + 0.0085
    assert max(number(row, "first") for row in ONE_BUILD) <= 1.07
    covered = sum(number(row, "dial_low") <= number(row, "last") <= number(row, "dial_high") for row in ONE_BUILD)
    near = sum(abs(number(row, "dial") - number(row, "last")) <= 0.03 for row in ONE_BUILD)
    assert (
        f"covers the figure from outside in {words[covered]}, its value is within 0.03 of it in {words[near]}" in text
    )
    predicted = [(mean(r["predicted_below"]), mean(r["below_rate"])) for r in ONE_BUILD if r["predicted_below"]]
    right = sum(abs(said / came - 1) <= 0.15 for said, came in predicted)
    assert f"within 15 % in {words[right]} of {words[len(predicted)]}" in text
    noisy = sum(number(row, "last_half") > 0.03 for row in ONE_BUILD)
    assert f"{words[noisy].capitalize()} pairs have a noise above 0.03" in text


def test_what_is_said_of_one_build_and_mps() -> None:
    there = {(each["above"], each["below"]) for each in MPS}
    mine = [row for row in ONE_BUILD if (row["above"], row["below"]) in there]
    found = [(row, best(row, MPS)) for row in mine]
    beaten = [row for row, other in found if other and total(other["rate"]) > total(row["below_rate"])]
    assert (len(mine), len(beaten)) == (13, 5)
    assert "at least as much in eight of thirteen pairs" in PAGE.read_text()


def mean(rates: str) -> float:
    values = [float(rate) for rate in rates.split("+")]
    return sum(values) / len(values)


def test_what_was_predicted_again_is_beside_what_was_measured() -> None:
    section = PAGE.read_text().partition("## Predicted again")[2].partition("\n## ")[0]
    lines = {line.split(" | ")[0]: line.strip("| ").split(" | ") for line in section.splitlines() if line[:3] == "| `"}
    assert len(lines) == len(BEFORE)
    for name, at in (("again", 3), ("first-before", 5)):
        _, *made = table(list(rows(PAGE.with_suffix("") / f"predict-{name}.jsonl")), BEFORE)
        for above, below, _, said, came, off, *_ in made:
            cells_of = lines["| `" + above + "` + `" + below.replace(",", "`, `") + "`"]
            assert (cells_of[1], cells_of[at], cells_of[at + 1]) == (came, said, off)
        right = sum(abs(int(row[5])) <= 15 for row in made)
        assert f"*{'now' if name == 'again' else 'first'}*: {right} of {len(made)} within 15 %" in section


def test_what_the_present_build_predicts_is_beside_what_was_measured() -> None:
    section = PAGE.read_text().partition("## Predicted by the present build")[2].partition("\n## ")[0]
    lines = [line.strip("| ").split(" | ") for line in section.splitlines() if line[:3] == "| `"]
    folder = PAGE.with_suffix("")
    _, *made = table(list(rows(folder / "predict-first.jsonl")), EVERY)
    assert len(lines) == len(made) == 14
    for (above, below, _, said, came, off, *_), cells_of in zip(made, lines, strict=True):
        assert cells_of[0] == "`" + above + "` + `" + below.replace(",", "`, `") + "`"
        assert (cells_of[1], cells_of[3], cells_of[4]) == (came, said, off)
    then = [(float(cells_of[2]), float(cells_of[1])) for cells_of in lines if cells_of[2] != "–"]
    assert f"*Then*: {sum(near(*each) for each in then)} of {len(then)} within 15 %" in section
    assert f"*Present*: {sum(abs(int(row[5])) <= 15 for row in made)} of {len(made)}" in section
    again = list(csv.DictReader((folder / "again-present.csv").read_text().splitlines()))
    right = sum(abs(int(row["below_off_pct"])) <= 15 for row in again)
    assert len(again) == 32
    assert f"{right} within 15 %" in section


def near(told: float, saw: float) -> bool:
    return abs(told / saw - 1) <= 0.15

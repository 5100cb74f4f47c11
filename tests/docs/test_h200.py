"""The page of sharing on the H200 says what its data say; so does the interference table that ships."""

import json
import math
from pathlib import Path
from statistics import median

import pytest

from bench.gpu_share_keep import digests, keep, pair, short, table_rows
from bench.gpu_share_report import files, renewed, report, tables
from bench.gpu_share_rows import Measured, Row, key, slow
from headway.profiling import pairs as pair_file
from tests.docs.pages import ROOT, read, rows, table

PAGE = "docs/background/results/h200.md"
KEPT = ROOT / "docs/background/results/h200"
WHOLE = 1_000_000


def row(mode: dict[str, float], **more: object) -> Row:
    """A pair with two modes."""
    return {"high": "a", "low": "b", "think_ms": 0, "alone": {"p50_ms": 2.0, "p99_ms": 4.0}, "gate": mode, **more}


def test_the_tables_of_the_page_are_those_of_the_data() -> None:
    page = read(PAGE)
    made = tables(KEPT)
    assert renewed(page, made) == page
    assert all(f"## {heading}\n" in page and text in page for heading, text in made.items())


def test_the_files_beside_the_page_are_those_of_the_data() -> None:
    made = files(KEPT)
    assert {path.name for path in KEPT.glob("*.csv")} == {*made}
    for name, text in made.items():
        assert (KEPT / name).read_text(encoding="utf-8") == text, name


def test_the_pairs_of_the_page_are_those_of_the_files() -> None:
    slower, below = (rows(KEPT / name) for name in ("pairs.csv", "below.csv"))
    _, body = table(read(PAGE), "## The pairs")
    back_to_back = [both for both in zip(slower, below, strict=True) if both[0]["pause_ms"] == "0"]
    assert len(body) == 15
    for (one, other), cells in zip(back_to_back, body, strict=True):
        modes = [one[f"{mode}_slowdown_p50"] for mode in ("mps", "mps_stream_priority", "time_slicing")]
        shares = [other[f"share_of_{name}"] for name in ("alone", "mps", "time_slicing")]
        ours = f"{one['headway_slowdown_p50']} ±{one['headway_error_of_p50']}"
        assert cells == [f"{one['above']} + {one['below']}", one["alone_p50_ms"], ours, *modes, *shares]


def test_what_the_page_begins_with_is_so() -> None:
    slower, below = (rows(KEPT / name) for name in ("pairs.csv", "below.csv"))
    ours = [float(each["headway_slowdown_p50"]) for each in slower]
    theirs = max(float(each["mps_slowdown_p50"]) for each in slower)
    rates = [float(other["share_of_mps"]) for other in below if float(other["gpu_busy_before_pct"]) <= 75]
    told = f"1.04 times as long as alone in the median of {len(ours)} settings and at most {max(ours):.2f} times"
    assert f"{told}, where MPS makes it up to {theirs:.0f} times as slow" in read(PAGE)
    assert round(median(ours), 2) == 1.04
    assert f"gets {median(rates):.2f} of its rate under MPS" in read(PAGE)


def test_the_data_are_small_and_whole() -> None:
    assert sum(path.stat().st_size for path in KEPT.iterdir()) < 200_000
    all_ = Measured(KEPT)
    assert (len(all_.pairs), len(all_.slicing), len(all_.lines("fresh")), len(all_.predicted())) == (30, 30, 42, 32)
    assert all(program["seen"] == program["counted"] for program in all_.programs.values())


def test_the_shipped_table_has_the_pairs() -> None:
    shipped = json.loads(pair_file.path_of("h200").read_text(encoding="utf-8"))
    made = table_rows(Measured(KEPT))
    assert [each for each in shipped if each["sm_share_ppm"] == WHOLE] == made
    assert len(made) == 28 + 42
    table = pair_file.load("h200")
    for each in made:
        assert table.slowdown_ppm(each["program"], [each["co_runner"]], WHOLE) == each["slowdown_ppm"]


def test_what_is_said_of_predictions_is_so() -> None:
    """Within 15 %, and how far half of them are off: as committed, told of each alone, and one pass of the other."""
    all_ = Measured(KEPT)
    got = {key(each): all_.of(each, "alone") for each in (*all_.pairs, *all_.lines("fresh"))}
    last = {key(each) for each in all_.pairs if "," not in each["low"]}
    said = {
        "Within 15 % are {} of the {} rates, and half of all are off by {} % or less": all_.lines("predict"),
        "it has {} of {} within 15 %, half of all within {} %": [r for r in all_.lines("alone") if key(r) not in last],
        "were fitted, {} of {}, half within {} %": [r for r in all_.lines("alone") if key(r) in last],
    }
    off = {words: [abs(each["low_share"] / got[key(each)] - 1) for each in found] for words, found in said.items()}
    one, other = ([row for row in all_.passes if row["run"] == run and key(row) in last] for run in all_.runs)
    off["has {} of the {} within 15 %, half within {} %"] = [
        abs(all_.of(a, "alone") / all_.of(b, "alone") - 1) for a, b in zip(one, other, strict=True)
    ]
    page = read(PAGE)
    for words, errors in off.items():
        told = words.format(sum(each <= 0.15 for each in errors), len(errors), math.ceil(100 * median(errors)))
        assert told in page, told


def test_slow_downs_are_as_near_as_predict_says() -> None:
    """Within 15 % in all: as committed, and told what a request took alone."""
    all_ = Measured(KEPT)
    came = {key(found): slow(found, "gate") for _, found in all_.predicted()}
    for name in ("predict", "alone"):
        told = [row["slowdown"] / came[key(row)] for row in all_.lines(name) if key(row) in came]
        assert len(told) == 32
        assert all(abs(each - 1) <= 0.15 for each in told), name


def test_a_page_without_a_heading_is_refused() -> None:
    with pytest.raises(SystemExit, match="no heading 'Coverage'"):
        renewed("# A page\n", {"Coverage": "| a |"})


def test_only_the_first_table_under_a_heading_is_made_anew() -> None:
    page = "## One\n\nSaid.\n\n| a |\n|---|\n\n| b |\n|---|\n\n## Two\n\n| c |\n"
    assert renewed(page, {"One": "| x |"}) == "## One\n\nSaid.\n\n| x |\n\n| b |\n|---|\n\n## Two\n\n| c |\n"


def test_a_slow_down_is_by_rounds_where_there_are_any() -> None:
    assert slow(row({"p50_ms": 3.0, "slowdown": 1.1}), "gate") == 1.1
    assert slow(row({"p50_ms": 3.0}), "gate") == 1.5


def test_what_is_kept_is_short_and_without_what_is_not_known() -> None:
    given = row({"p50_ms": 1.23456789, "slowdown": None, "iqr": 0.4, "rounds": 16}, ledger={"low": {"waits": 4}})
    kept = short(pair(given))
    assert kept["gate"] == {"p50_ms": 1.2346, "error": 0.1}
    assert "ledger" not in kept


def test_digests_stand_beside_those_of_processes_without_headway(tmp_path: Path) -> None:
    for name, after in (("with", "1"), ("without", "2")):
        (tmp_path / name).write_text(json.dumps({"low": [{"a": "1"}, {"a": after}]}) + "\n")
    with (tmp_path / "with").open("a") as more:
        more.write(json.dumps({"plain": [{"a": "1"}, {}]}))
    found, plain = digests(tmp_path / "with", tmp_path / "without")
    assert (found["with_after"], found["without"], found["without_after"]) == ("1", "1", "2")
    assert (plain["process"], plain["with_after"], plain["without"]) == ("plain", "", "1")


def test_results_of_all_sessions_without_headway_count(tmp_path: Path) -> None:
    (tmp_path / "with").write_text(json.dumps({"low": [{"a": "1", "b": "2"}, {"a": "1", "b": "2"}]}))
    with (tmp_path / "without").open("w") as out:
        for name, value in (("a", "1"), ("b", "2")):
            out.write(json.dumps({"low": [{name: value}, {name: value}]}) + "\n")
    assert [row["without_after"] for row in digests(tmp_path / "with", tmp_path / "without")] == ["1", "2"]


def test_nothing_measured_is_said_in_a_line(tmp_path: Path) -> None:
    keep(tmp_path / "kept", tmp_path, tmp_path)
    with pytest.raises(SystemExit, match="no pair has been measured with all its baselines"):
        report(tmp_path / "kept")

"""The page of a language model's iterations on an H200 says what its files say."""

import re

import numpy as np
import pytest

from tests.docs.pages import read, rows, table, tables

FOLDER = "docs/background/results/h200-decoder"
PAGE = read(f"{FOLDER}.md")
CELLS, RUNS, REQUESTS, ERRORS, SLOPES = (
    rows(f"{FOLDER}/{name}.csv") for name in ("iterations", "runs", "requests", "errors", "slopes")
)
ERROR = {(row["run"], row["kind"]): row for row in ERRORS}
FITTED = "chunked-0.3"


def _percent(value: str, sign: str = "") -> str:
    return f"{100 * float(value):{sign}.1f}"


def test_the_times_of_iterations_are_those_of_the_cells() -> None:
    names = ("decode", "context", "prefill", "prefill_context")
    kept = {
        (row["model"], *(row[name] for name in names)): f"{float(row['gpu_ms_p50']):.1f}"
        for row in CELLS
        if row["mode"] == "graph"
    }
    _, body = next(tables(PAGE))
    assert len(body) == 15
    for *cell, large, small in body:
        assert [large, small] == [kept["7b", *cell], kept["1.3b", *cell]]
    assert f"All {len(CELLS)} cells" in PAGE


def test_the_table_of_the_server_is_that_of_the_runs() -> None:
    _, body = table(PAGE, "## The server")
    assert [row[0] for row in body] == [row["run"] for row in RUNS if row["run"] != "saturated"]
    kept = {row["run"]: row for row in RUNS}
    for run, requests, finished, *waits in body:
        row = kept[run]
        assert (requests, finished) == (row["requests"], row["finished"])
        wanted = []
        for name, factor, digits in (("first_token", 1, 2), ("per_token", 1000, 1), ("latency", 1, 2)):
            wanted += [f"{factor * float(row[f'{name}_s_p{quantile}']):.{digits}f}" for quantile in (50, 99)]
        assert waits == wanted


@pytest.mark.parametrize("run", [row["run"] for row in RUNS if row["run"] != "saturated"])
def test_the_waits_of_a_run_are_those_of_its_requests(run: str) -> None:
    (row,) = (each for each in RUNS if each["run"] == run)
    mine = [each for each in REQUESTS if each["run"] == run]
    done = [each for each in mine if each["returned_s"]]
    assert (str(len(mine)), str(len(done))) == (row["requests"], row["finished"])
    waits = {
        "first_token": [float(each["first_token_s"]) - float(each["arrival_s"]) for each in done],
        "latency": [float(each["returned_s"]) - float(each["arrival_s"]) for each in done],
    }
    for name, values in waits.items():
        for quantile in (50, 99):
            assert np.percentile(values, quantile) == pytest.approx(float(row[f"{name}_s_p{quantile}"]), abs=2e-4)


def test_what_is_said_of_the_runs_is_so() -> None:
    of = {row["run"]: row for row in RUNS}
    slower = float(of["static-0.3"]["latency_s_p50"]) / float(of["chunked-0.3"]["latency_s_p50"])
    assert f"{slower:.1f} times as slow as chunks" in PAGE
    first, chunks = (of[run] for run in ("prefill-0.6", "chunked-0.6"))
    for quantile in (50, 99):
        assert 0.48 < float(first[f"first_token_s_p{quantile}"]) / float(chunks[f"first_token_s_p{quantile}"]) < 0.52
    assert round(100 * float(first["per_token_s_p50"]) / float(chunks["per_token_s_p50"]) - 100) == 4
    tight = of["tight-0.9"]
    assert f"{int(tight['requests']) - int(tight['finished'])} of {tight['requests']}" in PAGE
    assert f"{int(of['chunked-0.9']['cache_tokens']):,}" in PAGE
    assert f"{int(tight['cache_tokens']):,}" in PAGE
    assert round(int(chunks["requests"]) / 55 / 0.6, 1) == 14.9
    longest = max(int(row["prompt"]) + int(row["output"]) for row in REQUESTS)
    assert f"had {longest:,} tokens" in PAGE
    whole = ERROR["all", "all"]
    wall, gpu = float(whole["wall_s"]), float(whole["gpu_s"])
    assert f"{1e3 * (wall - gpu) / int(whole['iterations']):.2f} ms an iteration" in PAGE
    assert f"in the mean ({100 * (wall / gpu - 1):.1f} %)" in PAGE


def test_the_tables_of_errors_are_those_of_the_file() -> None:
    section = PAGE.partition("## Does the table predict the server?")[2].partition("\n## ")[0]
    by_run, by_kind = (body for _, body in tables(section))
    assert [row[0] for row in by_run] == [*(row["run"] for row in RUNS), "all"]
    assert [row[0] for row in by_kind] == ["decode", "prefill", "mixed", "mixed-short"]
    shown = [(ERROR[row[0], "all"], row) for row in by_run] + [(ERROR["all", row[0]], row) for row in by_kind]
    for kept, (_, count, gpu, *cells) in shown:
        wanted = [kept["iterations"], f"{float(kept['gpu_s']):.1f}"]
        for name in ("table", "padded", "longest"):
            wanted += [_percent(kept[f"{name}_absolute_p{quantile}"]) for quantile in (50, 90)]
            wanted.append(_percent(kept[f"{name}_sum"], "+"))
        assert [count, gpu, *cells] == wanted


def test_what_the_page_begins_with_is_so() -> None:
    whole = [row for (run, kind), row in ERROR.items() if kind == "all" and run != "all"]
    sums = [-100 * float(row["table_sum"]) for row in whole]
    assert f"it predicts {min(sums):.0f} to {max(sums):.0f} % less GPU time" in PAGE
    others = [row for row in whole if row["run"] != FITTED]
    assert len(others) == 6
    assert f"within {max(abs(100 * float(row['longest_sum'])) for row in others):.0f} % in sum" in PAGE
    for name, said in (("p50", "in the median"), ("p90", "at the ninth decile")):
        values = [100 * float(row[f"longest_absolute_{name}"]) for row in others]
        assert f"{min(values):.0f} to {max(values):.0f} % {said}" in PAGE
    assert all(float(row["longest_absolute_p90"]) < 0.09 for row in whole)
    assert "good to 9 % in nine of ten cases" in PAGE


def test_what_is_said_of_where_the_table_is_off_is_so() -> None:
    slope = {(row["run"], row["rows"]): float(row["ms_per_1000_tokens"]) for row in SLOPES}
    many, few = "27 and more", "1 to 26"
    assert f"{slope[FITTED, many]} ms more, {slope[FITTED, few]} ms with fewer than 27 rows" in PAGE
    found = [value for (_, size), value in slope.items() if size == many]
    assert f"the cost is {min(found):.2f} to {max(found):.2f} ms" in PAGE
    ms = {
        row["decode"]: float(row["gpu_ms_p50"])
        for row in CELLS
        if (row["model"], row["kind"], row["mode"], row["context"]) == ("7b", "decode", "graph", "16384")
    }
    assert f"the time grows {ms['32'] / ms['16']:.1f} times" in PAGE
    mixed, short, alone = (ERROR["all", kind] for kind in ("mixed", "mixed-short", "prefill"))
    assert _percent(mixed["table_sum"]) == "-12.5"
    assert round(100 * (float(mixed["padded_sum"]) - float(mixed["table_sum"]))) == 5
    assert f"come out {100 * float(alone['padded_sum']):.0f} % too slow" in PAGE
    assert f"predicted {-100 * float(short['longest_sum']):.0f} % too fast" in PAGE
    assert round(100 * int(short["iterations"]) / int(ERROR["all", "all"]["iterations"]), 1) == 0.7


def test_the_files_are_listed_with_their_rows() -> None:
    _, listed = table(PAGE, "## The files")
    assert len(listed) == 6
    for link, count, _ in listed:
        found = re.search(r"\((h200-decoder/\w+\.csv)\)", link)
        assert found
        assert len(rows(f"docs/background/results/{found[1]}")) == int(count)

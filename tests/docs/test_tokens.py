"""The page of the simulated server: its tables are those of the files, and what it says of them is so."""

import csv

import pytest

from tests.docs.pages import DOCS, read, tables

FOLDER = DOCS / "background" / "results" / "tokens"
PAGE = read("docs/background/results/tokens.md")
SERVER, BATCHING = (rows for _, rows in tables(PAGE))


def rows_of(name: str) -> list[dict[str, str]]:
    with (FOLDER / name).open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_table_of_the_server_is_that_of_the_file() -> None:
    for row, shown in zip(rows_of("server.csv"), SERVER, strict=True):
        assert list(shown) == [
            *(row[key] for key in ("run", "requests", "compared")),
            *(f"{float(row[f'ttft_{what}_ms']):.1f}" for what in ("measured", "simulated")),
            f"{float(row['ttft_off']):+.1%}",
            *(f"{float(row[f'tpot_{what}_ms']):.2f}" for what in ("measured", "simulated")),
            f"{float(row['tpot_off']):+.1%}",
        ]


def test_the_table_of_ways_of_batching_is_that_of_the_file() -> None:
    for row, shown in zip(rows_of("batching.csv"), BATCHING, strict=True):
        assert list(shown) == [
            *(row[key] for key in ("batching", "load")),
            *(f"{float(row[key]):.2f}" for key in ("ttft_mean_s", "ttft_p99_s")),
            *(f"{1e3 * float(row[key]):.1f}" for key in ("tpot_mean_s", "tpot_p99_s")),
            f"{float(row['latency_p50_s']):.1f}",
            f"{float(row['output_tokens_per_s']):.0f}",
            f"{float(row['kv_cache_peak_gb']):.1f}",
        ]


def test_the_answer_is_what_the_files_say() -> None:
    chunked = [row for row in rows_of("server.csv") if row["run"].startswith("chunked")]
    assert [row["run"] for row in chunked] == ["chunked-0.3", "chunked-0.6", "chunked-0.9"]
    assert 0.08 < max(abs(float(row["ttft_off"])) for row in chunked) < 0.09
    assert 0.06 < max(abs(float(row["tpot_off"])) for row in chunked) < 0.07
    ways = {(row["batching"], row["load"]): row for row in rows_of("batching.csv")}
    most = [float(ways[way, "2.0"]["output_tokens_per_s"]) for way in ("request", "continuous")]
    assert most[0] / most[1] == pytest.approx(0.58, abs=0.005)
    first = [float(ways[way, "0.3"]["ttft_mean_s"]) for way in ("request", "continuous")]
    assert first[0] / first[1] == pytest.approx(83, abs=0.5)

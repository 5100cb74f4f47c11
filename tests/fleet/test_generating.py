"""Functions that generate: the audit of their tokens and cache, metrics, tables, and what a user may get wrong."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import headway as hw
from bench.gpu_decoder_check import Sizes, Table
from bench.gpu_decoder_table import text_of
from headway.core.tape import Tape
from headway.errors import ExperimentError, InputError, ProfileError
from headway.fleet.audit.audit import audit
from headway.fleet.metrics.summary import summarise
from headway.fleet.model.iterations import NO_ROWS, Decode
from headway.fleet.model.request import Request
from headway.fleet.model.rows import Kind
from headway.fleet.scenarios.generating import FOLDER, shipped
from headway.fleet.scenarios.tables.tokens import DecoderTable, Drawn, iterations_of, parse_tokens
from headway.formats import toml
from headway.units import MILLISECOND, SECOND
from tests.fleet.generating import KV, generation, world_of
from tests.fleet.worlds import Run, drive

MEASURED = Path(__file__).parents[2] / "docs" / "background" / "results" / "h200-decoder"
REQUESTS = tuple(
    Request(number, 0, number * MILLISECOND, 0, prompt_tokens=9, output_tokens=7, prefix_tokens=4)
    for number in range(5)
)
TIME, KIND, SUBJECT, LEASE, PLACE, DETAIL, VALUE = range(7)


def ran(**options: Any) -> Run:
    return drive("hash", world_of(generation(**options), REQUESTS))


def rules(run: Run, rows: Any = None, cache_tokens: int = 0) -> set[str]:
    catalogue = run.world.catalogue
    if cache_tokens:
        answer = catalogue.functions[0]
        smaller = replace(answer.generate, cache_bytes=cache_tokens * KV)
        catalogue = replace(catalogue, functions=(replace(answer, generate=smaller), *catalogue.functions[1:]))
    found = audit(catalogue, run.world.fleet, REQUESTS, run.tape if rows is None else Tape(rows))
    return {finding.rule for finding in found}


# --- the audit ----------------------------------------------------------------------------------------------------


def test_the_audit_adds_up_the_bytes_of_the_cache() -> None:
    run = ran(cache_tokens=64, max_batch=6)
    assert rules(run) == set()
    assert rules(run, cache_tokens=48) == {"cache"}


@pytest.mark.parametrize(
    ("kind", "column", "change", "rule"),
    [
        (Kind.FIRST_TOKEN, LEASE, 1_000, "lease"),
        (Kind.FIRST_TOKEN, SUBJECT, 1, "token"),
        (Kind.LOADED, DETAIL, 1, "cache"),
        (Kind.LOADED, DETAIL, 8, "cache"),
    ],
)
def test_a_tape_whose_tokens_were_changed_is_found_out(kind: Kind, column: int, change: int, rule: str) -> None:
    run = ran()
    rows = run.tape.rows.copy()
    at = int(np.flatnonzero(rows[:, KIND] == int(kind))[0])
    rows[at, column] += change
    assert rule in rules(run, rows)


def test_an_end_without_a_first_token_is_found_out() -> None:
    run = ran()
    rows = run.tape.rows[run.tape.rows[:, KIND] != int(Kind.FIRST_TOKEN)]
    assert rules(run, rows) == {"token"}


def test_a_prefix_is_found_in_the_cache_only_where_it_is_kept() -> None:
    apart = tuple(each._replace(arrival=each.id * SECOND) for each in REQUESTS)
    for keep, cached in ((False, [0, 0, 0, 0, 0]), (True, [0, 4, 4, 4, 4])):
        run = drive("hash", world_of(generation(keep_prefix=keep), apart))
        assert [row.detail for row in run.rows(Kind.LOADED)] == cached


# --- metrics ------------------------------------------------------------------------------------------------------


def test_metrics_of_tokens_are_those_of_the_tape() -> None:
    run = ran()
    world = run.world
    graphs = tuple(replace(graph, ttft=5 * MILLISECOND, tpot=SECOND) for graph in world.catalogue.graphs)
    catalogue = replace(world.catalogue, graphs=graphs)
    numbers = summarise(catalogue, world.fleet, REQUESTS, run.tape, latency=world.latency(), warmup=0.0)
    first = {row.subject: row.time for row in run.rows(Kind.FIRST_TOKEN)}
    done = {row.subject: row.time for row in run.rows(Kind.DONE)}
    waits = [first[each.id] - each.arrival for each in REQUESTS]
    assert numbers["ttft_mean_s"] == pytest.approx(sum(waits) / len(waits) / SECOND)
    assert numbers["ttft_hit_rate"] == sum(wait <= 5 * MILLISECOND for wait in waits) / len(waits)
    each = [(done[number] - first[number]) / 6 for number in first]
    assert numbers["tpot_mean_s"] == pytest.approx(sum(each) / len(each) / SECOND)
    assert numbers["tpot_hit_rate"] == 1.0
    assert numbers["deadlines_hit_rate"] == numbers["ttft_hit_rate"]
    assert numbers["output_tokens_per_s"] == pytest.approx(5 * 7 * SECOND / max(done.values()))
    assert numbers["kv_cache_peak_bytes"] == 3 * 16 * KV  # 60 tokens hold three of 16
    assert numbers["prompt_tokens_cached"] == 0.0


def test_a_request_is_in_time_if_it_keeps_the_deadlines_of_its_answer_and_of_its_tokens() -> None:
    """Five requests wait longer and longer for their first token; the last two have other deadlines, and miss."""
    run = ran()
    world = run.world
    first = {row.subject: row.time for row in run.rows(Kind.FIRST_TOKEN)}
    waits = [first[each.id] - each.arrival for each in REQUESTS]
    requests = (*REQUESTS[:3], REQUESTS[3]._replace(deadline=REQUESTS[3].arrival + 1), REQUESTS[4])

    def rates(ttft: int, tpot: int = 0) -> dict[str, Any]:
        graphs = tuple(replace(graph, ttft=ttft, tpot=tpot) for graph in world.catalogue.graphs)
        catalogue = replace(world.catalogue, graphs=graphs)
        return summarise(catalogue, world.fleet, requests, run.tape, latency=world.latency(), warmup=0.0)

    assert waits == sorted(waits)
    assert rates(waits[4])["deadlines_hit_rate"] == 4 / 5, "the fourth has its tokens in time, its answer not"
    assert rates(waits[2])["deadlines_hit_rate"] == 3 / 5
    assert rates(waits[2], 1)["deadlines_hit_rate"] == 0.0
    kept = rates(waits[2])
    assert kept["deadlines_goodput_per_s"] == pytest.approx(kept["goodput_per_s"] * 3 / 4)
    assert "deadlines_hit_rate" not in rates(0), "without deadlines of tokens slo_hit_rate says it"


# --- tables -------------------------------------------------------------------------------------------------------


def test_shipped_tables_are_what_was_measured() -> None:
    assert shipped() == ["h200-decoder", "h200-decoder-1.3b"]
    for model, name in (("7b", "h200-decoder"), ("1.3b", "h200-decoder-1.3b")):
        assert (FOLDER / f"{name}.toml").read_text() == text_of(MEASURED, model)


with (MEASURED / "iterations.csv").open(newline="") as file:
    CELLS = [row for row in csv.DictReader(file) if row["model"] == "7b" and row["mode"] == "graph"]
PADDING = ("row_sizes", "mixed_row_sizes", "token_sizes")
PLAIN = {key: value for key, value in toml.read(FOLDER / "h200-decoder.toml").items() if key not in PADDING}
UNPADDED = iterations_of(toml.typed(PLAIN | {"host_ms": 0.0, "longest_ms": [0.0, 0.0]}, DecoderTable, "table"), "table")


@given(
    rows=st.integers(0, 300), context=st.integers(1, 20_000), tokens=st.integers(0, 9_000), before=st.integers(0, 9_000)
)
def test_iterations_are_interpolated_as_where_they_were_compared_with_the_server(
    rows: int, context: int, tokens: int, before: int
) -> None:
    rows = rows or int(not tokens)
    sizes = Sizes(*(np.array([float(value)]) for value in (rows, context if rows else 0, tokens, before)))
    expected = float(Table(CELLS).ms(sizes)[0]) * MILLISECOND
    decode = Decode(rows, rows * context, context) if rows else NO_ROWS
    found = UNPADDED.time(decode, tokens, before) if tokens else int(UNPADDED.decode_times(decode, 1, rows)[0])
    assert found == pytest.approx(max(expected, 2), abs=2)


# --- what a user says ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "drawn"),
    [
        ("512", Drawn("", 512.0)),
        (512, Drawn("", 512.0)),
        ("uniform:10,20", Drawn("uniform", 10.0, 20.0)),
        ("lognormal: 400, 0.9", Drawn("lognormal", 400.0, 0.9)),
        ("exponential:200", Drawn("exponential", 200.0)),
        ("", None),
    ],
)
def test_numbers_of_tokens_are_read(text: str | int, drawn: Drawn | None) -> None:
    assert parse_tokens(text, "output_tokens") == drawn


@pytest.mark.parametrize(
    "text", ["0", "many", "uniform:5", "uniform:9,5", "lognormal:0,1", "lognormal:5,99", "1e99", "5,6"]
)
def test_other_numbers_of_tokens_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(ExperimentError, match=r"output_tokens '.*'") as problem:
        parse_tokens(text, "output_tokens")
    assert "\n" not in str(problem.value)


SCENARIO = """
base = "chat"
[functions.answer.generate]
{generate}
[fleet]
workers = [{{ memory = "141GB", gpu = "h200", slices = 8, cpus = 8 }}]
[workload]
requests = 12
rate = 4
"""


def scenario(folder: Path, generate: str = "") -> Path:
    path = folder / "mine.toml"
    path.write_text(SCENARIO.format(generate=generate))
    return path


@pytest.mark.parametrize(
    ("generate", "problem"),
    [
        ('table = "h100-decoder"', r"function answer: unknown table of iterations 'h100-decoder'.*h200-decoder"),
        ('batching = "static"', r"unknown batching 'static'.*continuous"),
        ('cache = "1MB"', r"the cache holds 7 tokens, a request of 1,155 \+ 211 needs 1,366; enlarge cache"),
        ("output = 0", r"output .*0"),
        ("kv_bytes_per_token = 0", r"kv_bytes_per_token 0 must be above 0"),
        ("max_batch = 0", r"max_batch .*0"),
        ("tokens = 5", r"tokens"),
    ],
)
def test_a_generating_function_that_is_wrong_is_refused_in_one_line(
    tmp_path: Path, generate: str, problem: str
) -> None:
    with pytest.raises(InputError, match=problem) as refused:
        hw.simulate(hw.Fleet(scenario(tmp_path, generate)), "hash")
    assert "\n" not in str(refused.value)


def trace(folder: Path, *tokens: tuple[int, int]) -> str:
    path = folder / "trace.jsonl"
    rows = [{"timestamp": 100 * at, "input_length": a, "output_length": b} for at, (a, b) in enumerate(tokens)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_a_request_that_never_fits_or_generates_nothing_is_refused_in_one_line(tmp_path: Path) -> None:
    mine = scenario(tmp_path, 'cache = "200MB"')  # 1,525 tokens
    settings = {"requests": 2, "set": "workload.overload=true"}
    with pytest.raises(
        ExperimentError, match=r"request 1: 1,500 \+ 100 tokens never fit into the cache of answer, which holds 1,525"
    ):
        hw.simulate(hw.Fleet(mine, arrivals=trace(tmp_path, (10, 5), (1500, 100)), **settings), "hash")
    with pytest.raises(ExperimentError, match=r"request 1: 10 prompt and 0 output tokens"):
        hw.simulate(hw.Fleet(mine, arrivals=trace(tmp_path, (10, 5), (10, 0)), **settings), "hash")


def test_what_never_fits_is_said_before_that_it_comes_too_fast(tmp_path: Path) -> None:
    mine = scenario(tmp_path, 'cache = "200MB"')  # 1,525 tokens
    with pytest.raises(ExperimentError, match=r"mean length: 900,000 \+ 100 tokens never fit .* which holds 1,525;"):
        hw.simulate(hw.Fleet(mine, prompt_tokens="900000", output_tokens="100", rate=1000, requests=20), "hash")


def test_tokens_come_from_the_experiment_then_the_trace_then_the_scenario(tmp_path: Path) -> None:
    mine, recorded = scenario(tmp_path), trace(tmp_path, (30, 5), (40, 6), (50, 7))

    def tokens(**settings: Any) -> list[tuple[int, int]]:
        run = hw.simulate(hw.Fleet(mine, **settings), "hash")
        return [(each.prompt_tokens, each.output_tokens) for each in run.stored.scene.requests]

    assert tokens(arrivals=recorded, requests=3) == [(30, 5), (40, 6), (50, 7)]
    assert tokens(arrivals=recorded, requests=3, set="workload.output_tokens=9") == [(30, 9), (40, 9), (50, 9)]
    drawn = tokens()
    assert len(set(drawn)) == 12
    assert [output for _, output in tokens(set="workload.prompt_tokens=70")] == [output for _, output in drawn]


def test_a_run_with_a_table_of_its_own_is_kept_whole(tmp_path: Path) -> None:
    table = (FOLDER / "h200-decoder-1.3b.toml").read_text()
    (tmp_path / "decoder.toml").write_text(table)
    mine = scenario(tmp_path, 'table = "decoder.toml"\nkeep_prefix = true')
    mine.write_text(mine.read_text() + "[graphs.conversation]\nprefix = { tokens = 300, groups = 2 }\n")
    run = hw.simulate(hw.Fleet(mine), "headway").save(tmp_path / "run")
    (tmp_path / "decoder.toml").unlink()
    again = hw.open(tmp_path / "run")
    assert again.audit() == []
    assert again.replay() is None
    assert again.row["digest"] == run.row["digest"]
    assert again.row["prompt_tokens_cached"] > 0


def test_the_story_of_a_request_tells_its_first_token(tmp_path: Path) -> None:
    run = hw.simulate(hw.Fleet(scenario(tmp_path), arrivals=trace(tmp_path, (300, 5), (40, 6)), requests=2), "hash")
    told = str(run.story(0))
    assert "answer has its first token" in told
    assert "with its 300 prompt tokens" in told


def test_a_table_that_is_wrong_is_refused_in_one_line(tmp_path: Path) -> None:
    for text, problem in (
        (
            "decode = [[1, 8, 1.0]]\nprefill = [[4, 8, 1.0]]",
            r"needs rows of decode, and of prefill with 0 tokens before",
        ),
        ("decode = [[1, 8]]\nprefill = [[4, 0, 1.0]]", r"row 1 of decode is \[1.0, 8.0\]: write 2 whole numbers"),
        ("decode = [[1, 8, 1.0], [1, 8, 2.0]]\nprefill = [[4, 0, 1.0]]", r"row 2 of decode, \[1, 8\], is there twice"),
    ):
        (tmp_path / "decoder.toml").write_text(f"kv_bytes_per_token = 1000\n{text}")
        with pytest.raises(ProfileError, match=problem):
            hw.simulate(hw.Fleet(scenario(tmp_path, 'table = "decoder.toml"')), "hash")

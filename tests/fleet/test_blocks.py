"""Prompts that share blocks, as Mooncake's traces have them: what is found in a cache, kept, let go and audited."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.core.tape import Tape
from headway.fleet.audit.audit import audit
from headway.fleet.experiment.scene import prepare
from headway.fleet.model.request import BLOCK_TOKENS, Request
from headway.fleet.model.rows import Kind
from headway.fleet.scenarios.tables.settings import ServingExperiment
from headway.fleet.traces import stored as request_table
from headway.formats import toml
from headway.runs.measured import numbers
from headway.runs.play import play
from headway.units import SECOND
from tests.fleet.generating import generation, world_of
from tests.fleet.worlds import Run, drive

LONG = BLOCK_TOKENS
"""Three requests, apart in time: two blocks and a part of one, the same beginning and another end, the first again."""
PROMPTS = ((2 * LONG + 100, (0, 1, 2)), (2 * LONG + 50, (0, 1, 3)), (2 * LONG + 100, (0, 1, 2)))


def asked(*prompts: tuple[int, tuple[int, ...]], apart: int = 60 * SECOND) -> tuple[Request, ...]:
    return tuple(
        Request(number, 0, number * apart, 0, prompt_tokens=tokens, output_tokens=3, blocks=blocks)
        for number, (tokens, blocks) in enumerate(prompts)
    )


def ran(requests: tuple[Request, ...], cache_tokens: int = 8 * LONG, *, keep: bool = True) -> Run:
    kind = replace(generation(cache_tokens, keep_prefix=keep, max_batch=4), chunk=LONG)
    return drive("hash", world_of(kind, requests))


def cached(run: Run) -> list[int]:
    return [row.detail for row in run.rows(Kind.LOADED)]


def test_blocks_that_are_resident_need_no_prefill_where_prefixes_are_kept() -> None:
    run = ran(asked(*PROMPTS))
    assert cached(run) == [0, 2 * LONG, 2 * LONG + 99], "at least one token of a prompt is computed"
    assert cached(ran(asked(*PROMPTS), keep=False)) == [0, 0, 0]
    took = [row.time - 60 * SECOND * row.subject for row in run.rows(Kind.FIRST_TOKEN)]
    assert took[0] > took[1] > took[2]


def test_a_block_counts_only_behind_all_before_it() -> None:
    assert cached(ran(asked((2 * LONG, (0, 1)), (2 * LONG, (5, 1))))) == [0, 0]


def test_blocks_that_are_being_computed_are_not_shared_yet() -> None:
    assert cached(ran(asked(*PROMPTS[:2], apart=1))) == [0, 0]


def test_the_end_of_a_prompt_leaves_the_cache_before_its_beginning() -> None:
    """A cache of six blocks: two prompts of two blocks stay, and a third of three lets the first one's second go."""
    requests = asked((2 * LONG, (0, 1)), (2 * LONG, (2, 3)), (2 * LONG + 9, (4, 5, 6)), (2 * LONG, (0, 1)))
    assert cached(ran(requests, 6 * LONG)) == [0, 0, 0, LONG]


def test_the_audit_knows_which_blocks_were_computed() -> None:
    run = ran(asked(*PROMPTS))
    requests = asked(*PROMPTS)
    catalogue, fleet = run.world.catalogue, run.world.fleet
    assert list(audit(catalogue, fleet, requests, run.tape)) == []
    others = (requests[0], requests[1]._replace(blocks=(0, 7, 3)), requests[2])
    assert {found.rule for found in audit(catalogue, fleet, others, Tape(run.tape.rows))} == {"cache"}


def test_blocks_are_stored_with_the_requests_and_absent_where_there_are_none(tmp_path: Path) -> None:
    requests = asked(*PROMPTS)
    request_table.write(requests, tmp_path / "blocks.parquet")
    assert request_table.read(tmp_path / "blocks.parquet") == requests
    plain = tuple(each._replace(blocks=()) for each in requests)
    request_table.write(plain, tmp_path / "plain.parquet")
    assert request_table.read(tmp_path / "plain.parquet") == plain
    assert (tmp_path / "plain.parquet").stat().st_size < (tmp_path / "blocks.parquet").stat().st_size


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    rows = [
        {"timestamp": 60_000 * at, "input_length": tokens, "output_length": 3, "hash_ids": list(blocks)}
        for at, (tokens, blocks) in enumerate(PROMPTS)
    ]
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(
    ("keep", "more", "share"),
    [
        (True, {}, (2 * LONG + 2 * LONG + 99) / (6 * LONG + 250)),
        (False, {}, 0.0),
        (True, {"prompt_tokens": 900}, 0.0),
    ],
)
def test_a_trace_of_mooncake_shares_its_blocks_where_the_scenario_keeps_prefixes(
    tmp_path: Path, trace: Path, keep: bool, more: dict[str, Any], share: float
) -> None:
    (tmp_path / "one.toml").write_text(
        'base = "chat"\n[functions.answer.generate]\nkeep_prefix = '
        f"{str(keep).lower()}\n"
        '[fleet]\nworkers = [{ count = 1, memory = "141GB", gpu = "h200", slices = 128, cpus = 128 }]\n'
    )
    document = {
        "serving": {"scenario": str(tmp_path / "one.toml"), "start": "warm"},
        "workload": {"arrivals": str(trace), **more},
        "measure": {"warmup": "0%"},
    }
    scene = prepare(toml.typed(document, ServingExperiment, "test"))
    assert any(request.blocks for request in scene.requests) == (keep and not more)
    result = play(scene)
    assert scene.audit(result.tape, complete=True) == []
    assert numbers(result).row["prompt_tokens_cached"] == pytest.approx(share)

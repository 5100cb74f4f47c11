"""Numbers about tokens in tables, traces, pages and what-ifs: there where a function generates, and nowhere else."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headway as hw
from headway.fleet.metrics.difference import TOKEN_KEYS
from headway.fleet.show.export import TOKENS
from headway.fleet.show.perfetto import trace_events


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run of a language model."""
    return hw.simulate(hw.Fleet("chat", requests=80), "headway", out=str(tmp_path_factory.mktemp("fleet") / "run"))


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run without one."""
    return hw.simulate(hw.Fleet("compass", requests=40), "jit", out=str(tmp_path_factory.mktemp("fleet") / "run"))


def test_the_table_of_requests_agrees_with_the_summary(chat: Any, images: Any) -> None:
    measured = chat.requests()[8:]
    assert measured["ttft_s"].mean() == pytest.approx(chat.row["ttft_mean_s"])
    assert np.percentile(measured["ttft_s"].to_numpy(), 99) == pytest.approx(chat.row["ttft_p99_s"])
    assert measured["tpot_s"].mean() == pytest.approx(chat.row["tpot_mean_s"])
    first, tasks = chat.table("batches")["first_token_s"], chat.table("tasks")
    assert sorted(first) == sorted(tasks["first_token_s"])
    assert (tasks["first_token_s"] > tasks["start_s"]).all()
    for name in ("requests", "tasks", "batches"):
        assert not set(TOKENS) & set(images.table(name).columns), name


def test_a_trace_marks_first_tokens(chat: Any) -> None:
    scene = chat.stored.scene
    made = "".join(trace_events(scene.built.catalogue, scene.built.fleet, scene.requests, chat.stored.tape))
    marks = [event["ts"] for event in json.loads(made)["traceEvents"] if event["name"] == "first token"]
    assert sorted(marks) == pytest.approx([time * 1e6 for time in sorted(chat.table("batches")["first_token_s"])])


def test_a_page_shows_them(chat: Any, images: Any, tmp_path: Path) -> None:
    with_tokens, without = (run.report(tmp_path / f"{at}.html").read_text() for at, run in enumerate((chat, images)))
    for text in (
        "first token",
        "per token",
        "tokens/s",
        "kv peak",
        "time to the first token",
        "for each further token",
    ):
        assert text in with_tokens, text
        assert text not in without, text
    assert f"{chat.row['output_tokens_per_s']:,.0f}" in with_tokens


def test_a_what_if_compares_them(chat: Any, images: Any) -> None:
    record = chat.whatif(remove_workers=1).record()
    for key in TOKEN_KEYS:
        assert record["before"][key] == chat.row[key], key
        assert key in record["after"]
        assert key in record["change"]
    assert not set(TOKEN_KEYS) & set(images.whatif(add_workers=1).record()["before"])

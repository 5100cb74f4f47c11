"""The language model that is measured on GPUs, in a tiny size on the CPU: its cache, its table and its server."""

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from bench import gpu_decoder
from bench.gpu_decoder_model import SHAPES, Batch, Decoder, Iteration, Prefill, padded
from bench.gpu_decoder_runs import requests_of, saturated_rate, scaled
from bench.gpu_decoder_serve import Engine, Request, Rows, Server, played

TINY = SHAPES["tiny"]
LONGEST = 160
NOTHING = np.zeros(0, np.int32)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    return Decoder(TINY, "cpu", LONGEST, cache_tokens=1200)


@pytest.fixture(scope="module")
def engine(decoder: Decoder) -> Engine:
    return Engine(decoder, chunk=24, running=4, longest=LONGEST)


def next_token(decoder: Decoder, words: list[int]) -> int:
    """The token after these, computed anew from all of them: no cache, no batch, plain causal attention."""
    x = decoder.embedding[torch.tensor(words)]
    half = TINY.head // 2
    turn = torch.arange(len(words))[:, None] / 10000 ** (torch.arange(half) / half)

    def turned(heads: torch.Tensor) -> torch.Tensor:
        one, other = heads[..., :half], heads[..., half:]
        cos, sin = turn.cos()[:, None], turn.sin()[:, None]
        return torch.cat((one * cos - other * sin, other * cos + one * sin), -1)

    def normed(rows: torch.Tensor) -> torch.Tensor:
        return rows / (rows.square().mean(-1, keepdim=True) + 1e-5).sqrt()

    for layer in decoder.layers:
        heads = (normed(x) @ layer.asked.T).view(len(words), -1, TINY.head)
        q, k, v = heads.split([TINY.heads, TINY.kv_heads, TINY.kv_heads], 1)
        q, k = turned(q), turned(k)
        k, v = (each.repeat_interleave(TINY.heads // TINY.kv_heads, 1) for each in (k, v))
        q, k, v = (each.transpose(0, 1) for each in (q, k, v))
        seen = torch.ones(len(words), len(words)).tril().bool()
        weights = (q @ k.transpose(1, 2) / TINY.head**0.5).masked_fill(~seen, -torch.inf).softmax(-1)
        x = x + (weights @ v).transpose(0, 1).flatten(1) @ layer.answered.T
        gate, up = (normed(x) @ layer.gate.T).chunk(2, -1)
        x = x + (functional.silu(gate) * up) @ layer.down.T
    return int((normed(x[-1]) @ decoder.head.T).argmax())


def alone(decoder: Decoder, engine: Engine, request: Request) -> list[int]:
    """All tokens of a request, computed without a cache."""
    words = engine.words(Request(request.number, 0.0, request.prompt, request.output), request.prompt).tolist()
    for _ in range(request.output):
        words.append(next_token(decoder, words))
    return words[request.prompt :]


def test_prefills_in_parts_and_decode_rows_give_the_tokens_of_the_whole(decoder: Decoder) -> None:
    words = np.random.default_rng(2).integers(0, TINY.vocabulary, 50).astype(np.int32)
    part = Iteration(decoder, 0, 32, LONGEST)
    part.batch.fill(NOTHING, NOTHING, NOTHING, [Prefill(words[:20], 700, 0), Prefill(words[30:33], 5, 0)])
    assert part.run()[1] == next_token(decoder, words[30:33].tolist())
    both = Iteration(decoder, 2, 16, LONGEST)
    row = np.array([words[33]], np.int32), np.array([5], np.int32), np.array([3], np.int32)
    both.batch.fill(*row, [Prefill(words[20:30], 700, 20)])
    found = both.run().tolist()
    assert found[0] == next_token(decoder, words[30:34].tolist())
    assert found[2] == next_token(decoder, words[:30].tolist())


def test_attention_of_padded_rows_is_causal_from_the_last_row() -> None:
    torch.manual_seed(0)
    keys, values = torch.randn(30, 2, 8), torch.randn(30, 2, 8)
    asked = torch.randn(5, 4, 8)
    ends, starts, lengths = (torch.tensor(each, dtype=torch.int32) for each in ((0, 2, 2, 5), (3, 0, 20, 0), (7, 0, 3)))
    found = padded(asked, keys, values, ends, starts, lengths, 3, 16)
    for query, first, rows in ((0, 3, 6), (1, 3, 7), (2, 20, 1), (3, 20, 2), (4, 20, 3)):
        for head in range(4):
            k, v = (each[first : first + rows, head // 2] for each in (keys, values))
            want = (asked[query, head] @ k.T / 8**0.5).softmax(-1) @ v
            torch.testing.assert_close(found[query, head], want)


def test_a_batch_pads_to_row_0_which_is_nobodys() -> None:
    batch = Batch(3, 8, LONGEST, "cpu")
    one = np.array([7], np.int32)
    batch.fill(one, one * 10, one * 2, [Prefill(np.array([1, 2], np.int32), 100, 4)])
    assert batch.there["rows"].tolist() == [84, 0, 0, 104, 105, 0, 0, 0, 0, 0, 0]
    assert batch.there["decode_lengths"].tolist() == [15, 1, 1]
    assert batch.there["prefill_ends"].tolist()[:3] == [0, 2, 2]
    assert batch.there["last"].tolist()[:5] == [0, 1, 2, 4, 0]


def test_rows_are_taken_first_fit_and_holes_grow_together() -> None:
    rows = Rows(11)
    assert [rows.take(4), rows.take(4), rows.take(4), rows.take(2)] == [1, 5, -1, 9]
    rows.free(1, 4)
    rows.free(9, 2)
    assert (rows.holes, rows.taken) == ([(1, 4), (9, 2)], 4)
    rows.free(5, 4)
    assert (rows.holes, rows.taken) == ([(1, 10)], 0)


ASKED = [(0.0, 30, 6), (0.0, 1, 1), (0.0, 70, 9), (0.0, 12, 3), (0.0, 45, 1), (0.0, 8, 14)]


@pytest.mark.parametrize("batching", ["chunked", "prefill", "static"])
@pytest.mark.parametrize("cache", [100, 1200])
def test_every_request_gets_the_tokens_it_would_get_alone(
    decoder: Decoder, engine: Engine, batching: str, cache: int
) -> None:
    requests = [Request(number, *asked) for number, asked in enumerate(ASKED)]
    server = Server(engine, batching, chunk=24, running=4, cache_tokens=cache)
    iterations = played(server, requests, limit=60.0)
    assert [each.tokens for each in requests] == [alone(decoder, engine, each) for each in requests]
    assert all(0 <= each.start < each.first <= each.end <= each.returned for each in requests)
    assert sum(int(str(each["prefill_tokens"])) for each in iterations) == sum(prompt for _, prompt, _ in ASKED)
    assert max(int(str(each["decode_batch"])) for each in iterations) <= 4
    assert max(int(str(each["reserved_tokens"])) for each in iterations) < cache
    assert (server.rows.taken, server.rows.holes) == (0, [(1, cache - 1)])


def test_a_static_batch_is_returned_whole_and_chunks_are_not(engine: Engine) -> None:
    waited = {}
    for batching in ("static", "chunked"):
        requests = [Request(number, *asked) for number, asked in enumerate(ASKED)]
        played(Server(engine, batching, chunk=24, running=4, cache_tokens=1200), requests, limit=60.0)
        waited[batching] = [each.returned > each.end for each in requests]
        if batching == "static":
            assert [each.returned == requests[0].returned for each in requests] == [True] * 4 + [False] * 2
    assert waited == {"static": [True, True, False, True, True, False], "chunked": [False] * 6}


def test_chunks_keep_running_requests_going_and_prompts_first_do_not(engine: Engine) -> None:
    found = {}
    for batching in ("chunked", "prefill"):
        requests = [Request(number, *asked) for number, asked in enumerate(ASKED)]
        found[batching] = played(Server(engine, batching, 24, 4, 1200), requests, limit=60.0)
    both = [each for each in found["chunked"] if each["prefill_tokens"] and each["decode_batch"]]
    assert both
    assert all(int(str(each["prefill_tokens"])) + int(str(each["decode_batch"])) <= 24 for each in both)
    assert not [each for each in found["prefill"] if each["prefill_tokens"] and each["decode_batch"]]


def test_a_request_that_can_never_fit_is_told_in_one_line(engine: Engine) -> None:
    with pytest.raises(SystemExit, match="request 0: 79 tokens never fit the cache"):
        played(Server(engine, "chunked", 24, 4, 60), [Request(0, 0.0, 70, 9)], limit=60.0)


def test_an_iteration_runs_in_the_next_larger_size_that_is_captured(decoder: Decoder) -> None:
    engine = Engine(decoder, chunk=512, running=256, longest=8192)
    assert engine.size(5, 0, 900) == (8, 0, 1024)
    assert engine.size(5, 0, 1500) == (8, 0, 2048)
    assert engine.size(17, 0, 900) == (24, 0, 1024)
    assert engine.size(25, 0, 900) == (32, 0, 8192)
    assert engine.size(50, 430, 900) == (64, 448, 8192)
    assert engine.size(0, 700, 900) == (0, 768, 8192)
    sizes = set(engine.sizes())
    for decode in range(257):
        for prefill in (0, 1, 100, 512 - decode, 512, *((513, 4096) if not decode else ())):
            for longest in (1, 1025, 8192):
                if prefill > 0 or (prefill == 0 and decode):
                    assert engine.size(decode, prefill, longest) in sizes


def test_arrivals_are_stretched_to_a_rate_and_a_short_trace_is_played_again() -> None:
    rows = [(0.0, 5, 1), (1.0, 6, 2), (4.0, 7, 3)]
    found = scaled(rows, rate=0.5, seconds=10.0)
    assert [(each.prompt, each.output) for each in found] == [(5, 1), (6, 2), (7, 3), (5, 1), (6, 2)]
    assert [each.arrival for each in found] == pytest.approx([0.0, 10 / 7, 40 / 7, 60 / 7, 10.0])


def test_the_saturated_rate_counts_prompts_and_outputs_once_the_batch_is_full() -> None:
    times = [{"start_s": at, "duration_s": 1.0, "prefill_tokens": 20, "decode_batch": 2} for at in (0.0, 1.0, 2.0)]
    times[0]["prefill_tokens"] = 1000
    assert saturated_rate(times, [(0.0, 10, 1), (0.0, 10, 1)], after=0.5) == pytest.approx(2.0)


def test_table_appends_a_row_a_cell_and_measures_none_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_decoder, "WARM_S", 0.0)
    monkeypatch.setattr(gpu_decoder, "CELL_S", 0.0)
    gpu_decoder.main(["table", str(tmp_path), "--tiny"])
    path = tmp_path / "iterations.csv"
    lines = path.read_text().splitlines()
    assert len(lines) == 1 + len(list(gpu_decoder.cells(gpu_decoder.TINY)))
    path.write_text("\n".join(lines[:-1]) + "\n")
    gpu_decoder.table(tmp_path, ["tiny"], gpu_decoder.TINY, "cpu", float("inf"))
    again = path.read_text().splitlines()
    assert again[:-1] == lines[:-1]
    assert again[-1].split(",")[:7] == lines[-1].split(",")[:7]
    model = gpu_decoder.rows_of(tmp_path / "models.csv")
    assert [(row["model"], row["kv_bytes_per_token"]) for row in model] == [("tiny", str(TINY.kv_bytes(4)))]


def test_the_models_have_the_sizes_of_their_names() -> None:
    for name, billions in (("1.3b", 1.3), ("7b", 7.2)):
        shape = SHAPES[name]
        layer = shape.width * (2 * shape.width + 2 * shape.kv_heads * shape.head + 3 * shape.hidden)
        assert (shape.layers * layer + 2 * shape.vocabulary * shape.width) / 1e9 == pytest.approx(billions, rel=0.02)
        assert shape.head == 128


def test_serve_writes_requests_iterations_and_a_summary(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,prompt,output\n" + "".join(f"{at},{p},{o}\n" for at, (_, p, o) in enumerate(ASKED)))
    sizes = ["--chunk", "24", "--running", "4", "--longest", str(LONGEST), "--tight", "100"]
    short = ["--seconds", "0.2", "--saturate", "0.3", "--loads", "0.3", "--also", "static:0.2,tight:0.5"]
    gpu_decoder.main(["serve", str(tmp_path), "--tiny", "--trace", str(trace), *sizes, *short])
    summary = gpu_decoder.rows_of(tmp_path / "serve-summary.csv")
    assert [row["run"] for row in summary] == ["saturated", "chunked-0.3", "static-0.2", "tight-0.5"]
    for row in summary[1:]:
        assert row["finished"] == row["requests"]
    requests = gpu_decoder.rows_of(tmp_path / "serve-requests.csv")
    assert {row["run"] for row in requests} == {row["run"] for row in summary}
    iterations = gpu_decoder.rows_of(tmp_path / "serve-iterations.csv")
    for run in ("chunked-0.3", "static-0.2", "tight-0.5"):
        asked = sum(int(row["prompt"]) for row in requests if row["run"] == run)
        assert sum(int(row["prefill_tokens"]) for row in iterations if row["run"] == run) == asked


def test_a_request_longer_than_the_context_is_refused_in_one_line(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,prompt,output\n0,5,5\n1,90,20\n")
    with pytest.raises(SystemExit, match=r"row 3: 90 \+ 20 tokens; 1 \+ 1 to 100 in all can be"):
        requests_of(trace, 100)


def test_an_excerpt_clips_prompts_to_the_context_and_counts_them(tmp_path: Path) -> None:
    trace, path = tmp_path / "azure.csv", tmp_path / "out" / "small.csv"
    stamp = "2023-11-16 18:15:4"
    rows = [("6.5000000", 374, 44), ("7.0000000", 990, 30), ("9.2500000", 0, 0), ("9.5000000", 9, 9)]
    lines = [f"{stamp}{second},{prompt},{output}" for second, prompt, output in rows]
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(lines))
    assert gpu_decoder.excerpt(trace, path, most=3, longest=1000) == (3, 1, 20)
    with path.open(newline="") as file:
        assert list(csv.reader(file))[1:] == [
            ["0.000000", "374", "44"],
            ["0.500000", "970", "30"],
            ["2.750000", "1", "1"],
        ]
    assert requests_of(path, 1000) == [(0.0, 374, 44), (0.5, 970, 30), (2.75, 1, 1)]

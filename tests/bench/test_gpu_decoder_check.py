"""The prediction of a server's iterations from the table of single ones, on made-up times and on a tiny network."""

from pathlib import Path

import numpy as np
import pytest
import torch

from bench import gpu_decoder
from bench.gpu_decoder_check import CELL, Sizes, Table, check, longest_contexts
from bench.gpu_decoder_rows import rows_of, written

Row = dict[str, object]


def made_up_ms(decode: float, context: float, prefill: float, before: float) -> float:
    """Return the time of an iteration that tables hold exactly: linear between the cells in each size."""
    rows = 5 + 0.01 * decode + 0.0001 * decode * context if decode else 0.0
    tokens = 4 + 0.02 * prefill + 1e-6 * max(prefill, 512) * before if prefill else 0.0
    return rows + tokens - (3 + 0.001 * decode if decode and prefill else 0.0)


def cells() -> list[dict[str, str]]:
    """Return a table of made-up times; the cache was too small for the largest batches and mixtures."""
    sizes = [("decode", b, c, 0, 0) for b in (1, 8, 64) for c in (128, 1024, 4096) if b * c < 100_000]
    sizes += [("prefill", 0, 0, p, 0) for p in (16, 512, 4096)]
    sizes += [("prefill", 0, 0, p, c) for p in (512, 2048) for c in (512, 4096)]
    sizes += [("mixed", b, c, p, 0) for b in (8, 64) for c in (512, 2048) for p in (128, 512) if b * c < 100_000]
    found = []
    for kind, *size in reversed(sizes):
        row = dict(zip(CELL, map(str, size), strict=True))
        found.append({"model": "7b", "kind": kind, "mode": "graph", **row, "gpu_ms_p50": str(made_up_ms(*size))})
    return found


def test_a_table_gives_its_cells_and_what_lies_between_and_beyond() -> None:
    asked = [(8, 1024, 0, 0), (20, 700, 0, 0), (64, 8000, 0, 0), (1, 64, 0, 0)]
    asked += [(0, 0, 512, 512), (0, 0, 300, 2000), (0, 0, 3000, 0), (64, 512, 128, 0), (30, 900, 300, 1000)]
    sizes = Sizes(*np.array(asked, float).T)
    assert Table(cells()).ms(sizes) == pytest.approx([made_up_ms(*each) for each in asked])


def test_beyond_the_measured_mixtures_the_nearest_holds() -> None:
    sizes = Sizes(*np.array([(2, 100, 32, 0), (100, 9000, 900, 0)], float).T)
    found = Table(cells()).ms(sizes)
    assert found[0] == pytest.approx(made_up_ms(2, 100, 0, 0) + made_up_ms(0, 0, 32, 0) - 3.008)
    assert found[1] == pytest.approx(made_up_ms(100, 9000, 0, 0) + made_up_ms(0, 0, 900, 0) - 3.064)


def served(run: str, asked: list[tuple[int, int]], padded: int) -> tuple[list[Row], list[Row]]:
    """Return the iterations and requests of a run: a prompt an iteration, those before it beside it."""
    steps = len(asked) + max(output for _, output in asked)
    contexts: list[list[int]] = [[] for _ in range(steps)]
    requests: list[Row] = []
    for number, (prompt, output) in enumerate(asked):
        for token in range(output - 1):
            contexts[number + 1 + token].append(prompt + token)
        times = {"start_s": number, "first_token_s": number + 0.9, "end_s": number + output - 0.1}
        requests.append({"run": run, **times, "returned_s": times["end_s"], "prompt": prompt, "output": output})
    iterations: list[Row] = []
    for step, rows in enumerate(contexts):
        prefill = asked[step][0] if step < len(asked) else 0
        wider = padded if rows else 0
        if not rows and not prefill:
            continue
        above = (max(rows) - sum(rows) / len(rows)) / 1e3 if rows else 0
        size = (wider, sum(rows) / max(wider, 1), prefill, 0)
        gpu = (made_up_ms(*size) + (2.0 if wider >= 27 else 0.5) * above) / 1e3
        row: Row = {"run": run, "start_s": step, "duration_s": gpu + 0.001, "gpu_s": gpu, "prefill_tokens": prefill}
        row |= {"decode_batch": len(rows), "mean_context": sum(rows) / max(len(rows), 1), "prefill_context": 0}
        iterations.append(row | {"padded_decode": wider, "padded_prefill": prefill})
    return iterations, requests


def words(rows: list[Row]) -> list[dict[str, str]]:
    """Return rows as a CSV file gives them."""
    return [{name: str(value) for name, value in row.items()} for row in rows]


def test_the_longest_context_of_each_iteration_follows_from_when_requests_ran() -> None:
    iterations, requests = served("chunked-0.5", [(100, 4), (700, 2), (300, 1)], padded=4)
    found = longest_contexts("chunked-0.5", words(iterations), words(requests))
    assert found.tolist() == [0, 100, 700, 102]
    requests[2]["first_token_s"] = ""  # never begun
    assert longest_contexts("chunked-0.5", words(iterations), words(requests)).tolist() == [0, 100, 700, 102]
    with pytest.raises(SystemExit, match=r"chunked-0.5, iteration 2: 2 decode rows, but requests give 1: .* same runs"):
        longest_contexts("chunked-0.5", words(iterations), words(requests[:1]))


def test_a_static_batch_keeps_rows_at_their_last_context() -> None:
    rows = [{"start_s": str(at), "decode_batch": str(batch)} for at, batch in enumerate((0, 2, 2, 2))]
    times = {"first_token_s": "0.9", "returned_s": "3.9"}
    requests = [
        {**times, "end_s": "1.9", "prompt": "50", "output": "2"},
        {**times, "end_s": "3.9", "prompt": "10", "output": "4"},
    ]
    assert longest_contexts("static-0.5", rows, requests).tolist() == [0, 50, 51, 51]


def test_check_finds_what_the_longest_context_costs_and_how_far_the_table_is_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path / "iterations.csv", cells())
    few = served("few", [(100, 6), (900, 5), (200, 5), (300, 3)], padded=8)
    many = served("many", [(100 + 37 * number % 300, 60) for number in range(32)], padded=40)
    written(tmp_path / "serve-iterations.csv", few[0] + many[0])
    written(tmp_path / "serve-requests.csv", few[1] + many[1])
    gpu_decoder.main(["check", str(tmp_path), "--fit", "many"])
    assert "few: 0." in capsys.readouterr().out
    slopes = {(row["run"], row["rows"]): float(row["ms_per_1000_tokens"]) for row in rows_of(tmp_path / "slopes.csv")}
    assert slopes == {("few", "1 to 26"): 0.5, ("many", "27 and more"): 2.0}
    errors = {(row["run"], row["kind"]): row for row in rows_of(tmp_path / "errors.csv")}
    assert all(float(row["longest_absolute_p90"]) == 0 for key, row in errors.items() if key[0] == "many")
    assert float(errors["few", "decode"]["longest_sum"]) < 0  # the run it was fitted to had no batch so small
    for key, row in errors.items():
        if key[0] != "all":
            mine = [each for each in (few if key[0] == "few" else many)[0] if key[1] in ("all", kind(each))]
            assert int(row["iterations"]) == len(mine)
            assert float(row["gpu_s"]) == pytest.approx(sum(float(str(each["gpu_s"])) for each in mine), abs=6e-4)
    assert {"decode", "prefill", "mixed", "mixed-short"} <= {kind for run, kind in errors if run == "many"}
    least = errors["many", "decode"]
    assert float(least["table_sum"]) < float(least["padded_sum"]) < 0
    check(tmp_path, "7b", "few")
    again = {(row["run"], row["kind"]): row for row in rows_of(tmp_path / "errors.csv")}
    assert float(again["few", "all"]["longest_absolute_p90"]) == 0
    assert len(rows_of(tmp_path / "requests.csv")) == 36


def kind(row: Row) -> str:
    """Return what an iteration computes."""
    tokens = int(str(row["prefill_tokens"]))
    if not row["decode_batch"]:
        return "prefill"
    return "mixed" if tokens > 128 else "mixed-short" if tokens else "decode"


def test_what_check_needs_and_does_not_find_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"iterations.csv: holds no rows for the model 7b; table and serve write them"):
        check(tmp_path, "7b", "few")
    written(tmp_path / "iterations.csv", cells())
    iterations, requests = served("few", [(100, 3)], padded=4)
    written(tmp_path / "serve-iterations.csv", iterations)
    written(tmp_path / "serve-requests.csv", requests)
    with pytest.raises(SystemExit, match=r"--fit other: no such run; there are few"):
        check(tmp_path, "7b", "other")


def test_check_reads_what_table_and_serve_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = torch.get_num_threads()
    monkeypatch.setattr(gpu_decoder, "WARM_S", 0.0)
    monkeypatch.setattr(gpu_decoder, "CELL_S", 0.0)
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,prompt,output\n0,9,4\n1,30,1\n2,14,7\n3,5,5\n")
    sizes = ["--chunk", "24", "--running", "4", "--longest", "64", "--tight", "100", "--trace", str(trace)]
    short = ["--seconds", "0.1", "--saturate", "0.2", "--loads", "0.3", "--also", "static:0.3,prefill:0.3"]
    gpu_decoder.main(["table", str(tmp_path), "--tiny"])
    gpu_decoder.main(["serve", str(tmp_path), "--tiny", *sizes, *short])
    gpu_decoder.main(["check", str(tmp_path), "--tiny"])
    torch.set_num_threads(threads)
    errors = {(row["run"], row["kind"]): row for row in rows_of(tmp_path / "errors.csv")}
    assert errors["all", "all"]["iterations"] == str(len(rows_of(tmp_path / "serve-iterations.csv")))
    assert {"saturated", "chunked-0.3", "static-0.3", "prefill-0.3"} < {run for run, _ in errors}
    assert all(np.isfinite(float(row["longest_sum"])) for row in errors.values())

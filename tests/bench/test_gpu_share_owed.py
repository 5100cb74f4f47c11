"""What is owed to a build: listed without a GPU, most needed first, and measured piece by piece until nothing is."""

import argparse
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench import gpu_share, gpu_share_aa_programs as programs, gpu_share_dial, gpu_share_owed as owed
from bench.gpu_share_dial import Cycle, build_id
from bench.gpu_share_session import Session
from headway.gpu.share.shim.build import library

MS = 1_000_000
PARTS = ["new", "limits", "open", "sliced", "commands", "coverage", "kills", "known", "alone", "both"]


def put(file: Path, *rows: dict[str, Any]) -> None:
    with file.open("a") as out:
        out.writelines(json.dumps(row) + "\n" for row in rows)


def given_to(state: Path, **more: Any) -> argparse.Namespace:
    state.mkdir(exist_ok=True)
    usual = {"restored": None, "only": None, "slo": "1.05", "sms": 100, "pair_seconds": 40.0}
    return argparse.Namespace(state=state, **{**usual, **more})


def missing(state: Path) -> dict[str, int]:
    return {piece.part: len(piece.missing) for piece in owed.plan(state) if piece.missing}


def pretended(state: Path, did: list[tuple[str, str]], cost_s: Callable[[float], None]) -> dict[str, owed.Part]:
    """Parts that write the rows that are missing, as many as fit into what they are given."""

    def part_of(name: str) -> owed.Part:
        def part(given: argparse.Namespace, left: float) -> None:
            piece = next(each for each in owed.plan(state) if each.part == name)
            left -= owed.START_S
            cost_s(owed.START_S)
            for row in piece.missing:
                if left < piece.row_s:
                    return
                left -= piece.row_s
                cost_s(piece.row_s)
                did.append((name, row))
                pair, _, think = row.partition(" ")
                high, _, low = pair.partition("+")
                kept: dict[str, Any] = {"high": high, "low": low, "build": build_id()}
                if name in ("new", "known"):
                    for slo in given.slo.split(","):
                        put(state / "dialled.jsonl", {**kept, "slo": float(slo), "sms": 100})
                elif name == "both":
                    put(state / "pairs.jsonl", {**kept, "think_ms": float(think)})
                elif name == "alone":
                    put(state / "alone.jsonl", {"program": row, "p50_ms": 1.0})
                else:
                    put(state / f"{name}.jsonl", kept)

        return part

    return {name: part_of(name) for name in PARTS}


def test_everything_is_owed_to_a_build_that_was_never_measured(tmp_path: Path) -> None:
    assert list(missing(tmp_path)) == PARTS
    assert missing(tmp_path)["new"] == len(programs.NEW_PAIRS) == 14
    head, *lines = owed.listed(owed.plan(tmp_path))
    assert head.startswith(f"build {build_id()}: about 3,")
    assert lines[0].split()[:6] == ["new", "773", "s", "14", "of", "14"]


def test_rows_of_another_build_do_not_count_but_those_of_mps_do(tmp_path: Path) -> None:
    high, low = programs.NEW_PAIRS[0]
    row = {"high": high, "low": low, "sms": 100}
    put(tmp_path / "dialled.jsonl", *({**row, "slo": slo, "build": "old"} for slo in owed.AIMS))
    put(tmp_path / "limits.jsonl", {**row, "build": "old"})
    assert missing(tmp_path)["new"] == 14
    assert missing(tmp_path)["limits"] == 13
    put(tmp_path / "dialled.jsonl", *({**row, "slo": slo, "build": build_id()} for slo in owed.AIMS[:2]))
    assert missing(tmp_path)["new"] == 14, "an aim is missing"
    put(tmp_path / "dialled.jsonl", {**row, "slo": owed.AIMS[2], "build": build_id(), "sms": 30})
    assert missing(tmp_path)["new"] == 14, "with all SMs"
    put(tmp_path / "dialled.jsonl", {**row, "slo": owed.AIMS[2], "build": build_id()})
    assert missing(tmp_path)["new"] == 13


def test_calls_of_ten_minutes_go_on_where_the_last_one_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    did: list[tuple[str, str]] = []
    now = [0.0]
    monkeypatch.setattr(owed.time, "monotonic", lambda: now[0])

    def cost(seconds: float) -> None:
        now[0] += seconds

    parts = pretended(tmp_path, did, cost)
    calls, ends = 0, []
    while missing(tmp_path):
        calls += 1
        began = now[0]
        owed.go_on(given_to(tmp_path), 560.0, parts)
        ends.append(now[0] - began)
    assert max(ends) <= 560.0
    assert calls <= 8
    assert len(did) == len(set(did)), "nothing twice"
    assert [part for part, _ in did[:15]] == ["new"] * 14 + ["limits"], "the most needed first, over two calls"
    assert [part for part, _ in did].index("open") < [part for part, _ in did].index("sliced")
    assert capsys.readouterr().out.splitlines()[-1] == f"build {build_id()}: nothing is owed"


def test_a_part_that_fails_keeps_no_other_from_being_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    did: list[tuple[str, str]] = []
    parts = pretended(tmp_path, did, lambda _: None)

    def fails(given: argparse.Namespace, left: float) -> None:
        raise OSError("no MPS")

    parts["limits"] = fails
    with pytest.raises(SystemExit, match="limits: OSError"):
        owed.go_on(given_to(tmp_path), 10_000.0, parts)
    assert list(missing(tmp_path)) == ["limits"]
    assert "limits       395 s  14 of 14" in capsys.readouterr().out


def test_an_empty_machine_is_given_what_earlier_calls_brought_back(tmp_path: Path) -> None:
    first, kept = given_to(tmp_path / "first"), tmp_path / "results.tar.gz"
    put(first.state / "open.jsonl", {"build": build_id()})
    with tarfile.open(kept, "w:gz") as file:
        file.add(first.state / "open.jsonl", "open.jsonl")
    second = given_to(tmp_path / "second", restored=kept)
    owed.owed(second, 0.0)
    assert "open" not in missing(second.state)
    put(second.state / "kills.jsonl", {"build": build_id()})
    owed.owed(second, 0.0)
    assert len((second.state / "open.jsonl").read_text().splitlines()) == 1, "not again"


def test_the_next_pair_is_measured_on_the_stub_driver(
    stub: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One real call, of programs that launch to a driver that is none; the other parts do nothing."""
    for name, value in stub.items():
        monkeypatch.setitem(os.environ, name, value)
    short = Cycle(0.3, 0.2, 20 * MS)
    for name, value in (("BY_GPU", short), ("BY_PROCESSOR", short), ("LOW_ALONE_S", 0.2), ("AGAIN_S", 1.5)):
        monkeypatch.setattr(gpu_share_dial, name, value)
    monkeypatch.setattr(programs, "NEW_PAIRS", (("6", "9"),))
    monkeypatch.setattr(owed, "PAIR_S", 3.0)
    monkeypatch.setattr(gpu_share, "sms", lambda: 132)
    monkeypatch.setattr(gpu_share, "library", lambda folder: library())
    monkeypatch.setattr(
        *(gpu_share_dial, "Session"),
        lambda folder, shim, sms, client: Session(folder, shim, sms, mps=False, client="tests.bench.stub_aa_client"),
    )
    given = given_to(tmp_path / "state")
    others: dict[str, owed.Part] = dict.fromkeys(PARTS, lambda given, left: None)
    owed.go_on(given, 200.0, others | {"new": gpu_share.PARTS["new"]})
    made = [json.loads(line) for line in (given.state / "dialled.jsonl").read_text().splitlines()]
    assert [row["slo"] for row in made] == [1.05, 1.2, 1.02]
    assert {row["build"] for row in made} == {build_id()}
    assert "new" not in missing(given.state)

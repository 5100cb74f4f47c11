"""The verbs that one scale alone has: each says what its command says."""

import json
from pathlib import Path
from typing import Any

import pytest

import headway as hw
from headway.cli import main
from headway.runs.answer import Answer
from tests.api.test_manners import Stopper

HEADER = "JobID|Account|Partition|State|Submit|Start|End|ElapsedRaw|AllocTRES"


def _said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[Any, str]:
    """What a command prints, as JSON and for a person, with its notes."""
    for more in (("--json",), ()):
        with pytest.raises(SystemExit) as ended:
            main([*words, *more])
        assert ended.value.code == 0
        told = capsys.readouterr()
        if more:
            record = json.loads(told.out)
    return record, "\n".join(line.rstrip() for line in f"{told.out}{told.err}".splitlines())


def _shown(answer: Answer) -> str:
    return "\n".join(line.rstrip() for line in repr(answer).splitlines())


def test_a_backtest_says_what_the_command_says(capsys: pytest.CaptureFixture[str]) -> None:
    day = "2026-03-01T12:"
    rows = [f"{n}|a|b|COMPLETED|{day}00:0{n}|{day}0{n}:05|{day}09:00|60|gres/gpu=1" for n in range(1, 5)]
    Path("sacct.txt").write_text("\n".join([HEADER, *rows, ""]))
    work = hw.Jobs("sacct.txt", nodes=1, gpus_per_node=2)
    words = ("jobs", "backtest", "sacct.txt", "--nodes", "1", "--gpus-per-node", "2", "--policies", "fifo,srtf")
    answer = hw.backtest(work, ["fifo", "srtf"])
    assert (answer.record(), _shown(answer)) == _said(capsys, *words)
    assert [row["compared"] for row in answer.record()] == [4, 4]
    with pytest.raises(KeyboardInterrupt, match="was stopped; nothing of it is shown"):
        hw.backtest(work, ["fifo", Stopper])


def test_a_plan_says_what_the_command_says(capsys: pytest.CaptureFixture[str]) -> None:
    answer = hw.plan("translation", rate=1, slo="5s", in_time=0.5, requests=100)
    words = ("fleet", "plan", "translation", "--rate", "1", "--slo", "5s", "--in-time", "0.5", "--requests", "100")
    assert (answer.record(), _shown(answer)) == _said(capsys, *words)
    assert answer.record()[0]["workers"] >= 1
    assert "an hour" in answer._repr_html_()


def test_a_prediction_says_what_the_command_says(capsys: pytest.CaptureFixture[str]) -> None:
    answer = hw.predict("vgg16", ["matmul"], slo=1.1, seconds=0.01)
    words = ("gpu", "predict", "vgg16", "matmul", "--slo", "1.1", "--seconds", "0.01")
    assert (answer.record(), _shown(answer)) == _said(capsys, *words)
    assert answer.record()["slo"] == 1.1

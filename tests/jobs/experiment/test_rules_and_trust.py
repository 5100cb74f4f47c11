"""A site whose waits come from its QOS limits: what a backtest says with its rules, and without them."""

from pathlib import Path
from typing import Any

import pytest

from headway import api as hw
from tests.jobs.experiment.test_knobs import CONF, FILES, NODES

HEADER = "JobID|User|Account|QOS|Partition|State|Submit|Start|End|Elapsed|Timelimit|ReqTRES|Reason"
QOS = "Name|Priority|MaxTRESPU\nlong|10|gres/gpu=2\nnormal|10|\n"


def clock(minute: int) -> str:
    return f"2026-03-{1 + minute // 1440:02d}T{minute % 1440 // 60:02d}:{minute % 60:02d}:00"


def row(job: int, qos: str, submit: int, start: int, reason: str) -> str:
    times = f"{clock(submit)}|{clock(start)}|{clock(start + 10)}|00:10:00|00:10:00"
    return f"{job}|eve|bio|{qos}|batch|COMPLETED|{times}|cpu=1,gres/gpu=2,mem=1G,node=1|{reason}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Bursts of three long jobs on a node that has room for four: the limit lets one run after the other."""
    rows = []
    for burst in range(60):
        first = 60 * burst
        rows += [
            row(10 * burst + each, "long", first, first + 10 * each, "QOSMaxGRESPerUser" if each else "None")
            for each in range(3)
        ]
        rows.append(row(10 * burst + 9, "normal", first, first, "None"))
    (tmp_path / "sacct.txt").write_text("\n".join([HEADER, *rows]) + "\n")
    assoc = "Account|User|ParentName|Fairshare|QOS\nroot|||1|\nbio||root|1|long,normal\nbio|eve||1|long,normal\n"
    for name, text in zip(FILES, (NODES, QOS, assoc, CONF), strict=True):
        (tmp_path / name).write_text(text)
    return tmp_path


def judged(folder: Path, *files: str, without_reasons: bool = False) -> dict[str, Any]:
    trace = folder / "sacct.txt"
    if without_reasons:
        plain = folder / "plain.txt"
        plain.write_text("\n".join(line.rpartition("|")[0] for line in trace.read_text().splitlines()) + "\n")
        trace = plain
    work = hw.Jobs(str(trace), cluster=[str(folder / name) for name in files])
    (record,) = hw.backtest(work, "site", config=str(folder / "slurm.conf")).record()
    return {**record["verdict"], "given": record["rules_given"]}


def test_with_its_rules_the_site_is_trusted(folder: Path) -> None:
    told = judged(folder, *FILES)
    assert told["level"] == "yes"
    assert told["given"] == ["association", "partition", "qos", "settings"]


@pytest.mark.parametrize("without_reasons", [False, True])
def test_without_them_the_verdict_names_qos_limits_and_what_to_give(folder: Path, without_reasons: bool) -> None:
    told = judged(folder, "nodes.txt", without_reasons=without_reasons)
    assert told["level"] == "no"
    assert "Do not trust it" in str(told["text"])
    assert "The likely reason: QOS limits" in str(told["text"])
    assert "sacctmgr show qos -P" in str(told["text"])


def test_with_limits_that_are_not_those_of_then_nobody_is_told_to_give_them(folder: Path) -> None:
    (folder / "qos.txt").write_text(QOS.replace("gres/gpu=2", "gres/gpu=8"))
    told = judged(folder, *FILES)
    assert told["level"] == "no"
    assert "give the limits" not in str(told["text"])
    assert "whether they were others then (sacctmgr show transactions)" in str(told["text"])
    (folder / "transactions.txt").write_text("Time|Action|Actor|Where|Info\n")
    (folder / "reservations.txt").write_text("No reservations in the system\n")
    told = judged(folder, *FILES, "transactions.txt", "reservations.txt")
    assert {"transaction", "reservation"} <= set(told["given"]), "a file without a row tells that there is none"
    assert "sacctmgr show transactions" not in str(told["text"])

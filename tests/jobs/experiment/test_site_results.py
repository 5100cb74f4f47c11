"""What results of a Slurm log carry: dates, the past, the verdict and caveats, groups, costs; and part of a log."""

import csv
import gzip
import json
import re
from pathlib import Path

import pytest

from headway.cli import main

HEADER = "JobID|User|Account|Partition|QOS|State|Submit|Start|End|Elapsed|Timelimit|ReqTRES|Reason"
NODES = (
    "NodeName=h1 CPUTot=8 RealMemory=64000 Gres=gpu:h100:2 State=IDLE Partitions=gpu\n"
    "NodeName=v1 CPUTot=8 RealMemory=64000 Gres=gpu:v100:2 State=IDLE Partitions=gpu\n"
)


def row(job: str, user: str, qos: str, hour: int, wait: int, kind: str = "h100", reason: str = "None") -> str:
    def clock(at: int) -> str:
        return f"2026-03-{2 + at // 24:02d}T{at % 24:02d}:00:00"

    tres = f"cpu=1,gres/gpu:{kind}=2,gres/gpu=2,mem=1G,node=1"
    times = f"{clock(hour)}|{clock(hour + wait)}|{clock(hour + wait + 2)}|02:00:00|04:00:00"
    return f"{job}|{user}|lab|gpu|{qos}|COMPLETED|{times}|{tres}|{reason}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [HEADER]
    for day in range(4):
        rows.append(row(f"7_{day}", "ann", "normal", 24 * day, 0))
        rows.append(row(f"{10 + day}", "bob", "long", 24 * day + 1, 1, "h100", "Dependency"))
        rows.append(row(f"{20 + day}", "ann", "normal", 24 * day + 2, 0, "v100"))
    (tmp_path / "sacct.txt").write_text("\n".join(rows) + "\n")
    (tmp_path / "nodes.txt").write_text(NODES)
    (tmp_path / "slurm.conf").write_text("SchedulerType=sched/builtin\nPriorityType=priority/basic\n")
    return tmp_path


def ran(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return int(ended.value.code or 0)


def compared(folder: Path, *more: str, policies: str = "") -> list[str]:
    names = policies or f"slurm:{folder / 'slurm.conf'},srtf"
    files = [str(folder / "sacct.txt"), "--cluster", str(folder / "nodes.txt")]
    return ["jobs", "compare", *files, "--policies", names, *more]


def test_a_comparison_has_the_past_beside_it_and_one_verdict_for_all(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ran(*compared(folder, "--json", "--price", "h100=3", "--watts", "h100=700,v100=300")) == 0
    told = capsys.readouterr()
    site, other = json.loads(told.out)
    assert site["variant"] == "slurm:slurm.conf"
    assert (site["begins"], site["ends"]) == ("2026-03-02T00:00:00", "2026-03-05T04:00:00")
    past = site["recorded"]
    assert past == other["recorded"]
    assert (past["jobs"], past["wait_mean_s"]) == (12, 1200)
    assert {each["qos"]: each["wait_mean_s"] for each in past["qos"]} == {"long": 3600, "normal": 0}
    assert {each["gpu_type"]: each["jobs"] for each in site["gpu_types"]} == {"h100": 8, "v100": 4}
    assert [each["user"] for each in site["users"]] == ["ann", "bob"]
    assert site["verdict"] == other["verdict"]
    assert site["verdict"]["level"] == "yes", "each second job of a day waits an hour, as it did"
    assert "caveats" in other
    assert (site["cost"], site["energy_kwh"]) == (3 * 32, (32 * 700 + 16 * 300) / 1000)
    assert "--price is not given for v100: the cost in all is without that" in told.err
    assert "--watts" not in told.err


def test_the_past_is_a_line_and_groups_are_tables_with_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran(*compared(folder, "--by", "qos", "--by", "gpu-type", "--label", "our Slurm")) == 0
    told = capsys.readouterr()
    assert "recorded" in told.out
    assert "our Slurm" in told.out
    assert "mean wait by QOS" in told.out
    assert "mean wait by GPU type" in told.out
    assert "verdict: Absolute waits" in told.err


def test_other_policies_alone_have_no_verdict(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran(*compared(folder, "--json", policies="fifo,srtf")) == 0
    first, _ = json.loads(capsys.readouterr().out)
    assert first["verdict"]["level"] == "unknown"
    assert "backtest" in first["verdict"]["text"]


def test_a_backtest_counts_the_jobs_it_is_told_to(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(folder / "sacct.txt"), "--cluster", str(folder / "nodes.txt"), "--policies", "fifo", "--json"]
    sheet = folder / "jobs.csv"
    assert ran("jobs", "backtest", *files, "--set", "measure.warmup=50%", "--csv", str(sheet)) == 0
    (half,) = json.loads(capsys.readouterr().out)
    assert (half["jobs"], half["compared"]) == (6, 6)
    lines = sheet.read_text().splitlines()
    assert len(lines) == 7
    assert lines[1].startswith("7_2,2026-03-04T00:00:00,172800.0,")
    assert [each["group"] for each in half["by_reason"]] == ["Dependency", "–"]
    assert ran("jobs", "backtest", *files, "--from", "2026-03-04") == 0
    (later,) = json.loads(capsys.readouterr().out)
    assert (later["jobs"], later["compared"]) == (6, 6)


def test_settings_that_are_not_followed_are_named_with_the_jobs_and_the_wait_they_may_concern(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conf = folder / "slurm.conf"
    conf.write_text("SchedulerType=sched/backfill\nSchedulerParameters=bf_resolution=600,bf_continue\n")
    files = [str(folder / "sacct.txt"), "--cluster", str(folder / "nodes.txt")]
    said = (
        "not followed: bf_resolution=600 (plans are exact to the nanosecond): "
        "may concern 12 jobs, which waited 4 h in all"
    )
    for words in (["simulate", *files, "--policy", f"slurm:{conf}"], ["backtest", *files, "--config", str(conf)]):
        assert ran("jobs", *words, "--json") == 0
        told = capsys.readouterr()
        answer = json.loads(told.out)
        caveats = (answer[0] if isinstance(answer, list) else answer)["caveats"]
        assert [each for each in caveats if "bf_" in each] == [said]
        assert told.err.count(said) == 1


def test_samples_of_the_queue_tell_what_waiting_was_for(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    samples = [f"2026-03-02T01:{minute:02d}:00|{job}" for minute in range(0, 60, 10) for job in ("10|Resources",)]
    samples += ["2026-03-02T02:00:00|30_[1-3]|JobArrayTaskLimit", "oh no"]
    (folder / "queue.txt").write_text("\n".join(samples) + "\n")
    files = [str(folder / "sacct.txt"), "--cluster", str(folder / "nodes.txt"), "--policies", "fifo"]
    assert ran("jobs", "backtest", *files, "--json", "--squeue", str(folder / "queue.txt")) == 0
    told = capsys.readouterr()
    (found,) = json.loads(told.out)
    assert "1 line skipped: no samples" in told.err
    assert {each["reason"]: round(each["share"], 3) for each in found["waiting_by_reason"]} == {
        "Resources": round(1 / 1.5, 3),
        "JobArrayTaskLimit": round(0.5 / 1.5, 3),
    }
    assert "Resources" in [each["group"] for each in found["by_reason"]]
    (folder / "queue.txt.gz").write_bytes(gzip.compress((folder / "queue.txt").read_bytes()))
    assert ran("jobs", "backtest", *files, "--json", "--squeue", str(folder / "queue.txt.gz")) == 0
    assert json.loads(capsys.readouterr().out)[0]["waiting_by_reason"] == found["waiting_by_reason"]
    (folder / "queue.txt").write_text("nothing\n")
    assert ran("jobs", "backtest", *files, "--squeue", str(folder / "queue.txt")) == 2
    assert "no line is like" in capsys.readouterr().err


def test_a_run_told_in_fifteen_lines_continued_from_a_date_and_shown(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, page, sheet = folder / "run", folder / "page.html", folder / "groups.csv"
    files = [str(folder / "sacct.txt"), "--cluster", str(folder / "nodes.txt")]
    policy = f"slurm:{folder / 'slurm.conf'}"
    assert ran("jobs", "simulate", *files, "--policy", policy, "--out", str(run), "--report", str(page)) == 0
    assert "Verdict." in page.read_text()
    assert "recorded <small>past" in page.read_text()
    assert '"type":"date"' in page.read_text()
    capsys.readouterr()
    assert ran("summary", str(run)) == 0
    told = capsys.readouterr().out.splitlines()
    assert len(told) <= 15
    assert any("2026-03-02 00:00:00 to 2026-03-05 04:00:00" in line for line in told)
    assert any(line.startswith("mean wait by QOS: normal") for line in told)
    waits = [line for line in told if line.startswith(("wait:", "mean wait by"))]
    assert len({unit for line in waits for unit in re.findall(r"\d (h|min|s)\b", line)}) == 1, "all in one unit"
    assert ran("story", str(run), "10") == 0
    assert "Mon 2026-03-02 02:00:00" in capsys.readouterr().out
    what = folder / "what.html"
    asked = ["whatif", str(run), "--at", "2026-03-03", "--add-nodes", "1xh100:2@gpu", "--report", str(what)]
    assert ran(*asked, "--csv", str(sheet), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["at"] == "2026-03-03T00:00:00"
    assert found["verdict"]["level"] == "yes"
    assert {each["qos"]: each["wait_after_s"] for each in found["qos"]} == {"long": 0, "normal": 0}
    assert "By QOS" in what.read_text()
    assert "Verdict.</b> On the run that was continued: Absolute waits" in what.read_text()
    assert sheet.read_text().splitlines()[1].startswith("all,")
    assert "qos,long,3," in sheet.read_text()


def test_tables_for_other_programs_have_dates_beside_their_times(folder: Path) -> None:
    files = [str(folder / "sacct.txt"), "--cluster", str(folder / "nodes.txt")]
    assert ran("jobs", "simulate", *files, "--policy", "fifo", "--out", str(folder / "run")) == 0
    assert ran("export", str(folder / "run"), "--csv", str(folder / "sheets")) == 0
    first = {
        name: next(csv.DictReader((folder / "sheets" / f"{name}.csv").read_text().splitlines()))
        for name in ("jobs", "holds", "timeline")
    }
    begins, ends = "2026-03-02T00:00:00", "2026-03-02T02:00:00"
    assert [first["jobs"][key] for key in ("submit", "first_start", "end")] == [begins, begins, ends]
    assert [first["holds"][key] for key in ("start_s", "start", "end")] == ["0.0", begins, ends]
    assert first["timeline"]["time"] == begins


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--from", "2026-05-01"), "no job was submitted then"),
        (("--from", "2026-03-29T02:30", "--set", "trace.zone=Europe/Berlin"), "does not exist in Europe/Berlin"),
        (("--price", "h200=3"), "GPU type 'h200'"),
        (("--watts", "h100"), "is not understood"),
        (("--label", "a", "--label", "b", "--label", "c"), "there are 2 runs to name"),
        (("--by", "moon"), "moon"),
    ],
)
def test_what_is_wrong_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], line: str
) -> None:
    assert ran(*compared(folder, *words)) == 2
    told = capsys.readouterr().err.strip()
    assert line in told
    assert "\n" not in told

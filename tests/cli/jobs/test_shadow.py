"""``headway shadow``: from dumps and from a Slurm's commands, what it keeps, how it goes on, and what it refuses."""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from headway.jobs.model.rows import Kind
from headway.jobs.slurm.shadow import looks as slurm
from headway.runs.folder.folder import open_run
from headway.units import SECOND
from tests.cli.conftest import Call
from tests.jobs.slurm.shadow import site


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site, with looks at it."""
    folder = tmp_path_factory.mktemp("place")
    site.dumps(folder, jobs=120, count=6)
    return folder


def paths(place: Path) -> list[str]:
    return [str(path) for path in sorted((place / "looks").iterdir())]


def test_looks_taken_together_and_one_by_one_leave_the_same_run(place: Path, call: Call) -> None:
    code, out, err = call("shadow", *paths(place), *site.flags(place), "--policy", "fifo+easy", "-o", "whole", "--json")
    assert code == 0, err
    whole = json.loads(out)
    assert whole["looks"] == 6
    assert whole["booked"] > 50
    call("shadow", paths(place)[0], *site.flags(place), "--policy", "fifo+easy", "-o", "parts")
    for at in range(1, 6):
        code, out, err = call("shadow", *paths(place)[: at + 1], "-o", "parts", "--json")
        assert code == 0, err
        assert f"note: {at} of {at + 1} dumps were taken before" in err
    parts = json.loads(out)
    assert parts["digest"] == whole["digest"]
    assert parts["saved_mean_s"] == whole["saved_mean_s"]
    code, out, err = call("shadow", "-o", "parts", "--json")
    assert (code, json.loads(out)["digest"]) == (0, whole["digest"]), "the report alone"


def test_a_folder_may_be_called_as_its_policy_is(place: Path, call: Call) -> None:
    for policy in ("site", "fifo+easy"):
        words = ("shadow", paths(place)[2], *site.flags(place), "--policy", policy, "-o", f"{policy}+", "--json")
        code, out, err = call(*words)
        assert code == 0, err
        assert json.loads(out)["error_mean_s"] is not None


def test_its_folder_is_a_run_that_other_commands_read(place: Path, call: Call) -> None:
    call("shadow", *paths(place)[:3], *site.flags(place), "--policy", "srtf", "-o", "run")
    code, out, _ = call("shadow", "-o", "run")
    assert code == 0
    assert "jobs booked" in out
    code, out, err = call("audit", "run")
    assert code == 0, err
    name = (Path("run") / "records.txt").read_text().splitlines()[-1].split("|")[0]
    code, out, err = call("story", "run", name)
    assert code == 0, err
    assert name in out
    code, out, err = call("replay", "run")
    assert code == 0, err
    code, out, err = call("report", "run", "-o", "page.html")
    assert code == 0, err


def test_a_line_that_was_cut_short_is_taken_again(place: Path, call: Call) -> None:
    call("shadow", *paths(place)[:3], *site.flags(place), "--policy", "fifo", "-o", "cut", "--json")
    looks = Path("cut/looks.jsonl")
    _, whole, _ = call("shadow", *paths(place)[:3], "-o", "cut", "--json")
    looks.write_bytes(looks.read_bytes()[:-40])
    for name in ("tape.parquet", "result.json", "counts.json"):
        (Path("cut") / name).unlink()
    code, out, err = call("shadow", *paths(place)[:3], "-o", "cut", "--json")
    assert code == 0, err
    assert "2 of 3 dumps were taken before" in err
    assert json.loads(out)["digest"] == json.loads(whole)["digest"]


def test_what_is_wrong_is_one_line(place: Path, call: Call) -> None:
    looks, flags = paths(place), site.flags(place)
    call("shadow", looks[1], *flags, "--policy", "fifo", "-o", "begun")
    Path("other").mkdir()
    (Path("other") / "notes.txt").write_text("mine")
    cases = {
        ("shadow", looks[0], "-o", "begun"): "before the last one",
        ("shadow", looks[2], "-o", "begun", "--policy", "srtf"): "shadows fifo, not srtf: take another folder",
        ("shadow", looks[2], "-o", "begun", "--cluster", looks[0]): "was begun with other files of the site",
        ("shadow", looks[2], "-o", "begun", "--set", "costs.preemption=1m"): "was begun with --set nothing",
        ("shadow", looks[0], *flags, "-o", "other"): "holds other files, and no shadow",
        ("shadow", looks[0], *flags, "--policy", "compass", "-o", "new"): "policy compass is one of fleet, not of jobs",
        ("shadow", looks[0], *flags, "--policy", "fifo", "-o", "new", "--set", "trace.load=2"): "a shadow takes that",
        ("shadow", looks[0], "--cluster", site.files(place)[0], "-o", "new2"): "--policy site: nothing tells",
        ("shadow", looks[0], "-o", "new3"): "a shadow needs the site's nodes",
        ("shadow", "-o", "new4", *flags): "no look was taken yet",
        ("shadow", "nobody.txt", *flags, "-o", "new5"): "there is no such file",
        ("shadow", site.files(place)[0], *flags, "-o", "new6"): "has no JobID and Submit",
        ("shadow", "--slurm", looks[0], "-o", "new7"): "--slurm asks Slurm itself",
        ("shadow", "--slurm", "--every", "0s", "-o", "new8"): "--every 0s: at least 1s",
    }
    for words, expected in cases.items():
        code, out, err = call(*words)
        assert (code, out) == (2, ""), words
        assert expected in err, (words, err)
        assert err.count("\n") == 1 or "note:" in err, err
    code, _, err = call("shadow", looks[0], *flags, "--policy", "fifo", "-o", "new")
    assert code == 0, "what was refused before leaves the folder free"


# --- a Slurm whose commands print what they are told to ---------------------------------------------------------------

_FAKE = """#!{python}
import json, os, re, sys
words = [os.path.basename(sys.argv[0]), *sys.argv[1:]]
with open(os.path.join({folder!r}, "calls.txt"), "a") as file:
    print(*words, file=file)
if words[0] == "squeue":
    asked = words[words.index("-O") + 1]
    fields = re.findall(r"([\\w-]+):(\\|[0-9a-f]+\\|)", asked)
    for row in json.load(open(os.path.join({folder!r}, "jobs.json"))):
        print("".join(row.get(name, "") + mark for name, mark in fields))
    sys.exit(0)
files = {{"node": "nodes.txt", "partition": "partitions.txt", "config": "config.txt"}}
name = files.get(words[2] if len(words) > 2 else "")
if words[0] == "sacct" and os.path.exists(os.path.join({folder!r}, "sacct.txt")):
    name = "sacct.txt"
if name is None:
    sys.exit("slurm_load: not here")
sys.stdout.write(open(os.path.join({folder!r}, name)).read())
"""


class Fake:
    """A Slurm that is told what to print."""

    def __init__(self, folder: Path, place: Path) -> None:
        self.folder = folder
        for command in ("squeue", "scontrol", "sacct", "sacctmgr"):
            path = folder / command
            path.write_text(_FAKE.format(python=sys.executable, folder=str(folder)))
            path.chmod(0o755)
        (folder / "nodes.txt").write_text((place / "nodes.txt").read_text())
        (folder / "partitions.txt").write_text((place / "partitions.txt").read_text())
        (folder / "config.txt").write_text((place / "config" / "slurm.conf").read_text())

    def jobs(self, *rows: dict[str, str]) -> None:
        (self.folder / "jobs.json").write_text(json.dumps(rows))

    def calls(self) -> list[list[str]]:
        return [line.split() for line in (self.folder / "calls.txt").read_text().splitlines()]


@pytest.fixture
def fake(tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return Fake(folder, place)


def job(number: int, state: str, start: str = "N/A", end: str = "N/A", **more: str) -> dict[str, str]:
    return {
        "JobID": str(number),
        "ArrayJobID": str(number),
        "ArrayTaskID": "N/A",
        "State": state,
        "Reason": "Priority",
        "UserName": "ada",
        "Account": "bio",
        "Partition": "a100",
        "QOS": "normal",
        "PriorityLong": "9",
        "SubmitTime": "2026-03-01T00:00:10",
        "EligibleTime": "2026-03-01T00:00:10",
        "TimeLimit": "1:00:00",
        "StartTime": start,
        "EndTime": end,
        "NumNodes": "1",
        "NumCPUs": "4",
        "tres-alloc": "cpu=4,mem=8G,node=1,gres/gpu=1",
        "Name": "a b'|;$(x)",
        **more,
    }


def test_it_looks_at_a_slurm_and_asks_for_nothing_that_changes_it(
    fake: Fake, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_772_323_200]
    monkeypatch.setattr(slurm.time, "time", lambda: now[0])
    steps: list[list[dict[str, str]]] = [
        [job(1, "RUNNING", "2026-03-01T00:00:10")],
        [job(1, "RUNNING", "2026-03-01T00:00:10"), job(2, "PENDING", SubmitTime="2026-03-01T00:00:40")],
        [job(1, "COMPLETED", "2026-03-01T00:00:10", "2026-03-01T00:02:00")],
    ]
    record: dict[str, Any] = {}
    for at, rows in zip((30, 60, 180), steps, strict=True):
        fake.jobs(*rows)
        now[0] = 1_772_323_200 + at
        code, out, err = call("shadow", "--slurm", "--looks", "1", "--policy", "fifo", "-o", "live", "--json")
        assert code == 0, err
        record = json.loads(out)
    assert (record["looks"], record["jobs"], record["carried"]) == (3, 2, 1)
    assert record["ended_unseen"] == 1, "the second was gone before its end was seen"
    assert not Path("live/events.txt").exists(), "no node was away"
    text = (fake.folder / "nodes.txt").read_text()
    first = text.split()[0].removeprefix("NodeName=")
    (fake.folder / "nodes.txt").write_text(re.sub(r" State=\S+", " State=IDLE+DRAIN", text, count=1))
    for at in (240, 300):
        now[0] = 1_772_323_200 + at
        fake.jobs(job(3, "PENDING", SubmitTime="2026-03-01T00:03:30", EligibleTime="2026-03-01T00:03:30"))
        code, out, err = call("shadow", "--slurm", "--looks", "1", "-o", "live", "--json")
        assert code == 0, err
    (line,) = Path("live/events.txt").read_text().splitlines()[1:]
    assert line.split("|")[:2] == [first, "1772323440"]
    code, out, err = call("audit", "live")
    assert code == 0, err
    run = open_run("live")
    (node,) = run.tape.of(int(Kind.NODE_DRAINED))[:, 2].tolist()
    assert run.scene.cluster.nodes[node].name == first
    assert {"squeue", "scontrol", "sacct", "sacctmgr"} >= {words[0] for words in fake.calls()}
    for words in fake.calls():
        assert words[0] in ("squeue", "sacct") or words[1] == "show", words


def test_on_a_quiet_cluster_it_goes_on_until_jobs_come(fake: Fake, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_772_323_200]
    monkeypatch.setattr(slurm.time, "time", lambda: now[0])
    ended = job(1, "COMPLETED", "2026-03-01T00:00:10", "2026-03-01T00:02:00")
    left = job(2, "CANCELLED", end="2026-03-01T00:02:00")
    large = job(3, "PENDING", **{"SubmitTime": "2026-03-01T01:30:00", "tres-alloc": "cpu=4,node=1,gres/gpu=100000"})
    came = job(4, "RUNNING", "2026-03-01T02:00:10", SubmitTime="2026-03-01T02:00:10")
    for at, rows in enumerate(([], [left], [ended, left], [ended], [], [large], [came]), start=1):
        now[0] += 1200
        fake.jobs(*rows)
        code, out, err = call("shadow", "--slurm", "--looks", "1", "--policy", "fifo+easy", "-o", "live", "--json")
        assert code == 0, (rows, err)
        assert json.loads(out)["looks"] == at
        code, again, err = call("shadow", "-o", "live", "--json")
        assert (code, again) == (0, out), err
        assert ("none was submitted since" in err) == (came not in rows)
    assert json.loads(out)["jobs"] == 1, "the large one never fits"


def test_accounting_tells_how_jobs_ended_that_slurm_has_forgotten(
    fake: Fake, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_772_323_230]
    monkeypatch.setattr(slurm.time, "time", lambda: now[0])
    words = ("shadow", "--slurm", "--looks", "1", "--policy", "fifo", "-o", "live", "--json")
    fake.jobs(job(1, "RUNNING", "2026-03-01T00:00:10"), job(2, "PENDING"))
    assert call(*words)[0] == 0
    now[0] += 7200
    fake.jobs()
    head = ",".join(slurm._COLUMNS).replace(",", "|")
    who = "ada|bio|a100|normal|9|2026-03-01T00:00:10|2026-03-01T00:00:10"
    held = "cpu=4,gres/gpu=1,mem=8G,node=1"
    ends = {
        "1": f"2026-03-01T00:00:10|2026-03-01T01:00:10|3600|01:00:00|TIMEOUT|None|{held}|{held}|1|a01|",
        "2": f"2026-03-01T00:30:00|2026-03-01T00:40:00|600|01:00:00|COMPLETED|None|{held}|{held}|1|a01|",
    }
    lines = [head, *(f"{name}|{who}|{end}" for name, end in ends.items())]
    (fake.folder / "sacct.txt").write_text("\n".join(lines) + "\n")
    code, out, err = call(*words)
    assert code == 0, err
    assert json.loads(out)["ended_unseen"] == 0
    works = {each.name: each.ends_after // SECOND for each in open_run("live").scene.jobs}
    assert works == {"1": 3600 - 20, "2": 600}, "what was left of the first at the first look"


def test_a_slurm_that_does_not_answer_is_one_line_and_begins_nothing(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    code, out, err = call("shadow", "--slurm", "-o", "live")
    assert (code, out) == (2, "")
    assert "Slurm's commands are not installed" in err
    assert not Path("live").exists()

"""The made-up site of examples/slurm/site: its scheduler keeps its own rules, and a backtest comes near with them."""

import ast
import csv
import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from examples.slurm.site.__main__ import made
from examples.slurm.site.rules import CPU, GPU, Site, site
from headway.cli import main
from tests.docs.pages import ROOT

JOBS, SEED = 1500, 2
RULES = ("partitions.txt", "qos.txt", "assoc.txt", "config/slurm.conf")
Row = dict[str, str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the site with a few days of jobs."""
    place = tmp_path_factory.mktemp("site")
    made(place, JOBS, SEED)
    return place


@pytest.fixture(scope="module")
def rows(folder: Path) -> list[Row]:
    with (folder / "sacct.txt").open(encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="|"))


def second(text: str) -> int:
    return int((datetime.fromisoformat(text) - datetime(1970, 1, 1)).total_seconds())  # noqa: DTZ001


def amount(row: Row, tres: str) -> int:
    found = dict(part.rsplit("=", 1) for part in row["AllocTRES"].split(",") if part)
    return int(found.get(tres, "0"))


def ran(rows: list[Row]) -> Iterator[tuple[int, int, Row]]:
    """Start, end and row of what ran; not of what was preempted in the second in which it started."""
    for row in rows:
        if row["AllocTRES"] and row["Start"] != row["End"]:
            yield second(row["Start"]), second(row["End"]), row


def most(rows: list[Row], keys: dict[str, list[tuple[tuple[str, ...], int]]]) -> dict[tuple[str, ...], int]:
    """Return the most that was held at once under each key; ``keys`` tells what each row adds to which."""
    events = []
    for start, end, row in ran(rows):
        adds = keys[f"{row['JobID']} {row['Start']}"]
        events += [(end, 0, adds, -1), (start, 1, adds, 1)]
    held: Counter[tuple[str, ...]] = Counter()
    peak: Counter[tuple[str, ...]] = Counter()
    for _, _, adds, sign in sorted(events, key=lambda event: event[:2]):
        for key, size in adds:
            held[key] += sign * size
            peak[key] = max(peak[key], held[key])
    return peak


def test_the_scheduler_of_the_site_uses_nothing_of_headway() -> None:
    modules = set()
    for path in (ROOT / "examples" / "slurm" / "site").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                modules.add(node.module or "")
    assert modules
    assert not [name for name in modules if name.partition(".")[0] == "headway"]


def test_the_same_seed_makes_the_same_files(folder: Path, tmp_path: Path) -> None:
    made(tmp_path, JOBS, SEED)
    names = sorted(path.relative_to(folder) for path in folder.rglob("*.*"))
    assert len(names) == 7
    assert all((folder / name).read_bytes() == (tmp_path / name).read_bytes() for name in names)


def test_it_exceeds_no_node_no_limit_and_no_throttle(rows: list[Row]) -> None:
    rules: Site = site()
    nodes = {node.name: node for node in rules.nodes}
    keys: dict[str, list[tuple[tuple[str, ...], int]]] = {}
    for _, _, row in ran(rows):
        adds = []
        places = row["NodeList"].split(",")
        for name in places:
            adds += [(("node", name, tres), amount(row, tres) // len(places)) for tres in (GPU, CPU)]
        for tres in (GPU, CPU):
            adds += [(("user", row["QOS"], tres, row["User"]), amount(row, tres))]
            adds += [(("group", row["QOS"], tres), amount(row, tres))]
        adds.append((("jobs", row["QOS"], row["User"]), 1))
        if "%" in row["SubmitLine"]:
            adds.append((("array", row["JobID"].partition("_")[0], row["SubmitLine"].split("%")[1].split()[0]), 1))
        keys[f"{row['JobID']} {row['Start']}"] = adds
    reached = 0
    for key, peak in most(rows, keys).items():
        bound = None
        if key[0] == "node":
            bound = nodes[key[1]].gpus if key[2] == GPU else nodes[key[1]].cpus
        elif key[0] == "group":
            bound = rules.qos[key[1]].group.get(key[2])
        elif key[0] == "jobs":
            bound = rules.qos[key[1]].jobs_per_user or None
        elif key[0] == "array":
            bound = int(key[2])
        elif key[1] != "normal" and key[1] != "long":  # the QOS of partition h100 stands before theirs
            bound = rules.qos[key[1]].per_user.get(key[2])
        assert bound is None or peak <= bound, key
        reached += bound == peak
    assert reached > 30, "nodes fill up and limits are reached"


def test_requeued_jobs_wait_two_minutes_and_jobs_wait_for_those_they_depend_on(rows: list[Row]) -> None:
    attempts = defaultdict(list)
    for row in rows:
        attempts[row["JobID"]].append(row)
    again = [pair for each in attempts.values() for pair in itertools.pairwise(each)]
    assert again
    for before, after in again:
        assert before["State"] == "PREEMPTED"
        assert before["QOS"] == "scavenger"
        assert second(after["Eligible"]) == second(before["End"]) + 121
    chained = [row for row in rows if "--dependency" in row["SubmitLine"] and row["Start"] != "None"]
    assert chained
    for row in chained:
        (parent,) = attempts[row["SubmitLine"].split("afterok:")[-1].split("afterany:")[-1].split()[0]]
        assert second(row["Start"]) >= second(parent["End"])


def backtest(folder: Path, files: tuple[str, ...], capsys: pytest.CaptureFixture[str], *more: str) -> dict:
    clusters = [word for name in files for word in ("--cluster", str(folder / name))]
    config = ["--config", str(folder / "config/slurm.conf"), "--json", *more]
    with pytest.raises(SystemExit) as ended:
        main(["jobs", "backtest", str(folder / "sacct.txt"), *clusters, *config])
    assert ended.value.code == 0
    (found,) = json.loads(capsys.readouterr().out)
    return found


def off(errors: dict) -> float:
    return errors["wait_simulated_mean_s"] / errors["wait_recorded_mean_s"] - 1


def test_with_its_rules_the_mean_wait_is_right_within_a_tenth(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = backtest(folder, ("nodes.txt", *RULES), capsys)
    assert abs(off(found)) < 0.10
    assert found["rank_correlation"] > 0.75
    assert found["verdict"]["level"] == "yes"
    assert {each["group"] for each in found["by_qos"]} == {"normal", "long", "debug", "scavenger"}
    assert len(found["by_user"]) == 30
    (cpu,) = (each for each in found["by_partition"] if each["group"] == "cpu")
    assert abs(off(cpu)) < 0.10


def test_without_its_rules_the_verdict_says_no_and_names_qos_limits(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = backtest(folder, ("nodes.txt",), capsys)
    assert found["verdict"]["level"] == "no"
    assert found["verdict"]["text"].startswith("Do not trust it")
    assert "The likely reason: QOS limits" in found["verdict"]["text"]
    assert off(found) < -0.3


@pytest.fixture(scope="module")
def run(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site played under its own rules, kept."""
    kept = tmp_path_factory.mktemp("runs") / "site"
    files = [word for name in ("nodes.txt", *RULES) for word in ("--cluster", str(folder / name))]
    policy = ["--policy", f"slurm:{folder / 'config/slurm.conf'}", "--out", str(kept)]
    with pytest.raises(SystemExit) as ended:
        main(["jobs", "simulate", str(folder / "sacct.txt"), *files, *policy])
    assert ended.value.code == 0
    return kept


def asked(run: Path, capsys: pytest.CaptureFixture[str], *changes: str) -> dict:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["whatif", str(run), "--at", "2026-01-07T09:00", *changes, "--json"])
    assert ended.value.code == 0
    return json.loads(capsys.readouterr().out)


def test_a_run_that_is_continued_without_a_change_goes_on_exactly(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    same = asked(run, capsys)
    assert (same["better"], same["worse"]) == (0, 0)
    assert same["digest"] == json.loads((run / "result.json").read_text())["digest"]


def test_another_limit_tells_who_gains_and_who_loses_by_qos_and_user(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    less = asked(run, capsys, "--qos", "long.GrpTRES=gres/gpu=16")
    assert less["changes"] == ["QOS long: GrpTRES gres/gpu 16 instead of 64"]
    by_qos = {each["qos"]: each["wait_after_s"] / max(1, each["wait_before_s"]) for each in less["qos"]}
    assert by_qos["long"] > 5
    assert by_qos["long"] > 3 * by_qos["normal"]
    assert len(less["users"]) == 30
    assert any(each["wait_after_s"] < each["wait_before_s"] for each in less["users"])
    assert any(each["wait_after_s"] > each["wait_before_s"] for each in less["users"])
    assert less["verdict"]["level"] == "yes"


def test_tune_finds_the_limit_that_was_planted_too_low_and_none_where_none_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """QOS long may hold 16 GPUs of a cluster where far more stand idle; as the site is, no other limit is better."""
    for planted in (True, False):
        place = tmp_path / str(planted)
        made(place, 1000, SEED, planted=planted)
        arguments = ["jobs", "tune", str(place / "sacct.txt"), "--policy", f"slurm:{place / 'config/slurm.conf'}"]
        for name in ("nodes.txt", *RULES):
            arguments += ["--cluster", str(place / name)]
        arguments += ["--knob", "qos long.GrpTRES=gres/gpu=32", "--lower", "wait of QOS long"]
        with pytest.raises(SystemExit) as ended:
            main([*arguments, "--keep", "wait of all", "--processes", "1", "--json"])
        out, _ = capsys.readouterr()
        assert ended.value.code == 0
        record = json.loads(out)
        assert record["found"] is planted
        assert record["commands"] == (["sacctmgr modify qos long set GrpTRES=gres/gpu=32"] if planted else [])
        assert record["verdict"]["level"] == "yes"
        assert not any(each["too_few_jobs"] for each in (*record["combinations"], *record["test"]))

"""Rules of a Slurm site as knobs: of runs, sweeps and what-ifs, and searched for an aim."""

import json
from pathlib import Path

import pytest

from headway import api as hw
from headway.cli import main
from headway.errors import ExperimentError, InfeasibleJobError
from headway.runs.answer import Answer
from headway.runs.result import Run

HEADER = "JobID|User|Account|QOS|Partition|State|Submit|Start|End|Elapsed|Timelimit|ReqTRES"
NODES = "NodeName=n1 CPUTot=64 RealMemory=640000 Gres=gpu:a100:8 State=IDLE Partitions=batch\n"
QOS = "Name|Priority|MaxTRESPU\nlong|10|gres/gpu=8\nnormal|10|\nspare|0|\n"
ASSOC = (
    "Account|User|ParentName|Fairshare|QOS\nroot|||1|\n"
    "bio||root|1|long,normal\nbio|eve||1|long,normal\nchem||root|1|normal\nchem|kim||1|normal\n"
)
CONF = (
    "ClusterName=x\nAccountingStorageEnforce=limits\nPriorityType=priority/multifactor\nPriorityWeightAge=1\n"
    "PriorityWeightFairshare=100000\nSchedulerType=sched/builtin\nPartitionName=batch Nodes=n1 MaxTime=2-0\n"
)
FILES = ("nodes.txt", "qos.txt", "assoc.txt", "slurm.conf")


def row(job: int, who: str, qos: str, gpus: int, submit: int, minutes: int) -> str:
    """Return a job that was submitted so many minutes after midnight of the first of March."""

    def clock(minute: int) -> str:
        return f"2026-03-{1 + minute // 1440:02d}T{minute % 1440 // 60:02d}:{minute % 60:02d}:00"

    user, account = ("eve", "bio") if who == "bio" else ("kim", "chem")
    length = f"{minutes // 60:02d}:{minutes % 60:02d}:00"
    times = f"{clock(submit)}|{clock(submit)}|{clock(submit + minutes)}|{length}|{length}"
    return f"{job}|{user}|{account}|{qos}|batch|COMPLETED|{times}|cpu=1,gres/gpu={gpus},mem=1G,node=1"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Bursts of long jobs that take all 8 GPUs of a node, and small normal jobs that come behind them."""
    rows = []
    for burst in range(45):
        first = 100 * burst
        rows += [row(1000 * burst + each, "bio", "long", 2, first, 20) for each in range(1, 9)]
        rows += [row(1000 * burst + each, "chem", "normal", 2, first + 1 + each - 20, 5) for each in range(20, 26)]
    (tmp_path / "sacct.txt").write_text("\n".join([HEADER, *rows]) + "\n")
    for name, text in zip(FILES, (NODES, QOS, ASSOC, CONF), strict=True):
        (tmp_path / name).write_text(text)
    return tmp_path


def work(folder: Path, **settings: object) -> hw.Work:
    files = [str(folder / name) for name in FILES]
    return hw.Jobs(str(folder / "sacct.txt"), cluster=files, policy=f"slurm:{folder}/slurm.conf", **settings)


def waits(run: Run) -> dict[str, float]:
    return {row["qos"]: row["wait_mean_s"] for row in run.row["qos"]}


# --- runs -------------------------------------------------------------------------------------------------------------


def test_a_changed_limit_holds_and_is_told(folder: Path) -> None:
    before = hw.simulate(work(folder))
    after = hw.simulate(work(folder, qos="long.MaxTRESPU=gres/gpu=4"))
    assert waits(after)["normal"] < waits(before)["normal"]
    assert waits(after)["long"] > waits(before)["long"]
    assert "changed for this run: QOS long: MaxTRESPU gres/gpu 4 instead of 8" in after.notes
    assert after.row["verdict"]["level"] == "unknown", "the past was under other rules"
    assert "rules of the site were changed for this run" in after.row["verdict"]["text"]


def test_a_limit_that_is_set_is_not_raised_for_jobs_that_ran_beyond_it(folder: Path) -> None:
    with pytest.raises(InfeasibleJobError, match="at most 1 GPU may be had under QOS long"):
        hw.simulate(work(folder, qos="long.MaxTRESPU=gres/gpu=1"))
    run = hw.simulate(work(folder, qos="long.MaxTRESPU=gres/gpu=1", skip_infeasible=True))
    assert (run.row["jobs"], run.row["skipped"]) == (6 * 45, 8 * 45)


def test_a_change_that_changes_nothing_gives_the_same_tape(folder: Path) -> None:
    settings = {"qos": "long.MaxTRESPU=gres/gpu=8", "shares": "bio=1,chem=1", "partition": "batch.PriorityTier=1"}
    assert hw.simulate(work(folder, **settings)).row["digest"] == hw.simulate(work(folder)).row["digest"]


def test_shares_are_followed(folder: Path) -> None:
    less = hw.simulate(work(folder, shares="chem=1"))
    more = hw.simulate(work(folder, shares={"chem": 1000}))
    assert less.row["digest"] == hw.simulate(work(folder)).row["digest"]
    assert waits(more)["normal"] <= waits(less)["normal"]


def test_flags_keywords_and_settings_are_one_thing(folder: Path) -> None:
    ways = (
        work(folder, qos=["long.MaxTRESPU=gres/gpu=4"], shares={"chem": 3}),
        work(folder, set={"cluster.rules.qos long.MaxTRESPU": "gres/gpu=4", "cluster.rules.shares.chem": "3"}),
        work(folder, set=["cluster.rules.qos long.MaxTRESPU=gres/gpu=4", 'cluster.rules.shares.chem="3"']),
    )
    assert len({json.dumps(each.document["cluster"]["rules"]) for each in ways}) == 1


def test_a_name_with_dots_is_one_name(folder: Path) -> None:
    made = work(folder, qos="a.b.MaxTRESPU=cpu=1")
    assert made.document["cluster"]["rules"] == {"qos a.b": {"MaxTRESPU": "cpu=1"}}


def test_several_values_belong_to_a_sweep(folder: Path) -> None:
    with pytest.raises(ExperimentError, match="has 2 values; sweep and jobs tune take several"):
        work(folder, qos="long.MaxTRESPU=gres/gpu=4|8")


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"qos": "lnog.MaxTRESPU=gres/gpu=4"}, "unknown QOS 'lnog'; did you mean 'long'?"),
        ({"qos": "long"}, "--qos 'long' is not understood: write it like --qos long.MaxTRESPU=gres/gpu=32"),
        ({"shares": "bio=1,bio=2"}, "--shares: bio is given twice"),
        ({"partition": "batch.Tier=2"}, "partition batch: unknown key 'Tier'"),
    ],
)
def test_what_is_wrong_is_one_line(folder: Path, settings: dict[str, str], line: str) -> None:
    with pytest.raises(ExperimentError) as raised:
        hw.simulate(work(folder, **settings))
    assert line in str(raised.value)


def test_rules_need_files_of_a_site(folder: Path) -> None:
    bare = hw.Jobs(str(folder / "sacct.txt"), nodes=1, gpus_per_node=8, qos="long.MaxTRESPU=gres/gpu=4")
    with pytest.raises(ExperimentError, match="no file describes any: give --cluster with what sacctmgr show qos"):
        hw.simulate(bare)


def test_a_qos_that_no_association_has_is_said(folder: Path) -> None:
    assert "QOS spare: no association may use it" in hw.simulate(work(folder)).notes


def test_the_page_says_how_long_jobs_waited_behind_each_limit(folder: Path) -> None:
    policies = [f"slurm:{folder}/slurm.conf", "fifo"]
    found = hw.compare(work(folder, qos="long.MaxTRESPU=gres/gpu=4"), policies)
    found.report(folder / "page.html")
    text = (folder / "page.html").read_text(encoding="utf-8")
    table = text.partition("<h3>Job-hours waited behind limits</h3>")[2].partition("</table>")[0]
    assert "QOSMaxGRESPerUser@qos:long" in table
    waited = found.rows[0]["limits"][0]["job_hours"]
    assert f"{waited:,.0f}" in table
    assert "of all waiting" in table


# --- sweeps and what-ifs ----------------------------------------------------------------------------------------------


def test_a_rule_is_an_axis_of_a_sweep(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["jobs", "sweep", str(folder / "sacct.txt"), "-o", str(folder / "grid"), "--json", "--processes", "1"]
    for name in FILES:
        arguments += ["--cluster", str(folder / name)]
    arguments += ["--policies", f"slurm:{folder}/slurm.conf", "--to", "1d", "--qos", "long.MaxTRESPU=gres/gpu=4|8"]
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0
    printed = capsys.readouterr()
    rows = json.loads(printed.out)
    assert [row["values"]["cluster.rules.qos long.MaxTRESPU"] for row in rows] == ["gres/gpu=4", "gres/gpu=8"]
    assert rows[0]["digest"] != rows[1]["digest"]
    alone = hw.simulate(work(folder, end="1d")).row
    assert rows[1]["digest"] == alone["digest"]
    assert all(row["verdict"] == alone["verdict"] for row in rows), "that of the site's policy under its own rules"
    assert rows[1]["caveats"] == alone["caveats"]
    assert rows[1]["begins"] == alone["begins"] == "2026-03-01T00:00:00"
    told = printed.err.splitlines()
    assert f"note: verdict: {alone['verdict']['text']}" in told
    assert "note: QOS spare: no association may use it" in told
    changed = "note: changed for this run: QOS long: MaxTRESPU gres/gpu 4 instead of 8 (1 of 2 combinations)"
    assert changed in told


@pytest.fixture
def run(folder: Path) -> Run:
    hw.simulate(work(folder), out=str(folder / "run"))
    return hw.open(folder / "run")


def test_a_what_if_without_a_change_continues_exactly(run: Run) -> None:
    answer = run.whatif("50%", qos="long.MaxTRESPU=gres/gpu=8", shares="bio=1", partition="batch.PriorityTier=1")
    assert "note: nothing was to change: the rest of the tape is the same, row for row" in answer.notes
    assert answer.record()["changes"] == []
    assert answer.record()["digest"] == run.row["digest"]


def test_a_what_if_says_who_gains_and_who_loses_by_qos_and_user(run: Run) -> None:
    record = run.whatif("10%", qos="long.MaxTRESPU=gres/gpu=4").record()
    assert record["changes"] == ["QOS long: MaxTRESPU gres/gpu 4 instead of 8"]
    by = {row["qos"]: row for row in record["qos"]}
    assert by["normal"]["wait_after_s"] < by["normal"]["wait_before_s"]
    assert by["long"]["wait_after_s"] > by["long"]["wait_before_s"]
    assert {row["user"] for row in record["users"]} == {"eve", "kim"}


def test_a_lifted_limit_is_gone(run: Run) -> None:
    record = run.whatif("10%", qos="long.MaxTRESPU=").record()
    assert record["changes"] == ["QOS long: MaxTRESPU gres/gpu no limit instead of 8"]


def test_a_run_without_rules_of_a_site_says_how_to_get_them(folder: Path) -> None:
    hw.simulate(hw.Jobs(str(folder / "sacct.txt"), nodes=1, gpus_per_node=8), out=str(folder / "bare"))
    with pytest.raises(ExperimentError, match="knows no rules of a Slurm site: make it anew with --cluster"):
        hw.open(folder / "bare").whatif("50%", qos="long.MaxTRESPU=gres/gpu=4")


# --- tune -------------------------------------------------------------------------------------------------------------


def tuned(folder: Path, knob: str, lower: str, *keep: str, **more: str) -> Answer:
    return hw.tune(work(folder), knob, lower, keep, **more)


def test_a_planted_better_limit_is_found_on_later_jobs_than_it_was_searched_on(folder: Path) -> None:
    answer = tuned(folder, "qos long.MaxTRESPU=gres/gpu=2|4|6|8", "wait of QOS normal", "wait of QOS long 150%")
    record = answer.record()
    assert record["found"]
    assert record["best"] == {"cluster.rules.qos long.MaxTRESPU": "gres/gpu=4"}, "2 would lower it more; long waits"
    assert record["commands"] == ["sacctmgr modify qos long set MaxTRESPU=gres/gpu=4"]
    assert record["searched"]["to"] == record["tested"]["from"]
    assert len(record["combinations"]) == 4, "the present value is not tried twice"
    text = "\n".join(answer.lines())
    assert "sacctmgr modify qos long set MaxTRESPU=gres/gpu=4" in text
    assert "nothing was executed" in text


def test_when_nothing_is_better_it_says_so(folder: Path) -> None:
    answer = tuned(folder, "qos long.MaxTRESPU=gres/gpu=2|4|6", "wait of QOS long")
    record = answer.record()
    assert (record["found"], record["best"], record["commands"]) == (False, None, [])
    assert "None of 3 combinations is better than the present rules." in answer.lines()


def test_what_is_to_be_kept_is_kept(folder: Path) -> None:
    record = tuned(folder, "qos long.MaxTRESPU=gres/gpu=2|4|6", "wait of QOS normal", "wait of QOS long").record()
    assert not record["found"]
    assert all(each["missed"] == ["wait of QOS long"] for each in record["combinations"][1:])


def test_a_gain_of_the_first_window_alone_is_no_better_rule(folder: Path) -> None:
    text = (folder / "sacct.txt").read_text().splitlines()
    late = [line for line in text[1:] if "|normal|" in line and "T" in line and int(line.split("|")[0]) >= 30_000]
    (folder / "sacct.txt").write_text(
        "\n".join(line for line in text if line not in late)
        + "".join(f"\n{row(99_000 + each, 'chem', 'normal', 2, 3080 + 100 * each, 5)}" for each in range(15))
        + "\n"
    )
    answer = tuned(folder, "qos long.MaxTRESPU=gres/gpu=4", "wait of QOS normal", test_from="2026-03-03T02:00:00")
    assert answer.record()["combinations"][1]["better"]
    assert not answer.record()["found"]
    assert any("is not better than the present rules on the later window" in line for line in answer.lines())


@pytest.mark.parametrize(
    ("knob", "lower", "line"),
    [
        ("long.MaxTRESPU=gres/gpu=4", "wait of all", "is not understood: write it like qos long.MaxTRESPU"),
        ("qos long.MaxTRESPU=gres/gpu=4", "waits of everybody", "--lower 'waits of everybody' is not understood"),
        ("qos long.MaxTRESPU=gres/gpu=4", "wait of QOS lnog", "unknown QOS 'lnog'"),
        ("qos lnog.MaxTRESPU=gres/gpu=4", "wait of all", "unknown QOS 'lnog'"),
    ],
)
def test_what_cannot_be_searched_is_one_line(folder: Path, knob: str, lower: str, line: str) -> None:
    with pytest.raises(ExperimentError) as raised:
        tuned(folder, knob, lower)
    assert line in str(raised.value)


@pytest.mark.parametrize(
    ("test_from", "line"),
    [
        ("2026-04-01", "the last job is submitted at 2026-03-04T01:26:00: none is left to test on"),
        ("2026-03-01", "the first job is submitted at 2026-03-01T00:00:00: none is left to search on"),
    ],
)
def test_a_window_without_jobs_is_refused_before_anything_runs(folder: Path, test_from: str, line: str) -> None:
    with pytest.raises(ExperimentError) as raised:
        tuned(folder, "qos long.MaxTRESPU=gres/gpu=4", "wait of all", test_from=test_from)
    assert str(raised.value) == f"--test-from {test_from}: {line}"


def test_too_few_jobs_are_told_from_rules_that_are_not_better(folder: Path) -> None:
    lines = (folder / "sacct.txt").read_text().splitlines()
    (folder / "sacct.txt").write_text("\n".join(lines[:22]) + "\n")
    answer = tuned(folder, "qos long.MaxTRESPU=gres/gpu=4", "wait of QOS normal")
    assert answer.record()["combinations"][1]["too_few_jobs"]
    assert any(line.startswith("Too few jobs to tell: for them there is no interval") for line in answer.lines())


def with_more_nodes(folder: Path) -> None:
    """Give the site two nodes more: only the limit of QOS long makes anybody wait."""
    (folder / "nodes.txt").write_text("".join(NODES.replace("n1", f"n{each}") for each in (1, 2, 3)))
    (folder / "slurm.conf").write_text(CONF.replace("Nodes=n1 ", "Nodes=n[1-3] "))


def test_waits_that_fall_to_0_are_judged_by_the_change_in_time(folder: Path) -> None:
    with_more_nodes(folder)
    answer = tuned(folder, "qos long.MaxTRESPU=", "wait of QOS long")
    record = answer.record()
    assert record["found"]
    aim = record["combinations"][1]["aims"][0]
    assert (aim["mean_s"], aim["change"], aim["change_interval"]) == (0.0, -1.0, None)
    assert aim["change_s"] == -record["combinations"][0]["aims"][0]["mean_s"]
    assert aim["change_interval_s"][1] < 0
    assert record["combinations"][1]["by_seconds"]
    assert not record["combinations"][1]["too_few_jobs"]
    assert "Better, also on the later window: qos long.MaxTRESPU= (wait of QOS long -100.0 %, now 0)." in answer.lines()
    assert any("the wait of QOS long falls to 0, or nearly so" in note for note in answer.notes)


def test_waits_that_are_0_already_cannot_be_lowered(folder: Path) -> None:
    with_more_nodes(folder)
    answer = tuned(folder, "qos long.MaxTRESPU=", "wait of QOS normal")
    assert any(line.endswith("the present rules: the wait of QOS normal is 0 under them.") for line in answer.lines())


def test_the_answer_carries_verdict_and_caveats(folder: Path) -> None:
    answer = tuned(folder, "qos long.MaxTRESPU=gres/gpu=4", "wait of QOS normal")
    record = answer.record()
    assert record["verdict"]["level"] == "no", "in the record of this site nobody waits"
    assert any(line.startswith("verdict on the simulation under the present rules: Do not") for line in answer.lines())
    assert record["caveats"]
    assert {f"note: {line}" for line in record["caveats"]} <= set(answer.notes)


def test_a_change_that_concerns_nobody_is_said(folder: Path, run: Run) -> None:
    line = "no job is of QOS spare: its change concerns nobody"
    assert line in hw.simulate(work(folder, qos="spare.MaxTRESPU=gres/gpu=2")).notes
    asked = run.whatif("1d", qos="spare.MaxTRESPU=gres/gpu=2").notes
    assert f"note: {line}" in asked
    same = "note: the change makes no difference: every job waits and runs as long as without it"
    assert same in asked
    assert same not in run.whatif("10%", qos="long.MaxTRESPU=gres/gpu=4").notes
    assert f"note: {line}" in tuned(folder, "qos spare.MaxTRESPU=gres/gpu=2", "wait of QOS long").notes
    both = hw.simulate(work(folder, qos="long.MaxTRESPU=gres/gpu=16", shares="bio=2"))
    assert not any("concerns nobody" in note for note in both.notes)


def test_the_command_prints_the_table_and_the_lines_to_type(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["jobs", "tune", str(folder / "sacct.txt"), "--policy", f"slurm:{folder}/slurm.conf"]
    for name in FILES:
        arguments += ["--cluster", str(folder / name)]
    arguments += ["--knob", "qos long.MaxTRESPU=gres/gpu=4|16", "--lower", "wait of QOS normal", "--processes", "1"]
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--test-from", "2026-03-02T20:00"])
    shown = capsys.readouterr()
    assert ended.value.code == 0
    assert "sacctmgr modify qos long set MaxTRESPU=gres/gpu=4" in shown.out
    assert "note: better means: the wait of QOS normal is lower over the same jobs, the 95 % interval" in shown.err


@pytest.mark.parametrize(
    ("kind", "value", "line"),
    [
        ("shares", "bio=0", "account bio: Fairshare=0 is taken as 1"),
        ("shares", "bio=parent", "Fairshare=parent of bio is not followed: each counts with a share of 1"),
        ("qos", "long.GrpTRES=gres/gpu:v100=8", "no node has GPUs of type v100"),
    ],
)
def test_what_a_value_is_taken_for_is_said_wherever_it_is_set(
    folder: Path, run: Run, kind: str, value: str, line: str
) -> None:
    assert line in hw.simulate(work(folder, **{kind: value})).notes
    asked = run.whatif("10%", **{kind: value})
    assert f"note: {line}" in asked.notes
    assert line in asked.record()["notes"]
    assert f"note: {line}" in tuned(folder, f"{kind} {value}", "wait of QOS long").notes


def test_a_combination_that_cannot_be_played_is_told_whole(folder: Path) -> None:
    lines = tuned(folder, "qos long.MaxTRESPU=gres/gpu=0", "wait of QOS normal").lines()
    told = next(line for line in lines if "MaxTRESPU=gres/gpu=0 could not be played: job " in line)
    assert "at most 0 GPUs may be had under QOS long" in told
    assert "None of 1 combination could be played: nothing was compared." in lines


def test_a_refused_cell_is_not_offered_once_more(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [part for name in FILES for part in ("--cluster", str(folder / name))]
    rules = ["--policies", f"slurm:{folder}/slurm.conf", "--qos", "long.MaxTRESPU=gres/gpu=0|8"]
    with pytest.raises(SystemExit) as ended:
        main(["jobs", "sweep", str(folder / "sacct.txt"), *files, *rules, "-o", str(folder / "sweep")])
    assert ended.value.code == 1
    told = capsys.readouterr().err
    assert "1 of 2 cells cannot be played as they are" in told
    assert "--retry" not in told

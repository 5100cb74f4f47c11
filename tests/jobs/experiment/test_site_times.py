"""What changes at a Slurm site over time: events, reservations and transactions are played when they happened."""

from pathlib import Path

import pytest

from headway import api as hw
from headway.errors import InputError
from headway.formats import toml
from headway.jobs.experiment.scene import JobsScene, prepare
from headway.jobs.tables.settings import Experiment
from headway.runs.result import Run
from headway.units import HOUR, MINUTE, SECOND

HEADER = "JobID|User|Account|QOS|Partition|State|Submit|Start|End|Elapsed|Timelimit|ReqTRES|Reservation"
NODES = "".join(
    f"NodeName=n{number} CPUTot=64 RealMemory=640000 Gres=gpu:a100:8 State=IDLE Partitions=batch\n" for number in (1, 2)
)
CONF = "ClusterName=x\nAccountingStorageEnforce=limits\nPriorityType=priority/basic\nSchedulerType=sched/builtin\n"
EVENTS = "NodeName|TimeStart|TimeEnd|State|Reason|User\n"
QOS = "Name|Priority|MaxTRESPU|GrpJobs\nlong|10|gres/gpu=16|\n"
RESERVED = (
    "ReservationName={name} StartTime={start} EndTime={end} Duration=01:00:00 Nodes={nodes} NodeCnt=1 "
    "Flags={flags} Users=root Accounts=(null) PartitionName=(null) State=INACTIVE\n"
)
SPARE = "2026-03-01T{}:00"


def row(job: int, minute: int, length: int, gpus: int = 8, *, limit: int = 0, reservation: str = "") -> str:
    """A job that was submitted some minutes after noon and started at once, for so many minutes."""
    start, end = (f"2026-03-01T{12 + at // 60}:{at % 60:02d}:00" for at in (minute, minute + length))
    elapsed, most = (f"{at // 60:02d}:{at % 60:02d}:00" for at in (length, limit or length))
    held = f"cpu=1,gres/gpu={gpus},mem=1G,node=1"
    return f"{job}|eve|bio|long|batch|COMPLETED|{start}|{start}|{end}|{elapsed}|{most}|{held}|{reservation}"


def site(folder: Path, *rows: str, **files: str) -> Run:
    """Play rows of sacct on two nodes of eight GPUs, with these files besides."""
    (folder / "sacct.txt").write_text("\n".join((HEADER, *rows)) + "\n")
    given = {"nodes": NODES, "slurm": CONF, **files}
    for name, text in given.items():
        (folder / f"{name}.conf").write_text(text)
    cluster = [str(folder / f"{name}.conf") for name in given]
    return hw.simulate(hw.Jobs(str(folder / "sacct.txt"), cluster=cluster), f"slurm:{folder}/slurm.conf")


def waits(run: Run) -> dict[str, float]:
    """How long each job waited, in minutes."""
    table = run.table("jobs")
    return {name: wait / 60 for name, wait in zip(table["name"].to_list(), table["wait_s"].to_list(), strict=True)}


def scene(run: Run) -> JobsScene:
    """The run before it began."""
    assert isinstance(run.stored.scene, JobsScene)
    return run.stored.scene


def test_a_drained_node_ends_what_it_has_and_takes_nothing_new(tmp_path: Path) -> None:
    events = EVENTS + "n1|2026-03-01T12:05:00|2026-03-01T12:40:00|DRAIN|bad fan|root(0)\n"
    run = site(tmp_path, row(1, 0, 10), row(2, 0, 20), row(3, 6, 5), events=events)
    assert waits(run) == {"1": 0, "2": 0, "3": 14}  # at 12:20 n2 is free; n1 was since 12:10
    assert not any("not followed" in note for note in run.notes)
    assert run.audit() == []
    told = "it would fit with n1 in service; n1 drained until Sun 2026-03-01 12:40:00 (bad fan)"
    assert told in "\n".join(run.story("3").lines())


def test_a_node_that_goes_down_takes_its_job_with_it(tmp_path: Path) -> None:
    events = EVENTS + "n1|2026-03-01T12:05:00|2026-03-01T12:40:00|DOWN|crash|root(0)\n"
    run = site(tmp_path, row(1, 0, 10), row(2, 0, 20), events=events)
    ends = dict(zip(*(run.table("jobs")[name].to_list() for name in ("name", "jct_s")), strict=True))
    assert ends == {"1": 30 * 60, "2": 20 * 60}  # the first begins anew on n2 at 12:20, no checkpoint was written yet
    assert run.audit() == []


def test_a_node_that_is_still_away_is_back_when_the_last_job_comes(tmp_path: Path) -> None:
    events = (
        EVENTS + "n1|2026-03-01T11:00:00|Unknown|DRAIN|still|root(0)\nold|2026-03-01T11:00:00|Unknown|DOWN|x|root\n"
    )
    run = site(tmp_path, row(1, 0, 10), row(2, 0, 20), row(3, 15, 5), events=events)
    assert waits(run) == {"1": 0, "2": 10, "3": 0}
    assert any("1 outage without an end: these nodes are back when the last job" in note for note in run.notes)
    assert "events: 1 node not in the cluster (old): left out" in run.notes


def test_a_reservation_keeps_others_out_and_takes_its_own_in(tmp_path: Path) -> None:
    kept = RESERVED.format(
        name="course", start=SPARE.format("12:30"), end=SPARE.format("13:30"), nodes="n1", flags="SPEC_NODES"
    )
    rows = [row(1, 0, 31), row(2, 0, 25, reservation="course"), row(3, 0, 30), row(4, 1, 10, reservation="old")]
    run = site(tmp_path, *rows, reservations=kept)
    assert waits(run) == {"1": 0, "2": 30, "3": 0, "4": 30}  # the first may only run on n2; 4 is no special one
    assert any("(old), are named by 1 job" in note for note in run.notes)
    assert run.audit() == []
    assert "reservation course, which it names, begins at Sun 2026-03-01 12:30:00" in "\n".join(run.story("2").lines())


def test_a_daily_one_is_repeated_before_and_after(tmp_path: Path) -> None:
    kept = RESERVED.format(
        name="daily", start="2026-03-03T12:30:00", end="2026-03-03T13:30:00", nodes="n1", flags="DAILY,MAGNETIC"
    )
    run = site(tmp_path, row(1, 0, 31), row(2, 0, 31), reservations=kept)
    assert waits(run) == {"1": 0, "2": 31}
    first = min(scene(run).cluster.reservations, key=lambda each: each.start)
    assert (first.start, first.end) == (30 * MINUTE, 90 * MINUTE)
    assert any("not followed: flag MAGNETIC of reservation daily" in note for note in run.notes)


def test_limits_have_the_amounts_of_then(tmp_path: Path) -> None:
    changes = (
        "Time|Action|Actor|Where|Info\n"
        "2026-02-01T00:00:00|Modify QOS|root|(name='long')|max_tres_pu = if (id=2, '1001=8', max_tres_pu)\n"
        "2026-03-01T12:05:00|Modify QOS|root|(name='long')|max_tres_pu = if (id=2, '1001=16', max_tres_pu)\n"
        "2026-02-01T00:00:00|Modify QOS|root|(name='long')|grp_jobs=NULL\n"
        "2026-03-01T12:30:00|Modify QOS|root|(name='long')|grp_jobs=1\n"
        "2026-03-01T12:40:00|Modify QOS|root|(name='long')|grp_jobs=NULL\n"
    )
    rows = [row(1, 0, 10), row(2, 0, 10), row(3, 31, 20), row(4, 31, 20)]
    run = site(tmp_path, *rows, qos=QOS, changes=changes)
    assert waits(run) == {"1": 0, "2": 5, "3": 0, "4": 9}
    assert run.audit() == []
    rules = {rule.name: rule for rule in scene(run).cluster.limits}
    assert rules["QOSMaxGRESPerUser"].changes == ((5 * MINUTE, 16_000),)
    assert rules["QOSMaxGRESPerUser"].most == 8_000
    assert not any("earlier values" in note for note in run.notes)


def test_a_change_in_numbers_that_nobody_explains_is_not_followed_and_said(tmp_path: Path) -> None:
    changes = (
        "Time|Action|Actor|Where|Info\n"
        "2026-03-01T12:05:00|Modify QOS|root|(name='long')|max_tres_pu = if (id=2, '1001=4', max_tres_pu)\n"
    )
    run = site(tmp_path, row(1, 0, 10), row(2, 0, 10), qos=QOS, changes=changes)
    assert waits(run) == {"1": 0, "2": 0}
    assert any("not followed: earlier values of QOS long" in note for note in run.notes)


def test_the_time_before_the_first_change_is_said_to_be_unknown(tmp_path: Path) -> None:
    changes = "Time|Action|Actor|Where|Info\n2026-03-01T12:05:00|Modify QOS|root|(name='long')|grp_jobs=1\n"
    run = site(tmp_path, row(1, 0, 10), row(2, 0, 10), qos=QOS.replace("=16|", "=16|1"), changes=changes)
    assert waits(run) == {"1": 0, "2": 10}
    line = (
        "not followed: GrpJobs of QOS long before 2026-03-01T12:05:00 (it was changed then, and from what is not told"
    )
    assert any(line in note and "may concern 2 jobs" in note for note in run.notes)


def test_usage_of_sshare_decides_who_comes_first(tmp_path: Path) -> None:
    weights = "PriorityType=priority/multifactor\nPriorityWeightFairshare=1000\n"
    conf = CONF.replace("PriorityType=priority/basic\n", weights)
    rows = [row(1, 0, 10), row(2, 0, 60), row(3, 1, 10), row(4, 2, 10).replace("|eve|bio|", "|dan|chem|")]
    tree = "Account|User|RawShares|NormShares|RawUsage\nroot||||{0}\n bio||1|0.5|0\n  bio|eve|1|1|0\n chem||1|0.5|{0}\n"
    shares = tree + "  chem|dan|1|1|{0}\n"
    run = site(tmp_path, *rows, slurm=conf, shares=shares.format(0))
    assert waits(run) == {"1": 0, "2": 0, "3": 19, "4": 8}  # chem has used nothing
    run = site(tmp_path, *rows, slurm=conf, shares=shares.format(800_000))
    assert waits(run) == {"1": 0, "2": 0, "3": 9, "4": 18}  # chem has used more than bio in these ten minutes
    assert any(
        "in billing units (RawUsage) as CPUs, 8 of which go with a GPU, and decays" in note for note in run.notes
    )
    assert not any("usage starts at none" in note for note in run.notes)
    used = {tenant.name: tenant.used for tenant in scene(run).cluster.tenants}
    assert used == {"root": (), "bio": (), "chem": (("dan", 100_000 * SECOND * 1000),)}


def test_a_stored_run_is_read_back_and_replayed_and_goes_on_in_a_what_if(tmp_path: Path) -> None:
    kept = RESERVED.format(
        name="maint", start=SPARE.format("12:30"), end=SPARE.format("13:30"), nodes="n1", flags="MAINT,IGNORE_JOBS"
    )
    events = EVENTS + "n2|2026-03-01T12:05:00|2026-03-01T12:40:00|DRAIN|bad fan|root(0)\n"
    rows = [row(1, 0, 31), row(2, 0, 10), row(3, 1, 31), row(4, 60, 20)]
    (tmp_path / "sacct.txt").write_text("\n".join((HEADER, *rows)) + "\n")
    files = {"nodes": NODES, "slurm": CONF, "events": events, "reservations": kept}
    for name, text in files.items():
        (tmp_path / f"{name}.conf").write_text(text)
    cluster = [str(tmp_path / f"{name}.conf") for name in files]
    source = hw.Jobs(str(tmp_path / "sacct.txt"), cluster=cluster)
    hw.simulate(source, f"slurm:{tmp_path}/slurm.conf", out=str(tmp_path / "run"))
    stored = hw.open(str(tmp_path / "run"))
    assert waits(stored) == {"1": 0, "2": 0, "3": 39, "4": 11}
    assert stored.audit() == []
    assert stored.replay() is None
    answer = stored.whatif("12m", add_nodes=["1"], folder=str(tmp_path / "more"))
    told = "\n".join(answer.lines())
    assert "1 node" in told
    assert "-28m 00s" in told  # job 3 starts at 12:12 and not at 12:40
    told = "reservation maint keeps n1 from Sun 2026-03-01 12:30:00 to Sun 2026-03-01 13:30:00; it would run until"
    assert told in "\n".join(stored.story("3").lines())


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (
            {"events": EVENTS + "n1|2026-03-01T12:05:00|2026-03-01T12:04:00|DOWN|x|root(0)\n"},
            "node n1 is back at 2026-03-01T12:04:00, before it went, 2026-03-01T12:05:00",
        ),
        (
            {
                "reservations": RESERVED.format(
                    name="r", start=SPARE.format("12:30"), end=SPARE.format("12:30"), nodes="n1", flags=""
                )
            },
            "reservation r ends at 2026-03-01T12:30:00, not after it starts",
        ),
    ],
)
def test_what_cannot_have_been_is_one_line(tmp_path: Path, files: dict[str, str], told: str) -> None:
    with pytest.raises(InputError, match=told):
        site(tmp_path, row(1, 0, 10), **files)


def test_a_date_in_the_gap_of_summer_time_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "sacct.txt").write_text("\n".join((HEADER, row(1, 0, 10))) + "\n")
    away = {"nodes": "all", "start": "2026-03-29T02:30", "end": "2026-03-29T05:00"}
    document = {
        "trace": {"path": str(tmp_path / "sacct.txt"), "zone": "Europe/Berlin"},
        "cluster": {"nodes": 1, "gpus_per_node": 8, "outages": [away]},
    }
    with pytest.raises(InputError, match="outages '2026-03-29T02:30' does not exist in Europe/Berlin"):
        prepare(toml.typed(document, Experiment, "mine.toml"))


def test_dates_without_dates_of_jobs_are_left_out_with_a_note(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("submit_s,work_s,gpus\n0,60,8\n0,60,8\n")
    (tmp_path / "mine.toml").write_text(
        "[cluster]\nnodes = 1\ngpus_per_node = 8\n"
        "[[cluster.outages]]\nnodes = 'n0'\nstart = '2026-03-29T02:30'\nend = '2026-03-29T05:00'\n"
        "[[cluster.outages]]\nnodes = [0]\nstart = 30\nend = '1h'\nstate = 'drained'\n"
    )
    run = hw.simulate(hw.Jobs(str(tmp_path / "jobs.csv"), cluster=str(tmp_path / "mine.toml")), "fifo")
    assert any("1 outages, reservations or limits have dates, and the jobs have none" in note for note in run.notes)
    assert run.table("jobs")["wait_s"].to_list() == [0, HOUR / 1e9]


def test_a_number_is_the_id_of_a_job_and_not_its_place_in_the_run(tmp_path: Path) -> None:
    tasks = [row(9, 0, 10).replace("9|", f"9_{task}|", 1) for task in (0, 1)]
    run = site(tmp_path, row(1, 0, 10), row(7, 1, 10), *tasks)
    for ask in (run.story, run.explain):
        assert ask("7").record()["name"] == ask(7).record()["name"] == "7"
        assert ask("#1").record()["job"] == 1
        with pytest.raises(InputError, match=r"^9 is an array: say 9_0 or 9_1$"):
            ask(9)
        with pytest.raises(InputError, match="job '3' is not in this run: none of its 4 jobs is called so; '#3' is"):
            ask(3)
    number = run.story("7").record()["job"]
    assert str(run.story("7").lines()[0]).startswith(f"job 7 (#{number}): 8 GPUs, ")
    told = "it runs: since Sun 2026-03-01 12:00:00 on 8 GPUs of n1"
    assert told in "\n".join(map(str, run.explain("1", at="1m").lines()))

"""A run with a Slurm site's files: limits hold, what is not followed is said, leave that was given is kept."""

from pathlib import Path

import pytest

from headway import api as hw
from headway.errors import InputError
from headway.runs.result import Run

HEADER = "JobID|User|Account|QOS|Partition|State|Submit|Start|End|Elapsed|Timelimit|ReqTRES"
NODES = "NodeName=n1 CPUTot=64 RealMemory=640000 Gres=gpu:a100:8 State=IDLE Partitions=batch\n"
QOS = "Name|Priority|MaxTRESPU|MaxWall|UsageThres\nlong|10|gres/gpu=2|01:00:00|5\nshort|100|||\n"
CONF = (
    "ClusterName=x\nAccountingStorageEnforce=limits\nPriorityType=priority/multifactor\nPriorityWeightQOS=1000\n"
    "SchedulerType=sched/builtin\n"
)


def row(job: int, qos: str, gpus: int, start: int = 0, limit: str = "00:30:00") -> str:
    times = f"2026-03-01T12:00:00|2026-03-01T12:{start:02d}:00|2026-03-01T12:{start + 10:02d}:00|00:10:00|{limit}"
    return f"{job}|eve|bio|{qos}|batch|COMPLETED|{times}|cpu=1,gres/gpu={gpus},mem=1G,node=1"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two jobs of QOS long that may not run together, and one of QOS short that may."""
    rows = [HEADER, row(1, "long", 2), row(2, "long", 2, start=10), row(3, "short", 2)]
    (tmp_path / "sacct.txt").write_text("\n".join(rows) + "\n")
    (tmp_path / "nodes.txt").write_text(NODES)
    (tmp_path / "qos.txt").write_text(QOS)
    (tmp_path / "slurm.conf").write_text(CONF)
    return tmp_path


def play(folder: Path) -> Run:
    files = [str(folder / name) for name in ("nodes.txt", "qos.txt", "slurm.conf")]
    return hw.simulate(hw.Jobs(str(folder / "sacct.txt"), cluster=files), f"slurm:{folder}/slurm.conf")


def starts(run: Run) -> dict[str, float]:
    table = run.table("jobs")
    return dict(zip(table["name"].to_list(), table["wait_s"].to_list(), strict=True))


def test_a_limit_holds_a_job_back_and_qos_priorities_order_the_rest(folder: Path) -> None:
    run = play(folder)
    assert starts(run) == {"1": 0, "2": 600, "3": 0}
    assert not any("QOS priorities are not in the settings" in note for note in run.notes)


def test_what_is_not_followed_is_named_with_the_jobs_and_the_wait_it_may_concern(folder: Path) -> None:
    run = play(folder)
    line = "not followed: UsageThres=5 of QOS long (no job is held for its usage): may concern 2 jobs, which waited 0 h"
    assert f"{line} in all" in run.notes


def test_a_job_that_ran_beyond_a_limit_had_leave(folder: Path) -> None:
    rows = [HEADER, row(1, "long", 4), row(2, "long", 2, start=10, limit="05:00:00")]
    (folder / "sacct.txt").write_text("\n".join(rows) + "\n")
    run = play(folder)
    assert starts(run) == {"1": 0, "2": 600}, "the limit as it was raised still holds"
    assert "1 job ran beyond limit QOSMaxGRESPerUser@qos:long: raised from 2 GPUs to 4 GPUs" in run.notes
    assert any("QOSMaxWallDurationPerJobLimit@qos:long: raised from " in note for note in run.notes)


def test_a_limit_below_what_was_held_at_once_is_said(folder: Path) -> None:
    rows = [HEADER, *(row(job, "long", 1) for job in range(1, 6)), row(9, "short", 2)]
    (folder / "sacct.txt").write_text("\n".join(rows) + "\n")
    assert any(
        "limit QOSMaxGRESPerUser@qos:long is below what was held at once: 3 of 5 starts of eve in the record went "
        "beyond 2 GPUs, up to 5 GPUs" in note
        for note in play(folder).notes
    )
    (folder / "qos.txt").write_text(QOS.replace("gres/gpu=2", "gres/gpu=5"))
    assert not any("held at once" in note for note in play(folder).notes)


def test_a_loop_among_accounts_is_one_line(folder: Path) -> None:
    (folder / "qos.txt").write_text("Account|ParentName|QOS\na|b|long\nb|a|long\n")
    with pytest.raises(InputError, match="account a is below itself: a under b under a"):
        play(folder)


SCAVENGED = (
    "Name|Priority|Preempt|PreemptMode|GraceTime\nlong|10||requeue|00:00:00\nshort|100|long|cluster|00:00:00\n",
    "PreemptType=preempt/qos\nPreemptMode={}\n",
)


def preempting(folder: Path, mode: str) -> Run:
    """One job on all GPUs, and two minutes later one that preempts it."""
    qos, settings = SCAVENGED
    (folder / "qos.txt").write_text(qos if mode == "REQUEUE" else qos.replace("requeue", "cluster"))
    (folder / "slurm.conf").write_text(CONF + settings.format(mode))
    later = row(2, "short", 8).replace("2026-03-01T12:00:00", "2026-03-01T12:02:00")
    (folder / "sacct.txt").write_text("\n".join([HEADER, row(1, "long", 8), later]) + "\n")
    return play(folder)


def test_a_qos_preempts_as_the_site_says_and_no_note_says_that_it_does_not(folder: Path) -> None:
    run = preempting(folder, "REQUEUE")
    table = run.table("jobs")
    assert table["first_start_s"].to_list() == [0, 120]
    assert table["end_s"].to_list() == [120 + 600 + 600, 720]
    assert table["preemptions"].to_list() == [1, 0]
    assert not any("preempt" in note.lower() for note in run.notes)


def test_suspending_frees_no_gpu_so_that_the_other_job_waits(folder: Path) -> None:
    run = preempting(folder, "SUSPEND,GANG")
    table = run.table("jobs")
    assert table["end_s"].to_list() == [600, 1200]
    assert table["preemptions"].to_list() == [0, 0]
    assert any(
        note.startswith("PreemptMode=SUSPEND of the cluster: a suspended job keeps its GPUs") for note in run.notes
    )

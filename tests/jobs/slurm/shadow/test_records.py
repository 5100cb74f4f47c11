"""What was seen of a Slurm's jobs becomes one record: ends stand, and what was not seen is assumed and counted."""

from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from examples.slurm.site import looks
from headway.errors import TraceError
from headway.jobs.slurm.live.rows import FIELDS, jobs as rows_of_squeue
from headway.jobs.slurm.shadow.looks import row_of
from headway.jobs.slurm.shadow.records import Look, Records, Row, plain, read_dump
from headway.jobs.traces import load
from headway.units import SECOND

HEAD = "JobID|User|Submit|Eligible|Start|End|ElapsedRaw|Timelimit|State|Reason|Priority|ReqTRES|AllocTRES"
START = 1_770_000_000


def line(job: str, state: str, start: int = -1, end: int = -1, elapsed: int = 0, priority: int = 1) -> str:
    times = [str(START + time) if time >= 0 else "Unknown" for time in (start, end)]
    return (
        f"{job}|ada|{START}|{START}|{times[0]}|{times[1]}|{elapsed}|01:00:00|{state}|None|{priority}|cpu=1,gres/gpu=1|"
    )


def dump(folder: Path, name: str, *lines: str) -> Look:
    (folder / name).write_text("\n".join([HEAD, *lines]) + "\n")
    return read_dump(folder / name)


def add(records: Records, look: Look) -> None:
    records.add(records.fresh(look))


def jobs_of(records: Records, folder: Path) -> dict[str, tuple[int, int]]:
    """Return work and how long it has run, in seconds, of each job that the table gives."""
    (folder / "table.txt").write_text(records.table())
    trace = load(folder / "table.txt", "slurm-queue")
    return {job.name: (job.work // SECOND, trace.ran.get(job.name, -SECOND) // SECOND) for job in trace.jobs}


def test_a_job_waits_then_runs_then_has_ended(tmp_path: Path) -> None:
    records = Records()
    add(records, dump(tmp_path, "a", line("1", "PENDING"), line("9", "RUNNING", 0, elapsed=10)))
    assert records.at == (START + 10) * SECOND, "a job that runs tells when the dump was written"
    assert jobs_of(records, tmp_path) == {"1": (3600, 1), "9": (3600, 10)}, "to its limit, as far as is known"
    add(records, dump(tmp_path, "b", line("1", "RUNNING", 20, elapsed=30), line("9", "COMPLETED", 0, 40, 40)))
    assert jobs_of(records, tmp_path) == {"1": (3600, 30), "9": (40, -1)}
    add(records, dump(tmp_path, "c", line("1", "COMPLETED", 20, 80, 60)))
    assert jobs_of(records, tmp_path) == {"1": (60, -1), "9": (40, -1)}
    add(records, dump(tmp_path, "d", line("1", "RUNNING", 20, elapsed=70)))
    assert jobs_of(records, tmp_path)["1"] == (60, -1), "an end stands"


def test_the_priority_is_that_of_the_first_look(tmp_path: Path) -> None:
    records = Records()
    add(records, dump(tmp_path, "a", line("1", "PENDING", priority=5)))
    fresh = records.fresh(dump(tmp_path, "b", line("1", "PENDING", priority=9), line("2", "RUNNING", 0, elapsed=5)))
    records.add(fresh)
    assert records.rows["1", str(START)]["Priority"] == "5"


def whole(at: int, *rows: Row) -> Look:
    return Look((START + at) * SECOND, "slurm", "", [plain(row) for row in rows], whole=True, instants=True)


def row(job: str, state: str, start: int | None = None, submit: int = 0, **more: str) -> Row:
    times = {"Submit": str(START + submit), "Eligible": str(START + submit)}
    times |= {} if start is None else {"Start": str(START + start)}
    return {"JobID": job, "State": state, "Timelimit": "01:00:00", "ReqTRES": "cpu=1,gres/gpu=1", **times, **more}


def test_a_job_that_is_gone_ended_when_it_was_first_missed_until_more_is_known(tmp_path: Path) -> None:
    records = Records()
    add(records, whole(10, row("1", "RUNNING", 0), row("2", "PENDING")))
    add(records, whole(20))
    assert records.unseen == 2
    assert jobs_of(records, tmp_path) == {"1": (20, -1), "2": (20, -1)}
    ended = row("1", "COMPLETED", 0, End=str(START + 14), ElapsedRaw="14")
    add(records, whole(30, ended))
    assert records.unseen == 1
    assert jobs_of(records, tmp_path)["1"] == (14, -1)


def test_a_requeued_job_is_one_job_that_goes_on(tmp_path: Path) -> None:
    records = Records()
    add(records, whole(10, row("1", "RUNNING", 0)))
    add(records, whole(20, row("1", "PENDING", submit=15)))
    assert jobs_of(records, tmp_path) == {"1": (3600, 1)}, "how long the next attempt runs is not known"
    stopped = records.rows["1", str(START)]
    assert (stopped["State"], stopped["End"]) == ("PREEMPTED", str(START + 15)), "when it was submitted again"
    assert records.unseen == 0
    add(records, whole(90, row("1", "COMPLETED", 30, submit=15, End=str(START + 80), ElapsedRaw="50")))
    assert jobs_of(records, tmp_path) == {"1": (50, -1)}


def test_what_did_not_change_is_not_written_again() -> None:
    records = Records()
    running = row("1", "RUNNING", 0, Priority="4", ElapsedRaw="10", End=str(START + 3600))
    add(records, whole(10, running, row("2", "PENDING", Reason="Priority")))
    fresh = records.fresh(
        whole(70, {**running, "ElapsedRaw": "70", "Priority": "8"}, row("2", "PENDING", Reason="Resources"))
    )
    assert [each["JobID"] for each in fresh.rows] == ["2"]
    records.add(fresh)
    add(records, whole(100, running, row("2", "PENDING", Reason="Resources")))
    assert records.causes() == {"2": "Resources"}, "what it waited for longest"


def test_tasks_of_an_array_that_wait_are_jobs_of_their_own(tmp_path: Path) -> None:
    records = Records()
    add(records, dump(tmp_path, "a", line("7_[1-3%2]", "PENDING"), line("9", "RUNNING", 0, elapsed=5)))
    assert set(jobs_of(records, tmp_path)) == {"7_1", "7_2", "7_3", "9"}


def test_a_job_that_is_not_eligible_has_not_arrived(tmp_path: Path) -> None:
    records = Records()
    held = line("1", "PENDING").replace(f"|{START}|{START}|", f"|{START}|Unknown|")
    add(records, dump(tmp_path, "a", held, line("9", "RUNNING", 0, elapsed=5)))
    assert set(jobs_of(records, tmp_path)) == {"9"}


def test_dumps_in_the_wrong_order_and_of_another_clock_are_refused(tmp_path: Path) -> None:
    records = Records()
    add(records, dump(tmp_path, "late", line("1", "RUNNING", 0, elapsed=500)))
    with pytest.raises(TraceError, match=r"dump early: is of .*, before the last one, .*: give dumps in the order"):
        records.fresh(dump(tmp_path, "early", line("1", "RUNNING", 0, elapsed=100)))
    wall = line("1", "RUNNING", 0, elapsed=900).replace(str(START), "2026-02-02T02:40:00")
    with pytest.raises(TraceError, match="dump wall: has times by the clock on the wall, those before by seconds"):
        records.fresh(dump(tmp_path, "wall", wall))


def test_a_row_of_squeue_is_one_of_sacct(tmp_path: Path) -> None:
    cells = dict.fromkeys(FIELDS, "") | {
        "JobID": "12",
        "ArrayJobID": "12",
        "ArrayTaskID": "4",
        "State": "RUNNING",
        "Reason": "None",
        "UserName": "ada",
        "Account": "bio",
        "Partition": "batch",
        "QOS": "normal",
        "PriorityLong": "77",
        "SubmitTime": "2026-03-01T00:00:00",
        "EligibleTime": "2026-03-01T00:00:05",
        "TimeLimit": "1-00:00:00",
        "StartTime": "2026-03-01T00:01:00",
        "EndTime": "2026-03-02T00:01:00",
        "NodeList": "n[1-2]",
        "NumNodes": "2",
        "NumCPUs": "16",
        "tres-alloc": "cpu=16,mem=64G,node=2,gres/gpu=4,gres/gpu:a100=4",
        "tres-per-node": "gres:gpu:2",
    }
    (job,) = rows_of_squeue("".join(f"{value}#" for value in cells.values()), "#")
    made = plain(row_of(job))
    assert made["JobID"] == "12_4"
    assert made["AllocTRES"] == "cpu=16,mem=65536M,node=2,gres/gpu:a100=4,gres/gpu=4"
    assert made["Timelimit"] == "1-00:00:00"
    assert made["Submit"] == "1772323200"
    assert "End" not in made, "of a job that runs it is a forecast"
    assert "ReqTRES" not in made, "what it asked for was seen while it waited"
    records = Records()
    add(records, Look(1_772_323_300 * SECOND, "slurm", "", [made], whole=True, instants=True))
    (tmp_path / "table.txt").write_text(records.table())
    (read,) = load(tmp_path / "table.txt", "slurm-queue").jobs
    assert (read.gpus, read.nodes, read.gpu_types) == (4, 2, ()), "it got a100s, and insisted on none"


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(1, 50)), min_size=1, max_size=8), st.data()
)
def test_whatever_the_looks_the_last_one_leaves_the_record(
    tmp_path_factory: pytest.TempPathFactory, spans: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("looks")
    rows = []
    for number, (submit, wait, ran) in enumerate(spans):
        times = [f"2026-03-01T00:{t // 60:02}:{t % 60:02}" for t in (submit, submit + wait, submit + wait + ran)]
        cells = (str(number), "ada", times[0], times[0], times[1], times[2], f"00:00:{ran:02}", "01:00:00", "COMPLETED")
        rows.append("|".join((*cells, "None", "1", "cpu=1,gres/gpu=1", "cpu=1,gres/gpu=1", "n1")))
    head = HEAD.replace("ElapsedRaw", "Elapsed") + "|NodeList"
    (folder / "sacct.txt").write_text("\n".join([head, *rows]) + "\n")
    records = Records()
    for path in looks.write(folder / "sacct.txt", folder / "looks", data.draw(st.integers(1, 6))):
        if len(path.read_text().splitlines()) > 1:
            add(records, read_dump(path))
    (folder / "table.txt").write_text(records.table())
    assert load(folder / "table.txt", "slurm-queue").jobs == load(folder / "sacct.txt", "slurm").jobs

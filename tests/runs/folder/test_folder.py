"""The folder of a run: one run writes it, nothing else is written there, and what is read is what was written."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headway.cli import main
from headway.core import tape as tapes
from headway.core.tape import FINAL_NAME, STREAM_NAME
from headway.errors import TapeError
from headway.runs.folder.folder import CLAIM_NAME, EXPERIMENT_NAME, RESULT_NAME, check_folder, claimed, scale_name

JOBS = "submit_s,work_s,gpus\n" + "".join(f"{30 * i},{100 + 37 * i % 400},{1 + i % 3}\n" for i in range(20))
FLAGS = ("jobs.csv", "--nodes", "2", "--gpus-per-node", "4")
FLEET = ("compass", "--workers", "2", "--rate", "2", "--requests", "30")
GPU = ("vgg16", "resnet101-b64", "--seconds", "0.01")
SCALES = {"jobs": FLAGS, "fleet": FLEET, "gpu": GPU}
EXPERIMENT = 'scale = "jobs"\ntrace.path = "jobs.csv"\ncluster = {nodes = 2, gpus_per_node = 4}\n'
HOLDER = """
import sys, time
from pathlib import Path
from headway.runs.folder.folder import claimed
with claimed(Path(sys.argv[1])):
    print("mine", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "jobs.csv").write_text(JOBS)
    (tmp_path / "one.toml").write_text(EXPERIMENT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(params=SCALES)
def run(request: pytest.FixtureRequest, here: Path) -> Path:
    """A finished run of each scale."""
    status(request.param, "simulate", *SCALES[request.param], "--out", "runs/a")
    return here / "runs" / "a"


def status(*arguments: object) -> int:
    """What a command exits with."""
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def line(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line of a command that is refused."""
    capsys.readouterr()
    assert status(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err.removeprefix("headway: ").rstrip()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# --- one run writes it --------------------------------------------------------------------------------------------


def test_a_second_run_is_refused_before_it_writes_anything(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = here / "runs" / "a"
    with claimed(folder):
        said = line(capsys, "jobs", "simulate", *FLAGS, "--out", folder)
        assert said.startswith(f"run folder {folder}: another run is being written to it: choose another folder")
        assert [path.name for path in folder.iterdir()] == [CLAIM_NAME]
    assert not folder.exists()  # nothing came of it


def test_a_run_in_another_process_keeps_its_folder_and_a_killed_one_locks_nobody_out(here: Path) -> None:
    folder = here / "runs"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, folder], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "mine\n"
        with pytest.raises(TapeError, match="another run is being written to it"), claimed(folder):
            pass
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    assert (folder / CLAIM_NAME).exists()  # it could not clear up
    check_folder(folder)
    assert status("jobs", "simulate", *FLAGS, "--out", folder) == 0
    assert not (folder / CLAIM_NAME).exists()
    assert status("audit", folder) == 0


def test_an_empty_folder_may_be_used_and_another_may_not(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "empty").mkdir()
    assert status("jobs", "simulate", *FLAGS, "--out", "empty") == 0
    assert "already holds a run" in line(capsys, "jobs", "simulate", *FLAGS, "--out", "empty")
    assert "is the folder of a run" in line(capsys, "jobs", "simulate", *FLAGS, "--out", "empty/inside")
    (here / "mine").mkdir()
    (here / "mine" / "notes.txt").write_text("notes")
    assert "already holds files" in line(capsys, "jobs", "simulate", *FLAGS, "--out", "mine")
    assert contents(here / "mine") == {"notes.txt": b"notes"}


def test_a_run_that_cannot_begin_leaves_no_folder(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line(capsys, "jobs", "simulate", "none.csv", "--nodes", "2", "--gpus-per-node", "4", "--out", "runs/deep/a")
    assert not (here / "runs").exists()


# --- nothing else is written there --------------------------------------------------------------------------------


def test_no_output_goes_into_the_folder_of_a_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(run)
    for arguments in (
        ("export", run, "--parquet", run, "--force"),
        ("export", run, "--csv", run / "tables"),
        ("export", run, "--perfetto", run / "t.json", "--force"),
        ("report", run, "-o", run / "page.html", "--force"),
        ("trace", "convert", "jobs.csv", run / "jobs.parquet", "--force"),
        ("jobs", "simulate", *FLAGS, "--out", "runs/b", "--report", "runs/b/page.html"),
        ("fleet", "simulate", *FLEET, "--out", "runs/b", "--report", "runs/b/page.html"),
        ("gpu", "simulate", *GPU, "--out", "runs/b", "--report", "runs/b/page.html"),
        ("run", "one.toml", "--out", "runs/b", "--report", "runs/b/page.html"),
        ("jobs", "sweep", *FLAGS, "--policies", "fifo", "-o", run / "sweep"),
    ):
        assert "is the folder of a run, where nothing else is written" in line(capsys, *arguments), arguments
    several = ("jobs", "compare", *FLAGS, "--policies", "fifo,srtf", "--out", "runs/b")
    assert "there is no folder runs/b/fifo" in line(capsys, *several, "--picture", "runs/b/fifo/x.svg")
    assert contents(run) == before
    assert not (run.parent / "b").exists()


def test_a_what_if_does_not_go_into_the_folder_of_a_run(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status("jobs", "simulate", *FLAGS, "--out", "a")
    assert "is the folder of a run" in line(capsys, "whatif", "a", "--at", "50%", "--load", "2", "--out", "a/later")
    assert "already holds a run" in line(capsys, "whatif", "a", "--at", "50%", "--load", "2", "--out", "a")


def test_exported_tables_may_be_written_over_again(run: Path) -> None:
    for flags in ((), ("--force",)):
        assert status("export", run, "--parquet", "tables", *flags) == 0


# --- what is read is what was written -----------------------------------------------------------------------------

LOOKS = (
    ("report", "{run}", "-o", "page.html"),
    ("export", "{run}", "--csv", "tables"),
    ("story", "{run}", "{subject}"),
    ("audit", "{run}"),
    ("replay", "{run}"),
)
LOOKS_AT_JOBS = (("explain", "{run}", "3"), ("whatif", "{run}", "--at", "50%", "--load", "2"))


def subject(run: Path) -> str:
    """Something that a story can be told of: a job, a request, or a program."""
    return "vgg16" if scale_name(run) == "gpu" else "3"


def looks(run: Path) -> list[list[str]]:
    """Every command that opens a run of this scale."""
    of_jobs = LOOKS_AT_JOBS if scale_name(run) == "jobs" else ()
    return [[part.format(run=run, subject=subject(run)) for part in arguments] for arguments in (*LOOKS, *of_jobs)]


def rewritten(run: Path, rows: np.ndarray) -> None:
    """Put other rows where the tape is."""
    (run / FINAL_NAME).unlink()
    writer = tapes.TapeWriter(run.parent / "other")
    for row in rows.tolist():
        writer.append(tuple(row))
    writer.close()
    shutil.move(run.parent / "other" / FINAL_NAME, run / FINAL_NAME)


def test_every_command_that_opens_a_run_checks_the_digest(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rewritten(run, tapes.read(run).rows[:-1])
    for arguments in looks(run):
        said = line(capsys, *arguments)
        assert f"the tape is not the one that {RESULT_NAME} is about" in said, arguments
    shutil.copytree(run, run.parent / "seed-0")
    assert "the tape is not the one" in line(capsys, "report", run.parent, "-o", "page.html")


@pytest.mark.parametrize("result", ["{}", '{"digest": 3, "stopped": false}', "[1]", "{"])
def test_a_result_that_says_nothing_of_a_tape_is_not_believed(
    run: Path, result: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / RESULT_NAME).write_text(result)
    assert RESULT_NAME in line(capsys, "audit", run)


def test_a_run_that_was_killed_still_opens_as_unfinished(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / RESULT_NAME).unlink()
    rewritten(run, tapes.read(run).rows[:-5])
    assert status("audit", run) == 0
    assert "the run is not complete: it was cut short at " in capsys.readouterr().err
    assert status("story", run, subject(run)) == 0
    assert status("export", run, "--csv", "tables") == 0
    assert status("report", run, "-o", "page.html") == 0


def test_replay_notices_that_the_last_row_is_gone_where_the_result_was_made_to_fit(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rewritten(run, tapes.read(run).rows[:-1])
    result = json.loads((run / RESULT_NAME).read_bytes())
    (run / RESULT_NAME).write_text(json.dumps({**result, "digest": tapes.read(run).digest}))
    capsys.readouterr()
    assert status("replay", run) != 0
    assert "identical" not in capsys.readouterr().out


def test_a_torn_or_foreign_tape_is_one_line(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = (run / FINAL_NAME).read_bytes()
    (run / RESULT_NAME).unlink()
    pq.write_table(pa.table({"time_ns": [1], "kind": ["arrived"], "job": ["a"]}), run.parent / "tape.parquet")
    exported = (run.parent / "tape.parquet").read_bytes()
    (run.parent / "tape.parquet").unlink()
    for content in (whole[: len(whole) // 2], whole[:-4], b"", b"PAR1", exported):
        (run / FINAL_NAME).write_bytes(content)
        for arguments in looks(run):
            assert "the tape cannot be read" in line(capsys, *arguments), arguments


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [("subject", 10**6, "subject"), ("place", 999, "place"), ("kind", 63, "kind"), ("time", -1, "time")],
)
def test_a_tape_of_another_workload_is_one_line(
    run: Path, column: str, value: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / RESULT_NAME).unlink()
    rows = tapes.read(run).rows.copy()
    rows[:, tapes.COLUMNS.index(column)] = value
    rewritten(run, rows)
    for arguments in looks(run):
        assert f"the tape is not of the workload beside it: the {said} of row" in line(capsys, *arguments), arguments


def test_a_tape_whose_rows_are_in_disorder_is_no_internal_error(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / RESULT_NAME).unlink()
    rows = tapes.read(run).rows.copy()
    rows[:, 1:] = rows[np.random.default_rng(0).permutation(len(rows)), 1:]
    rewritten(run, rows)
    for arguments in looks(run):
        capsys.readouterr()
        code, err = status(*arguments), capsys.readouterr().err
        assert "internal error" not in err, arguments
        assert code == 1 or err.count("\n") <= 2, arguments
    assert status("audit", run) == 1


def test_a_swapped_tape_is_one_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for policy in ("fifo", "srtf"):
        status("jobs", "simulate", *FLAGS, "--policy", policy, "--out", policy)
    shutil.copy(here / "srtf" / FINAL_NAME, here / "fifo" / FINAL_NAME)
    assert "the tape is not the one" in line(capsys, "report", "fifo", "-o", "page.html")
    assert not (here / "page.html").exists()


# --- where a report looks for runs --------------------------------------------------------------------------------


def test_a_report_looks_two_folders_deep_and_follows_no_link(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status("jobs", "simulate", *FLAGS, "--out", "far/off/deep/down/a")
    (here / "linked").mkdir()
    (here / "linked" / "a").symlink_to(here / "far" / "off" / "deep" / "down" / "a")
    (here / "linked" / "loop").symlink_to(here / "linked")
    for folder in ("far", "linked"):
        assert f"run folder {folder} holds no run, and neither do the folders in it" in line(capsys, "report", folder)
        assert f"{folder} holds no run" in line(capsys, "audit", folder)
    assert status("report", "far/off/deep", "-o", "page.html") == 0
    assert EXPERIMENT_NAME in contents(here / "far" / "off" / "deep" / "down" / "a")
    assert STREAM_NAME not in contents(here / "far" / "off" / "deep" / "down" / "a")

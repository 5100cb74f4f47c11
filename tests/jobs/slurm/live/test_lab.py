"""A queue on a real Slurm: what users, nodes, the controller and other headways do to it."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.slurm_lab import SlurmLab
from headway.cli import main
from headway.errors import QueueError, SlurmAwayError
from headway.jobs.model.rows import Kind
from headway.jobs.slurm.live.client import SlurmClient
from headway.jobs.slurm.live.commands import Slurm
from headway.jobs.slurm.live.ground import SlurmGround, release_all
from headway.jobs.slurm.live.rows import JobRow
from headway.jobs.slurm.live.tag import GIVEN_BACK, lock_of
from tests.jobs.slurm.live.labs import AsNobody, SlurmBench, needs_slurm

pytestmark = needs_slurm
SAVER = """
import os, signal, sys, time
if os.environ["HEADWAY_STARTED_AGAIN"] == "1":
    sys.exit(print("again", len(os.environ["SLURM_JOB_NODELIST"].split(","))))
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
print("ready", flush=True)
while not stop: time.sleep(0.005)
print("saved", flush=True)
sys.exit(85)
"""
ODD = ("a'b", 'c"d', "$(touch /tmp/never)", "e;f", "g\nh", "ü", "%j", "")


def test_a_program_gets_its_arguments_as_they_are_and_its_status_comes_back(bench: SlurmBench) -> None:
    show = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['CUDA_VISIBLE_DEVICES']])); sys.exit(3)"
    bench.python(show, *ODD, gpus=2, name="odd 'name';$(x)")
    bench.python("print('fine')", gpus=0)
    bench.over()
    words, devices = json.loads(bench.out(0))
    assert tuple(words) == ODD
    assert len(devices.split(",")) == 2, "Slurm says which GPUs of the node they are"
    assert bench.out(1) == "fine\n"
    assert bench.ends() == {0: "failed", 1: "finished"}


def test_a_preempted_program_saves_waits_in_slurm_and_goes_on(srtf: SlurmBench) -> None:
    srtf.python(SAVER, gpus=4, estimate=10**13, cpus=2)
    srtf.said(0, "ready")
    others = [srtf.python("import time; time.sleep(3)", gpus=4, estimate=10**9) for _ in range(2)]
    srtf.until_state(0, "PENDING")
    assert srtf.of(0).held, "it waits as Slurm understands it"
    assert srtf.of(0).restarts == 1
    srtf.over()
    assert srtf.ends() == dict.fromkeys((0, *others), "finished")
    assert srtf.count(Kind.PREEMPT, 0) == 1
    assert srtf.out(0) == "ready\nsaved\nagain 1\n"


def test_one_that_does_not_save_is_killed_after_its_grace_period(srtf: SlurmBench) -> None:
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"
    srtf.python(deaf, gpus=4, estimate=10**13, grace_s=0.5)
    srtf.said(0, "ready")
    for _ in range(2):
        srtf.python("import time; time.sleep(0.5)", gpus=4, estimate=10**9)
    srtf.until(lambda: len(srtf.ends()) == 2)
    srtf.queue.cancel(0)
    srtf.over()
    assert srtf.ends()[0] == "cancelled"
    assert any("grace period" in lease.told for lease in srtf.past.leases)


def test_what_users_cancel_is_cancelled_on_both_sides(bench: SlurmBench) -> None:
    wait = "import time; print('ready', flush=True); time.sleep(600)"
    for _ in range(4):
        bench.python(wait, gpus=4)
    bench.said(0, "ready")
    bench.said(1, "ready")
    bench.queue.cancel(0)  # one that runs, and one that waits, by the queue
    bench.queue.cancel(2)
    bench.until(lambda: bench.of(0).state == bench.of(2).state == "CANCELLED")
    bench.said(3, "ready")
    bench.client.cancel(bench.queue.programs[1].slurm)  # and by Slurm
    bench.client.cancel(bench.queue.programs[3].slurm)
    bench.over()
    assert set(bench.ends().values()) == {"cancelled"}


def test_users_submit_to_slurm_and_are_told_what_is_possible(bench: SlurmBench) -> None:
    tagged = ("--hold", "--comment=headway", "--gres=gpu:4", "--time=1", "-c", "3")
    own = int(bench.lab.submit(*tagged, seconds=1))
    keeps = int(bench.lab.submit(*tagged, "--no-requeue", seconds=1))
    array = int(bench.lab.submit(*tagged, "--array=1-2", seconds=1))
    large = int(bench.lab.submit(*tagged, "--exclude=n2", "--nodes=1", "--mem=1", "-N", "1", seconds=1))
    bench.until(lambda: len(bench.queue.jobs) == 3)
    bench.until(lambda: "array" in bench.row(array).comment)
    assert bench.row(array).held, "it is left as it was"
    jobs = bench.queue.jobs
    assert [(job.gpus, job.cpu_milli, job.nodes, job.estimate) for job in jobs] == [(4, 3000, 1, 60 * 10**9)] * 3
    assert [job.preemptible for job in jobs] == [True, False, True]
    bench.over()
    assert [bench.row(number).state for number in (own, keeps, large)] == ["COMPLETED"] * 3
    assert bench.ends() == dict.fromkeys(range(3), "finished")


def test_jobs_without_the_tag_are_left_alone_and_keep_their_nodes(bench: SlurmBench) -> None:
    other = int(bench.lab.submit("--gres=gpu:1", "--nodelist=n1", "--comment=mine", seconds=600))
    held = int(bench.lab.submit("--gres=gpu:1", "--hold", seconds=600))
    bench.until(lambda: bench.row(other).runs)
    before = [bench.lab.run("scontrol", "show", "job", "-o", str(held)).replace("\n", ""), bench.row(other)]
    bench.until(lambda: not bench.queue.state.pool.schedulable & 1, "n1 is theirs")
    for _ in range(3):
        bench.python("import time; time.sleep(0.3)", gpus=4)
    waits = int(bench.lab.submit("--gres=gpu:4", seconds=1))
    bench.over()
    assert {row.nodes for row in (bench.of(job) for job in range(3))} == {("n2",)}
    assert [bench.lab.run("scontrol", "show", "job", "-o", str(held)).replace("\n", ""), bench.row(other)] == before
    bench.until(lambda: bench.row(waits).state == "COMPLETED")
    status = bench.queue.status()["slurm"]
    assert status["untagged_delayed_jobs"] <= 1
    assert (status["untagged_delay_s"] > 0) == (status["untagged_delayed_jobs"] == 1)


def test_a_tag_that_another_user_writes_is_not_heard(bench: SlurmBench) -> None:
    bench.python("import time; print('ready', flush=True); time.sleep(2); print('end')", gpus=4)
    bench.said(0, "ready")
    forged = int(bench.lab.submit("--hold", f"--comment={bench.of(0).comment}", "--uid=nobody", seconds=600))
    bench.over()
    assert bench.out(0) == "ready\nend\n"
    assert bench.ends() == {0: "finished"}
    assert bench.row(forged).held


def test_a_release_that_slurm_does_not_follow_is_taken_back_and_counted(bench: SlurmBench) -> None:
    bench.lab.run("scontrol", "update", "PartitionName=batch", "State=DOWN")
    try:
        bench.python("print('fine')")
        bench.until(lambda: bench.queue.status()["slurm"]["held_again"] == 1)
    finally:
        bench.lab.run("scontrol", "update", "PartitionName=batch", "State=UP")
    bench.over()
    assert bench.ends() == {0: "finished"}


def test_a_killed_node_costs_its_jobs_no_attempt(bench: SlurmBench) -> None:
    wait = "import os, time\nprint('ready', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.05)"
    bench.python(wait, gpus=4)
    bench.said(0, "ready")
    (node,) = bench.of(0).nodes
    bench.lab.kill(node)
    bench.lab.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=killed")  # or after its timeout
    try:
        bench.until(lambda: bench.of(0).runs and bench.of(0).nodes not in ((), (node,)), "it runs elsewhere")
    finally:
        bench.lab.start(node)
        bench.lab.resume(node)
    (bench.folder / "go").touch()
    bench.over()
    assert bench.ends() == {0: "finished"}
    assert (bench.count(Kind.EVICTED, 0), bench.count(Kind.FAILED, 0)) == (1, 0)


@pytest.mark.parametrize("when", ["it waits", "it runs", "it has ended"])
def test_a_queue_that_was_killed_finds_its_jobs(bench: SlurmBench, when: str) -> None:
    bench.python("import time; print('ready', flush=True); time.sleep(2)", gpus=4)
    for _ in range(2):
        bench.python("print('ready', flush=True)", gpus=4)
    if when == "it runs":
        bench.said(0, "ready")
    if when == "it has ended":
        while not bench.of(0).ended:
            time.sleep(0.1)
    bench.again()
    bench.over()
    assert bench.ends() == dict.fromkeys(range(3), "finished")
    assert [bench.out(job) for job in range(3)] == ["ready\n"] * 3


def test_a_controller_that_is_away_is_waited_for(bench: SlurmBench) -> None:
    wait = "import os, time\nprint('ready', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.05)\nprint('end')"
    bench.python(wait, gpus=4)
    bench.said(0, "ready")
    time.sleep(6)  # it writes its state down every five seconds
    bench.lab.kill("slurmctld")
    bench.until(lambda: bool(bench.queue.status()["slurm"]["away"]))
    (bench.folder / "go").touch()
    with pytest.raises(SlurmAwayError, match="does not answer"):
        bench.python("print('never')")
    bench.lab.start("slurmctld")
    bench.until(lambda: not bench.queue.status()["slurm"]["away"])
    bench.python("print('fine')", gpus=4)
    bench.over()
    assert bench.ends() == dict.fromkeys(range(2), "finished")
    assert bench.out(0) == "ready\nend\n"


def test_jobs_are_given_back_in_their_order(bench: SlurmBench, monkeypatch: pytest.MonkeyPatch) -> None:
    wait = "import time; print('ready', flush=True); time.sleep(600)"
    for _ in range(2):
        bench.python(wait, gpus=4)
    later = [bench.python(wait, gpus=4) for _ in range(3)]
    bench.said(0, "ready")
    bench.said(1, "ready")
    for name, value in bench.lab.environment.items():
        monkeypatch.setenv(name, value)
    given = release_all(bench.place, bench.log.append)
    assert [each.job for each in given] == later
    assert not any(each.problem for each in given)
    rows = [bench.of(job) for job in later]
    assert all(row.waits and not row.held and not row.wanted_nodes for row in rows)
    assert [row.priority for row in rows] == sorted((row.priority for row in rows), reverse=True)
    assert len({row.priority for row in rows}) == 3
    assert {bench.of(job).comment for job in range(5)} == {GIVEN_BACK}
    assert bench.of(0).runs, "what runs goes on"
    bench.again()
    bench.over()
    assert set(bench.ends().values()) == {"cancelled"}, "they are none of the queue's any more"
    assert bench.of(0).runs


def test_jobs_of_one_look_are_taken_as_they_were_submitted(bench: SlurmBench) -> None:
    names = ["a", "b", "c", "d"]
    numbers = [int(bench.lab.submit("--hold", "--comment=headway", "-J", name, seconds=0.1)) for name in names]
    bench.until(lambda: len(bench.queue.jobs) == 4)
    assert [job.name for job in bench.queue.jobs] == names
    assert [program.slurm for program in bench.queue.programs] == numbers
    bench.over()


@pytest.mark.parametrize("forgotten", [False, True])
def test_what_was_given_back_and_ended_meanwhile_is_not_run_again(
    bench: SlurmBench, monkeypatch: pytest.MonkeyPatch, forgotten: bool
) -> None:
    external = int(bench.lab.submit("--hold", "--comment=headway", "--gres=gpu:4", "-w", "n1", seconds=3))
    bench.until(lambda: len(bench.queue.jobs) == 1 and bench.of(0).state == "RUNNING")
    code = "import sys, time; open(sys.argv[1], 'a').write('x'); time.sleep(3 * (sys.argv[1] == 'runs')); {}"
    bench.python(code.format("print('end')"), "runs", gpus=4)
    bench.python(code.format("print('end')"), "waits", gpus=8, nodes=2)
    bench.python(code.format("sys.exit(3)"), "fails", gpus=8, nodes=2, retries=2)
    bench.until(lambda: (bench.folder / "runs").exists())
    for name, value in bench.lab.environment.items():
        monkeypatch.setenv(name, value)
    assert [each.problem for each in release_all(bench.place, bench.log.append)] == ["", ""]
    rows = [external, *(program.slurm for program in bench.queue.programs[1:])]
    end = time.monotonic() + bench.within_s
    while not all(bench.row(number).ended for number in rows):
        assert time.monotonic() < end, [bench.row(number) for number in rows]
        time.sleep(0.1)
    assert [bench.row(number).state for number in rows] == ["COMPLETED", "COMPLETED", "COMPLETED", "FAILED"]
    if forgotten:
        jobs = bench.client.jobs
        monkeypatch.setattr(bench.client, "jobs", lambda: [row for row in jobs() if not row.ended])
    bench.again()
    bench.over()
    assert [(bench.folder / name).read_text() for name in ("runs", "waits", "fails")] == ["x"] * 3
    assert bench.ends() == {0: "failed" if forgotten else "finished", 1: "finished", 2: "finished", 3: "cancelled"}


def test_two_headways_exclude_each_other(bench: SlurmBench) -> None:
    second = SlurmGround("", bench.log.append, bench.client)
    with pytest.raises(QueueError, match="another headway drives jobs of this Slurm: root on"), second.held():
        pass
    bench.held.__exit__(None, None, None)
    with second.held():
        bench.until(lambda: bench.queue.broken)
        assert "another headway" in bench.queue.failure
    bench.held = bench.ground.held()  # what the fixture ends
    bench.held.__enter__()


def test_without_a_slurm_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SlurmAwayError, match=r"does not answer.*SLURM_CONF"):
        Slurm({**os.environ, "SLURM_CONF": "/nowhere/slurm.conf"}, timeout_s=2).run("squeue")
    command = [sys.executable, "-m", "headway", "queue", "start", "--engine", "slurm", "--folder", str(tmp_path / "q")]
    done = subprocess.run(command, env={**os.environ, "PATH": "/nowhere"}, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "not installed, or not on the PATH" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_queue_whose_folder_was_deleted_ends_and_leaves_jobs_as_they_are(tmp_path: Path, lab: SlurmLab) -> None:
    folder, client = tmp_path / "q", SlurmClient(Slurm(lab.environment))
    command = [sys.executable, "-m", "headway", "queue", "start", "--engine", "slurm", "--folder", str(folder)]
    subprocess.run(command, env=lab.environment, check=True, capture_output=True)
    numbers = [int(lab.submit("--hold", "--comment=headway", "--gres=gpu:4", seconds=600)) for _ in range(3)]

    def rows() -> dict[int, JobRow]:
        return {row.id: row for row in client.jobs() if not row.ended}

    def until(met: Callable[[], bool]) -> None:
        end = time.monotonic() + 60
        while not met():
            assert time.monotonic() < end, rows()
            time.sleep(0.2)

    until(lambda: [rows()[number].state for number in numbers] == ["RUNNING", "RUNNING", "PENDING"])
    assert any(lock_of(row.comment) for row in rows().values())
    shutil.rmtree(folder)
    until(lambda: set(rows()) == set(numbers))
    assert not folder.exists()
    assert [rows()[number].state for number in numbers] == ["RUNNING", "RUNNING", "PENDING"]
    assert rows()[numbers[2]].held
    lab.run("scancel", *map(str, numbers))
    until(lambda: not rows())


def test_a_user_without_rights_drives_own_jobs_and_leaves_those_of_others(tmp_path: Path, lab: SlurmLab) -> None:
    bench = SlurmBench(tmp_path, lab, kind=AsNobody)
    other = int(lab.submit("--hold", "--comment=headway", seconds=1))
    own = int(lab.submit("--hold", "--comment=headway", "--uid=nobody", seconds=1))
    bench.until(lambda: len(bench.queue.jobs) == 1)
    bench.over()
    assert (bench.row(other).held, bench.row(other).comment) == (True, "headway")
    assert bench.row(own).state == "COMPLETED"
    assert bench.ends() == {0: "finished"}
    assert f"Slurm's job {other} of root is left alone: this user may not change it" in bench.log
    bench.close()


def test_the_commands_from_a_start_to_giving_back(
    tmp_path: Path, lab: SlurmLab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def call(*words: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["queue", *words[:1], "--folder", str(tmp_path / "q"), *words[1:]])
        out, err = capsys.readouterr()
        assert not ended.value.code or words[0] == "logs", err
        return out + err

    for name, value in lab.environment.items():
        monkeypatch.setenv(name, value)
    assert "8 GPUs, run 1" in call("start", "--engine", "slurm")
    assert call("submit", "--gpus", "8", "--nodes", "2", "--", "sleep", "600") == "0\n"
    assert call("submit", "--gpus", "4", "--", "sleep", "600") == "1\n"
    number = lab.submit("--hold", "--comment=headway", "--gres=gpu:4", seconds=600)
    end = time.monotonic() + 60
    while len(json.loads(call("list", "--json"))) < 3 and time.monotonic() < end:
        time.sleep(0.1)
    assert f"scontrol show job {number}" in call("logs", "2")
    call("stop")
    given = call("release-all").splitlines()
    assert [line.split(",")[0] for line in given[:2]] == ["job 1", "job 2"]
    assert all("released" in line for line in given[:2])
    assert given[-1] == "2 jobs given back to Slurm"
    lab.run("scancel", *lab.run("squeue", "-h", "-o", "%A").split())
    assert " on n1 (4 GPUs), n2 (4 GPUs)" in (tmp_path / "q" / "queue.log").read_text()

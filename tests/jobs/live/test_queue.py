"""A queue with real programs: how they start and end, what they are given, and what the tape says of it."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.device import processes
from headway.errors import QueueError
from headway.jobs.live.engine import SAVED, Order
from headway.jobs.live.local.engine import LocalEngine
from headway.jobs.live.store import Program
from headway.jobs.model.events import Woke
from headway.jobs.model.rows import Kind
from headway.runs.distance import distance
from headway.runs.folder.folder import open_run
from headway.runs.result import Run
from headway.units import SECOND
from tests.jobs.live.queues import Bench

NASTY = (
    "a b",
    "it's",
    'say "x"',
    "new\nline",
    "; rm -rf nothing",
    "$(touch made)",
    "`touch made`",
    "*",
    "é",
    "",
    "--",
    "\\",
)
ECHO = "import json, sys; print(json.dumps(sys.argv[1:]))"
SAVER = f"""
import signal, sys, time
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
print("ready", flush=True)
while not stop: time.sleep(0.005)
print("saved", flush=True)
sys.exit({SAVED})
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
while True: time.sleep(1)
"""
FAMILY = """
import os, signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True, env={})
print("child", child.pid, "me", os.getpid(), "ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A queue with four slots."""
    made = Bench(tmp_path)
    yield made
    made.queue.stop(kill=True, at_once=True)
    made.until(lambda: made.queue.idle)
    made.check()


def test_arguments_and_paths_reach_the_program_unchanged_and_no_shell(bench: Bench, tmp_path: Path) -> None:
    odd = tmp_path / "a 'b' $(touch made)\n;"
    odd.mkdir()
    bench.folder = odd
    job = bench.python(ECHO, *NASTY, name='it\'s $(x); "y"')
    bench.over()
    assert json.loads(bench.out(job)) == list(NASTY)
    assert not list(tmp_path.rglob("made"))
    assert bench.past.jobs[job].name == 'it\'s $(x); "y"'


def test_a_program_is_told_its_gpus_and_its_lease(bench: Bench) -> None:
    code = "import os; print(*(os.environ[each] for each in ('CUDA_VISIBLE_DEVICES', 'HEADWAY_JOB', 'HEADWAY_LEASE')))"
    bench.python(code, gpus=2)
    bench.python(code, gpus=0, cpus=1)
    bench.over()
    assert bench.out(0).split(" ") == ["0,1", "0", "1\n"]
    assert bench.out(1).split(" ") == ["", "1", "2\n"]


def test_a_program_runs_on_as_many_cpus_as_it_holds(bench: Bench) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one CPU, as a GPU would not help")
    bench.python("import os; print(len(os.sched_getaffinity(0)))", cpus=1)
    bench.over()
    assert bench.out(0) == "1\n"


def test_how_a_program_ends_is_how_its_job_ends(bench: Bench) -> None:
    bench.python("pass")
    bench.python("import sys; sys.exit(3)")
    bench.python("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", retries=2)
    bench.submit("/no/such/program")
    bench.over()
    assert bench.ends() == {0: "finished", 1: "failed", 2: "failed", 3: "failed"}
    told = {lease.order.job: lease.told for lease in bench.past.leases}
    assert told == {0: "exit status 0", 1: "exit status 3", 2: "signal 9", 3: "/no/such/program is not there"}
    assert bench.count(Kind.START, 2) == 3


def test_a_job_that_can_never_run_is_refused_in_one_line(bench: Bench) -> None:
    with pytest.raises(QueueError, match=r"can never run here: it wants 5 GPUs"):
        bench.python("pass", gpus=5)
    with pytest.raises(QueueError, match="can never run here: it wants 100000 CPUs"):
        bench.python("pass", cpus=100_000)
    with pytest.raises(QueueError, match="a share never spans devices"):
        bench.python("pass", gpus=2, gpu_milli=500)
    with pytest.raises(QueueError, match="no program"):
        bench.submit()
    with pytest.raises(QueueError, match="zero bytes"):
        bench.submit("echo", "\0")
    with pytest.raises(QueueError, match="no such job"):
        bench.queue.cancel(7)
    assert bench.past.jobs == ()
    bench.python("pass")
    bench.over()


def test_jobs_wait_for_gpus_and_start_when_those_are_free(bench: Bench) -> None:
    bench.python(SAVER, gpus=3)
    bench.python("pass", gpus=2)
    bench.said(0, "ready")
    assert bench.count(Kind.START, 1) == 0
    bench.queue.cancel(0)
    bench.over()
    assert bench.ends() == {0: "cancelled", 1: "finished"}
    # The second had its GPUs in the books at once, and its program waited for the end of the first.
    assert bench.out(0) == "ready\nsaved\n"


def test_a_stubborn_program_is_killed_after_its_grace_period_with_its_children(bench: Bench) -> None:
    bench.python(STUBBORN, grace_s=0.2)
    bench.python(FAMILY, grace_s=0.2)
    bench.said(0, "ready")
    bench.said(1, "ready")
    child = int(bench.out(1).split()[1])
    assert processes.alive(child, 0)
    bench.queue.cancel(0)
    bench.queue.cancel(1)
    bench.over()
    assert not processes.alive(child, 0)
    assert bench.ends() == {0: "cancelled", 1: "cancelled"}


def test_a_preempted_program_saves_its_work_and_is_started_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "srtf")
    first = bench.python(
        "import os, sys\nif os.environ['HEADWAY_STARTED_AGAIN'] == '1': sys.exit(0)\n" + SAVER,
        gpus=4,
        estimate=10**13,
    )
    bench.said(first, "ready")
    second = bench.python("pass", gpus=1, estimate=10**9)
    bench.over()
    assert bench.count(Kind.PREEMPT, first) == 1
    assert bench.ends() == {first: "finished", second: "finished"}
    assert any("preempt job 0" in line and "for job 1" in line for line in bench.log)
    bench.check()


def test_a_program_that_ends_by_itself_while_it_is_preempted_has_finished(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "srtf")
    bench.python(SAVER.replace(f"sys.exit({SAVED})", "sys.exit(0)"), gpus=4, estimate=10**13)
    bench.said(0, "ready")
    bench.python(SAVER, gpus=4, estimate=10**12)
    bench.said(1, "ready")
    bench.until(lambda: 0 in bench.ends())
    assert bench.ends() == {0: "finished"}
    assert bench.count(Kind.START, 0) == 1
    bench.queue.cancel(1)
    bench.over()
    bench.check()


def test_a_program_that_saved_nothing_is_expected_to_take_its_whole_time_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "srtf")
    bench.python(STUBBORN, gpus=4, estimate=10**13, grace_s=0.05)
    bench.said(0, "ready")
    bench.python("pass", estimate=10**9)
    bench.until(lambda: bench.count(Kind.PROGRESSED, 0) == 1)
    bench.said(0, "ready\nready")
    js = bench.queue.state.jobs[0]
    assert js.expected == js.done + 10**13
    bench.queue.cancel(0, at_once=True)
    bench.over()
    bench.check()


def test_what_a_program_says_of_its_progress_changes_what_is_expected(bench: Bench) -> None:
    code = "import os, time\nopen(os.environ['HEADWAY_PROGRESS'], 'w').write('0.5')\n"
    code += "print('ready', flush=True)\ntime.sleep(600)"
    bench.python(code, estimate=10**13)
    bench.said(0, "ready")
    bench.queue.cluster.measure()
    bench.until(lambda: bench.count(Kind.PROGRESSED, 0) == 1)
    assert bench.queue.state.jobs[0].expected < 10**12


def test_a_queue_that_ends_its_programs_lets_their_jobs_wait_for_the_next(bench: Bench) -> None:
    bench.python(SAVER)
    bench.python("import time; time.sleep(600)")
    bench.said(0, "ready")
    bench.queue.stop(kill=True)
    bench.until(lambda: bench.queue.idle)
    assert bench.ends() == {}
    assert len(bench.queue.state.jobs) == 2
    assert not bench.queue.state.running
    bench.again()
    bench.said(0, "ready\nsaved\nready")
    assert len(bench.queue.state.running) == 2


def test_a_run_of_the_queue_is_reported_explained_and_compared_with_its_simulation(bench: Bench) -> None:
    bench.python("import time; time.sleep(0.2)", gpus=4)
    bench.python("import time; time.sleep(0.1)", gpus=2)
    bench.python(SAVER, gpus=1)
    bench.until(lambda: len(bench.ends()) == 2)
    run = Run(open_run(bench.place.folder))
    assert any("capacity" in str(line) for line in run.story("1").shown)
    assert run.explain(1, draws=5).record()["causes"]
    off = distance(run.stored, None).record()
    assert off["compared"] == 2
    assert abs(off["mean"]["off"]) < 0.5


def test_a_job_that_started_at_once_is_explained_as_one_that_runs(bench: Bench) -> None:
    job = bench.python("pass")
    bench.over()
    run = Run(open_run(bench.place.folder))
    assert run.stored.scene.jobs[job].submit < run.stored.tape.of(int(Kind.ARRIVED))[0, 0], "it arrives a moment later"
    found = run.explain(job, draws=5).record()
    assert (found["status"], "it runs: since" in found["told"]) == ("running", True)
    early = run.explain(job, at=f"{run.stored.scene.jobs[job].submit}ns", draws=5).record()
    assert "nothing was decided about it yet" in early["told"]


def test_a_queue_whose_folder_was_deleted_says_so_and_ends(bench: Bench) -> None:
    bench.python("pass")
    bench.over()
    store = bench.place.store
    aside = store.rename(store.with_name("aside"))
    store.touch()  # another file of this name is not the store either
    assert bench.queue.store.gone
    store.unlink()
    bench.queue.turn()
    assert bench.queue.over
    assert f"{store} is gone: the queue ends, programs that run go on" in bench.log
    with pytest.raises(QueueError, match="is gone"):
        bench.python("pass")
    aside.rename(store)
    bench.again()
    assert not bench.queue.over


def test_signals_that_the_queue_ignores_are_not_ignored_by_programs(bench: Bench) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        bench.python("import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)")
        bench.over()
    finally:
        signal.signal(signal.SIGINT, before)
    assert bench.out(0) == "True\n"


def test_a_policy_with_rounds_decides_at_their_ends_though_wake_ups_are_late(tmp_path: Path) -> None:
    """Starts are at whole rounds on the tape, and what comes in between waits for the next one."""
    made = Bench(tmp_path, "fifo+round(1s)")
    jobs = [made.python("pass") for _ in range(3)]
    made.over()
    starts = made.past.tape.of(int(Kind.START))
    assert sorted(starts[:, 2].tolist()) == jobs
    assert all(time % SECOND == 0 for time in starts[:, 0].tolist())
    made.check()


def test_a_wake_up_that_comes_much_too_late_is_of_the_time_when_it_comes(tmp_path: Path) -> None:
    made = Bench(tmp_path, "fifo+round(1s)")
    cluster = made.queue.cluster
    now = made.queue._clock()
    cluster.wake_at(now + 1)
    clock, made.queue.cluster._clock = made.queue.cluster._clock, lambda: now + 5 * SECOND
    found = cluster.next()
    made.queue.cluster._clock = clock
    assert found is not None
    assert found[0] == now + 5 * SECOND
    assert found[1] == [Woke()]


def test_a_job_runs_with_the_cpus_that_its_profile_asks_for(tmp_path: Path) -> None:
    profile = tmp_path / "hungry.toml"
    profile.write_text('model = "hungry"\ncpus = [0.5, 2]\nmemory = ["1MB"]\nthroughput = [[0.25], [1.0]]\n')
    made = Bench(tmp_path, "fifo+tune+round(1s)", gpus=2, profiles=(str(profile),))
    with pytest.raises(QueueError, match="--profile nobody: the queue has no such profile"):
        made.python("pass", model="nobody")
    job = made.python("pass", cpus=1, model="hungry")
    made.over()
    [start] = made.past.tape.of(int(Kind.START)).tolist()
    assert start[2] == job
    assert made.past.jobs[job].model == "hungry"
    granted = [lease.order.cpu_milli for lease in made.past.leases]
    assert granted == [min(2000, 1000 * len(made.machine.cpus))]
    made.check()


def test_programs_with_parts_of_a_gpu_run_side_by_side_on_it(tmp_path: Path) -> None:
    made = Bench(tmp_path, gpus=1)
    sleeper = "print('here', flush=True); import time; time.sleep(60)"
    jobs = [made.python(sleeper, gpu_milli=500) for _ in range(2)]
    for job in jobs:
        made.said(job, "here")
    assert [lease.order.gpus for lease in made.past.leases] == [(0,), (0,)]
    third = made.python("pass", gpu_milli=100)
    made.queue.turn()
    assert third not in made.queue.state.running
    made.queue.cancel(jobs[0], at_once=True)
    made.until(lambda: third not in made.queue.state.jobs, "the third has ended")
    made.queue.cancel(jobs[1], at_once=True)
    made.over()
    made.check()


def test_a_part_of_a_real_gpu_is_shared_by_priority(tmp_path: Path) -> None:
    program = Program(("python", "train.py"), "/", {}, share_priority=3)
    engine = LocalEngine(tmp_path, lambda job: program, ("GPU-1",), (0,), shares=True)
    wrapped = engine._command(program, Order(1, 7, ((0, 1),), gpu_milli=500))
    assert wrapped[3:] == ("share", "run", "--priority", "3", "--name", "job 7", "--", "python", "train.py")
    assert engine._command(program, Order(1, 7, ((0, 1),))) == program.command
    slots = LocalEngine(tmp_path, lambda job: program, ("0",), (0,))
    assert slots._command(program, Order(1, 7, ((0, 1),), gpu_milli=500)) == program.command

"""Several runs at a time: every result comes back whatever dies, and a stop reaches all."""

import signal
from pathlib import Path

from headway.core.tasks import Done, Far
from headway.errors import HeadwayError
from headway.runs.sweep.pool import LocalPool
from tests.processes import at_work, gone, program, slow_policy, until, work


def test_a_pool_gives_every_result_whatever_dies(tmp_path: Path) -> None:
    heard: list[tuple[int, Far | None]] = []
    tasks = [2, "die", tmp_path / "once", "wrong", 5]
    found = {done.task: done for done in LocalPool(2).run(tasks, work, lambda task, far: heard.append((task, far)))}
    assert (found[0].result, found[2].result, found[4].result) == (4, "again", 25)
    assert isinstance(found[1].problem, HeadwayError)
    assert "killed by SIGKILL, 2 times" in str(found[1].problem)
    assert str(found[3].problem) == "this is wrong"
    assert (0, Far(1, 2, 3, 4, 5, 6)) in heard


def test_a_pool_that_is_stopped_says_what_it_did_not_do() -> None:
    pool = LocalPool(1)
    ends: list[Done] = []
    for done in pool.run([1, 2, 3], work):
        ends.append(done)
        pool.stop()
    assert [end.task for end in ends] == [0, 1, 2]
    assert [end.stopped for end in ends] == [False, True, True]


def test_a_signal_to_the_parent_alone_stops_all_its_runs(tmp_path: Path) -> None:
    path, out, slow = tmp_path / "long.toml", tmp_path / "runs", tmp_path / "policy"
    path.write_text(
        "scale = 'jobs'\nvariants = [{name = 'a'}, {name = 'b', set = {run = {seed = 1}}}]\n"
        f"policy = {{name = '{slow_policy(slow)}'}}\n"
        "trace = {synthetic = {jobs = 1000}}\ncluster = {nodes = 16, gpus_per_node = 8}\n"
    )
    with program("run", path, "--out", out, "--processes", "2") as running:
        until(lambda: len(at_work(slow)) == 2, running)
        workers = at_work(slow)
        running.send_signal(signal.SIGINT)
        _, err = running.communicate()
    assert running.returncode == 130
    assert all(map(gone, workers))
    assert "stopped at" in err
    assert all((out / name / "tape.parquet").exists() for name in "ab")

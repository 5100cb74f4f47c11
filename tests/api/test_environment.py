"""A run that is played one decision at a time."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
import pytest

import headway as hw
from headway.jobs.model.actions import StartJob
from headway.jobs.state.state import TrainingState

FRAME = pl.DataFrame(
    {
        "submit_s": [0, 5, 5, 9, 30, 31, 200],
        "work_s": [60, 20, 45, 10, 70, 5, 1],
        "gpus": [2, 1, 4, 1, 3, 1, 4],
        "name": list("abcdefg"),
    }
)


def small(**settings: Any) -> hw.Work:
    """Seven jobs on two nodes."""
    return hw.Jobs(FRAME, nodes=2, gpus_per_node=2, **settings)


def greedy(env: Any) -> Iterator[StartJob]:
    """Start jobs in the order of the queue, until one does not fit."""
    state: TrainingState = env.state
    while (head := state.queue.head()) is not None:
        job = state.jobs[head[1]]
        placement = env.policy.rule.place(state.pool, job)
        if placement is None:
            return
        yield StartJob(job.id, placement)


def played(env: Any, seed: int | None = None) -> tuple[float, int]:
    """Play greedily to the end; return the sum of rewards, and how many steps it took."""
    env.reset(seed=seed)
    total, steps, done = 0.0, 0, False
    while not done:
        _, reward, done, cut, info = env.step(greedy(env))
        assert not cut
        assert info["refused"] == []
        total += reward
        steps += 1
    return total, steps


def test_starting_jobs_greedily_writes_the_tape_of_fifo() -> None:
    env = hw.environment(small(), "fifo")
    total, steps = played(env)
    run = hw.simulate(small(), "fifo")
    assert env.tape.digest == run.row["digest"]
    assert steps == len(np.unique(env.tape.column("time")))
    assert env.scene.audit(env.tape, complete=True) == []
    assert -total == pytest.approx(run.jobs()["jct_s"].sum())


def test_the_reward_counts_requests_of_a_fleet_once_each() -> None:
    work = hw.Fleet("compass", requests=20, rate=4.0, workers=3)
    env = hw.environment(work, "compass")
    state, _ = env.reset()
    total, done = 0.0, False
    while not done:
        state, reward, done, _, info = env.step(env.policy.decide(env.now, state))
        assert info["refused"] == []
        total += reward
    run = hw.simulate(work, "compass")
    assert env.tape.digest == run.row["digest"]
    assert -total == pytest.approx(run.requests()["latency_s"].sum())


def test_a_reset_with_the_same_seed_is_the_same_run() -> None:
    env = hw.environment(hw.Jobs(hw.synthetic(12, load=1.5), nodes=2, gpus_per_node=8))
    digests = []
    for seed in (3, 4, 3, None):
        played(env, seed)
        digests.append(env.tape.digest)
    assert digests[0] == digests[2] != digests[1]
    assert digests[3] == hw.simulate(hw.Jobs(hw.synthetic(12, load=1.5), nodes=2, gpus_per_node=8)).row["digest"]


def test_refusals_come_back_with_their_reasons_and_stand_on_the_tape() -> None:
    env = hw.environment(small())
    env.reset()
    first, second = StartJob(0, ((0, 0b11),)), StartJob(99, ((0, 1),))
    _, _, done, cut, info = env.step([first, second, StartJob(0, ((1, 0b11),))])
    assert (done, cut) == (False, False)
    assert [action for action, _ in info["refused"]] == [second, StartJob(0, ((1, 0b11),))]
    assert info["refused"][0][1] == "StartJob(job=99): no such job is alive"
    assert set(env.tape.notes.values()) == {reason for _, reason in info["refused"]}


def test_one_action_needs_no_list() -> None:
    env = hw.environment(small())
    env.reset()
    assert env.step(StartJob(0, ((0, 0b11),)))[4]["refused"] == []
    assert 0 in env.state.running


def test_whoever_leaves_work_undone_is_cut_short_and_not_done() -> None:
    env = hw.environment(small())
    env.reset()
    done = cut = False
    while not (done or cut):
        _, _, done, cut, _ = env.step()
    assert cut
    assert not done


def test_a_step_needs_an_instant() -> None:
    env = hw.environment(small())
    with pytest.raises(hw.HeadwayError, match=r"^the environment is not at an instant: call reset\(\) first$"):
        env.step()
    played(env)
    with pytest.raises(hw.HeadwayError, match=r"call reset\(\) first"):
        env.step()
    env.reset(seed=1, options={})
    env.step()


@pytest.mark.parametrize("wrong", [42, ["start"], [None]])
def test_what_is_no_action_is_one_line(wrong: Any) -> None:
    env = hw.environment(small())
    env.reset()
    with pytest.raises(hw.HeadwayError, match=r"^step takes actions of its scale, not "):
        env.step(wrong)


def test_a_gpu_can_be_played_by_hand_too() -> None:
    work = hw.Gpu("resnet50", "matmul", seconds=0.02)
    env = hw.environment(work, "headway")
    state, info = env.reset()
    assert info == {"now": env.now}
    over = False
    while not over:
        state, reward, done, cut, _ = env.step(env.policy.decide(env.now, state))
        over = done or cut
        assert reward <= 0
    assert env.tape.digest == hw.simulate(work, "headway").row["digest"]


def test_bad_settings_are_refused_before_anything_is_played() -> None:
    with pytest.raises(hw.HeadwayError, match="unknown setting 'node'"):
        hw.environment(small(), node=3)
    with pytest.raises(hw.HeadwayError, match="unknown policy 'fifoo'"):
        hw.environment(small(), "fifoo").reset()

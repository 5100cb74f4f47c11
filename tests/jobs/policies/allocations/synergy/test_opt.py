"""opt by hand: nodes of 4 GPUs with 12 CPUs and 120 GB, a GPU's due being 3 CPUs and 30 GB."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from headway.errors import ExperimentError
from headway.jobs.audit.audit import audit
from headway.jobs.audit.proportional_share import slower_than_proportional
from headway.jobs.experiment.scene import prepare
from headway.jobs.model.actions import MigrateJob, ReallocateJob
from headway.jobs.model.cluster import Cluster, Node
from headway.jobs.model.resources import Grant
from headway.jobs.model.sensitivity import Profile
from headway.jobs.model.speed import Costs
from headway.jobs.policies.allocations.synergy.opt import Opt
from headway.jobs.policies.allocations.synergy.programs import Cell, JobGroup
from headway.jobs.policies.registry import build
from headway.jobs.tables.settings import Experiment
from headway.runs.play import play
from headway.units import HOUR, MINUTE, SECOND
from tests.jobs.policies.allocations.stage import GIGABYTE, Stage, gang, nodes, wants

SIX, LITTLE = wants(6), wants(1, 10)


def rising(*cpus_and_speeds: tuple[int, float], gigabytes: int = 30) -> Profile:
    """Of a program that is so fast with so many CPUs, whatever its memory."""
    rows = tuple(cpus * 1000 for cpus, _ in cpus_and_speeds)
    return Profile("any", rows, (gigabytes * GIGABYTE,), tuple((round(s * 1_000_000),) for _, s in cpus_and_speeds))


STEEP = rising((3, 1), (6, 2))
FLAT = rising((3, 1), (6, 1.2))


def opt(stage: Stage) -> Opt:
    """The allocation of a stage."""
    assert isinstance(stage.policy.allocation, Opt)
    return stage.policy.allocation


# --- one node ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [("steep", "flat", "flat"), ("flat", "flat", "steep"), ("flat", "steep", "flat")])
def test_what_is_left_over_goes_where_it_is_worth_most(order: tuple[str, ...]) -> None:
    stage = Stage("fifo+fit+opt", {"steep": STEEP, "flat": FLAT})
    stage.come(*order)
    assert stage.cpus == {job: 6 if model == "steep" else 3 for job, model in enumerate(order)}
    assert opt(stage).divisions[-1].achieved_ppm == 4_000_000


def test_nobody_falls_below_their_due_whatever_others_would_gain() -> None:
    stage = Stage("fifo+fit+opt", {"steep": rising((3, 1), (4, 9)), "flat": FLAT})
    stage.come("steep", "steep", "flat", "flat")
    assert stage.cpus == {0: 3, 1: 3, 2: 3, 3: 3}


def test_what_a_job_cannot_use_is_free_for_others() -> None:
    stage = Stage("fifo+fit+opt", {"steep": STEEP, "little": LITTLE})
    stage.come("little", "little", "steep")
    assert (stage.cpus, stage.memory) == ({0: 1, 1: 1, 2: 6}, {0: 10, 1: 10, 2: 30})


def test_the_best_choice_is_not_the_greedy_one() -> None:
    """The one that gains most by itself takes what two others gain more by together."""
    known = {"large": rising((3, 1), (5, 2.2)), "small": rising((3, 1), (4, 1.8))}
    stage = Stage("fifo+fit+opt(between=false)", known)
    stage.come("large", "small", "small", gang("", 1, cpu_milli=1000))
    assert stage.cpus == {0: 3, 1: 4, 2: 4, 3: 1}


def test_whole_cpus_between_the_measured_ones_count() -> None:
    stage = Stage("fifo+fit+opt", {"nine": rising((3, 1), (9, 4))})
    stage.come("nine", "nine")
    assert sorted(stage.cpus.values()) in ([3, 9], [4, 8], [5, 7], [6, 6])
    assert opt(stage).divisions[-1].achieved_ppm == 5_000_000
    stage = Stage("fifo+fit+opt(between=false)", {"nine": rising((3, 1), (12, 4))})
    stage.come("nine", "nine")
    assert stage.cpus == {0: 3, 1: 3}


def test_of_equal_jobs_the_one_that_has_more_keeps_it() -> None:
    stage = Stage("fifo+fit+opt(between=false)", {"steep": STEEP, "little": LITTLE})
    stage.come("steep", "steep", "steep")
    (rich,) = [job for job, cpus in stage.cpus.items() if cpus == 6]
    for model in ("little", "steep"):
        (poor, *_) = [job for job in stage.state.running if job != rich]
        stage.end(poor)
        stage.come(model)
        assert stage.cpus[rich] == 6


def test_nothing_is_done_where_nobody_came_or_went() -> None:
    stage = Stage("fifo+fit+opt", {"steep": STEEP})
    stage.come("steep", "steep")
    assert stage.decide() == []
    assert len(opt(stage).divisions) == 1


def test_gpus_count_where_that_is_asked_for() -> None:
    known = {"wide": rising((3, 1), (4, 1.6)), "narrow": rising((3, 1), (6, 1.9))}
    for spec, expected in (("opt(between=false)", {0: 6, 1: 6}), ("opt(between=false, by_gpus=true)", {0: 8, 1: 3})):
        stage = Stage(f"fifo+fit+{spec}", known)
        stage.come(gang("wide", 2), "narrow")
        assert stage.cpus == expected, spec


def test_jobs_that_nobody_knows_have_what_they_ask_for_up_to_their_due() -> None:
    stage = Stage("fifo+fit+opt", {"steep": STEEP})
    stage.come(gang("", 1, cpu_milli=1000, memory_bytes=5 * GIGABYTE), gang("", 1, cpu_milli=9000), "steep", "")
    assert stage.cpus == {0: 1, 1: 3, 2: 5, 3: 3}
    assert (stage.memory[0], stage.memory[1]) == (5, 30)


def test_storage_is_a_resource_where_it_is_counted() -> None:
    reader = replace(rising((3, 1), (6, 2)), read_bytes_per_second=100, dataset_bytes=10**15)
    stage = Stage("fifo+fit+opt", {"reader": reader, "steep": STEEP}, nodes(storage_bytes_per_second=400))
    stage.come("reader", "reader", "reader", "reader")
    assert all(js.storage == 100 for js in stage.state.running.values())
    stage.end(0, 1)
    held = {job: (js.cpu_milli, js.storage) for job, js in stage.state.running.items()}
    assert held == {2: (6000, 200), 3: (6000, 200)}


def test_on_faster_gpus_more_cpus_are_of_use_and_the_due_is_worth_more() -> None:
    cluster = Cluster((Node("a", 4, "new", 12_000, 120 * GIGABYTE),), gpu_speed_ppm={"new": 2_000_000})
    stage = Stage("fifo+fit+opt", {"one": rising((1, 1))}, cluster)
    stage.come("one", "one", "one", "one")
    assert stage.cpus == {0: 2, 1: 2, 2: 2, 3: 2}


# --- several nodes ----------------------------------------------------------------------------------------------------


def test_a_job_goes_where_all_gain_most_by_it() -> None:
    stage = Stage("fifo+fit+opt(moves=false)", {"steep": STEEP}, nodes(2))
    stage.come("steep", "steep")
    assert stage.where == {0: (0,), 1: (0,)}
    stage.come("steep", "steep", "steep")
    assert sorted(stage.where.values()) == [(0,), (0,), (0,), (1,), (1,)]
    assert opt(stage).divisions[-1].achieved_ppm == 8_000_000


def test_of_nodes_as_good_the_one_with_less_free_is_taken() -> None:
    stage = Stage("fifo+fit+opt", {"steep": STEEP, "little": LITTLE}, nodes(2))
    stage.come("little", "steep", "little", "little")
    assert set(stage.where.values()) == {(0,)}


def test_a_job_goes_over_several_nodes_only_for_what_none_of_them_has() -> None:
    stage = Stage("fifo+fit+opt", {"hungry": wants(6)}, nodes(2))
    stage.come(gang("hungry", 4))
    assert stage.where == {0: (0, 1)}
    assert stage.cpus == {0: 24}
    stage = Stage("fifo+fit+opt", {"modest": wants(3)}, nodes(2))
    stage.come(gang("modest", 4))
    assert stage.where == {0: (0,)}


def test_a_job_over_several_nodes_shares_each_with_others() -> None:
    stage = Stage("fifo+fit+opt", {"six": SIX, "steep": STEEP}, nodes(2))
    stage.come(gang("six", 4))
    stage.come("steep", "steep")
    stage.come("steep", "steep")
    assert stage.where[0] == (0, 1)
    assert stage.cpus == {0: 12, 1: 3, 2: 3, 3: 3, 4: 3}
    assert stage.state.pool.cpu_free == [0, 0]
    assert opt(stage).divisions[-1].achieved_ppm == 5_400_000
    stage.end(1, 2, 3)
    assert opt(stage).bounds[-1] == (3_400_000, 3_600_000)
    assert stage.cpus == {0: 12, 4: 6}
    stage.end(4)
    assert stage.cpus == {0: 24}


def crowded(spec: str = "fifo+fit+opt", **more: Any) -> Stage:
    """Two steep jobs on a node where there is only room for one at full speed, beside two that cannot move; then a node
    becomes free."""
    stage = Stage(spec, {"steep": STEEP}, nodes(2))
    stuck = gang("", 1, preemptible=False)
    stage.come(gang("", 4, preemptible=False))
    stage.come(stuck, stuck, gang("steep", 1, **more), gang("steep", 1, **more))
    assert stage.where == {0: (0,), 1: (1,), 2: (1,), 3: (1,), 4: (1,)}
    return stage


def test_a_job_moves_when_that_pays() -> None:
    stage = crowded()
    moved = [action for action in stage.end(0) if isinstance(action, MigrateJob)]
    assert [action.job for action in moved] == [3]
    assert stage.cpus == {1: 3, 2: 3, 3: 6, 4: 6}
    assert opt(stage).divisions[-1].achieved_ppm == opt(stage).divisions[-1].bound_ppm == 6_000_000


@pytest.mark.parametrize(
    ("spec", "more"),
    [
        ("opt(moves=false)", {}),
        ("opt", {"checkpoint": 10 * MINUTE}),
        ("opt", {"checkpoint": MINUTE}),  # both gain as much as one has, for less than 100 s
        ("opt", {"preemptible": False}),
        ("opt(margin=120)", {"checkpoint": SECOND}),
        ("opt(horizon=1s)", {"checkpoint": SECOND}),
    ],
)
def test_a_job_stays_when_moving_it_does_not_pay(spec: str, more: dict[str, Any]) -> None:
    stage = crowded(f"fifo+fit+{spec}", **more)
    assert not [action for action in stage.end(0) if isinstance(action, MigrateJob)]


def test_a_job_that_still_restores_its_checkpoint_is_not_moved_again() -> None:
    stage = crowded(checkpoint=SECOND)
    stage.end(0)
    moved = stage.state.running[3]
    assert moved.base == stage.now + SECOND
    assert stage.decide() == []


def test_programme_two_is_asked_no_more_often_than_told(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def counted(groups: list[JobGroup], *_: Any, **__: Any) -> None:
        asked.append(groups)

    monkeypatch.setattr("headway.jobs.policies.allocations.synergy.moves.rearrange", counted)
    stage = crowded("fifo+fit+opt(every=1h)", checkpoint=10 * MINUTE)
    stage.end(0)
    assert len(asked) == 1
    assert [(group.here, group.stay) for group in asked[0]] == [((2, 0), (2, 0)), ((2, 0), (0, 0))]
    assert asked[0][1].cells[0] == Cell(Grant(3000, 30 * GIGABYTE), 1_000_000)
    stage.come("steep")
    assert len(asked) == 1
    stage.now += HOUR
    stage.come("steep")
    assert len(asked) == 2


def test_jobs_change_places_by_programme_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """What single moves do not find is carried out one move at a time, through the GPU that is free."""
    monkeypatch.setattr("headway.jobs.policies.allocations.synergy.moves.MOST_MOVES", 0)
    stage = crowded()
    moved = [action.job for action in stage.end(0) if isinstance(action, MigrateJob)]
    assert moved == [3]
    assert opt(stage).divisions[-1].achieved_ppm == 6_000_000


# --- what is told -----------------------------------------------------------------------------------------------------


def test_each_division_says_how_good_it_is() -> None:
    stage = Stage("fifo+fit+opt(moves=false)", {"steep": STEEP}, nodes(2))
    assert opt(stage).divisions == []
    stage.come("steep")
    assert opt(stage).divisions[-1] == (stage.now, 2_000_000, 2_000_000, 2_000_000)
    stage.come(*["steep"] * 7)
    assert opt(stage).divisions[-1] == (stage.now, 8_000_000, 8_000_000, 16_000_000)
    stage.end(0, 1, 2)
    last = opt(stage).divisions[-1]
    assert last.achieved_ppm <= last.bound_ppm < last.wished_ppm == 10_000_000
    assert opt(stage).bounds[-1] == last[1:3]


def test_nodes_that_are_down_are_no_room() -> None:
    stage = Stage("fifo+fit+opt", {"steep": STEEP}, nodes(2))
    stage.state.pool.set_schedulable(1, False)
    stage.come("steep", "steep", "steep")
    assert opt(stage).divisions[-1].bound_ppm == opt(stage).divisions[-1].achieved_ppm == 4_000_000


def test_a_change_that_costs_more_than_it_gains_is_not_made() -> None:
    known = {"steep": STEEP, "flat": rising((3, 1), (6, 1.01))}
    stage = Stage("fifo+fit+opt", known)
    stage.state.costs = Costs(reallocation=5 * MINUTE)
    stage.come("flat", "flat", "flat", "steep")
    assert not [action for action in stage.end(1) if isinstance(action, ReallocateJob) and action.job != 3]
    stage.state.costs = Costs()
    stage.end(2)
    assert stage.cpus == {0: 6, 3: 6}


def test_options_are_read_and_written_back() -> None:
    spec = "srtf+opt(by_gpus=true, gap=0.0, horizon=1h)"
    assert build(spec).name == spec
    with pytest.raises(ExperimentError, match="option of opt"):
        build("fifo+opt(cells=3)")


# --- whole runs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpus", "split", "policy", "storage"),
    [
        ("multi", "33,33,33", "fifo+fit", ""),
        ("single", "50,0,50", "srtf+fit", "125MB/s"),
        ("multi", "20,70,10", "las+easy+consolidate", ""),
    ],
)
def test_whole_runs_are_sound_the_same_every_time_and_keep_the_guarantee(
    gpus: str, split: str, policy: str, storage: str
) -> None:
    tables: dict[str, dict[str, Any]] = {
        "trace": {"synergy": {"jobs": 20 if storage else 60, "rate": "4/h", "split": split, "gpus": gpus}},
        "cluster": {"nodes": 3, "gpus_per_node": 8, "cpus_per_node": 24, "memory_per_node": "500GB"},
        "policy": {"name": policy, "allocation": "opt", "round": "300s"},
        "speed": {"model": "matrix"},
        "costs": {"migration": "60s"},
    }
    if storage:
        tables["cluster"]["storage_per_node"] = storage
    scene = prepare(msgspec.convert(tables, Experiment))
    first, second = play(scene), play(scene)
    assert first.tape.digest == second.tape.digest
    speed, costs = scene.speed(), scene.costs()
    assert audit(scene.cluster, scene.jobs, first.tape, speed=speed, costs=costs, complete=True) == []
    assert slower_than_proportional(scene.cluster, scene.jobs, first.tape, speed) == []

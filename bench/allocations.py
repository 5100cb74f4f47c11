"""How fast ``tune`` and ``opt`` divide, and how near ``tune`` comes to the best, on workloads of Synergy's simulator.

``.venv/bin/python bench/allocations.py`` prints three tables, or those that are named:

- ``speed``: jobs a second of whole runs at 128 and 512 GPUs, each played twice; every job must have finished and both
  tapes be the same before a time is printed.
- ``decision``: one decision at 2,048 GPUs, when jobs for all of them come at once, and when all that runs is divided
  by an allocation that has seen nothing of it yet.
- ``ratio``: in runs with ``tune``, with and without its leftovers, over the contended rounds (not everybody can have
  all they could use), what its division is worth against the best one with everybody where they are, and against
  programme 1's bound, with any job anywhere. Worth is the sum over running jobs of their throughput against their
  reference; the cells are the matrix's.

It fails when a floor is missed.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from statistics import mean
from typing import Any

import msgspec

from headway.core.scheduler import Scheduler
from headway.core.tape import TapeWriter
from headway.jobs.experiment.scene import JobsScene, prepare
from headway.jobs.model.actions import Action
from headway.jobs.model.events import Event, JobArrived
from headway.jobs.model.rows import Kind
from headway.jobs.policies.allocations.synergy.opt import Opt
from headway.jobs.policies.compose import ComposedPolicy
from headway.jobs.sim.cluster import SimulatedCluster
from headway.jobs.state.state import TrainingState
from headway.jobs.tables.settings import Experiment
from headway.runs.play import play

SPLITS = ("20,70,10", "33,33,33", "50,0,50")
WORKLOADS = [
    *((16, "9/h", "single", split) for split in SPLITS),
    *((16, "5/h", "multi", split) for split in SPLITS),
    *((64, "36/h", "single", split) for split in SPLITS),
    *((64, "20/h", "multi", split) for split in SPLITS),
]
FLOORS = {("opt", 64): 200}
"""Jobs a second."""
SLOWEST_MS = {"opt": 2000.0, "tune": 50.0}
"""One decision at 2,048 GPUs."""
LEAST_RATIO = 0.9


def scene(nodes: int, rate: str, gpus: str, split: str, allocation: str, jobs: int) -> JobsScene:
    """A workload of the paper's simulator on nodes of 8 GPUs, 24 CPUs and 500 GB, in rounds of 300 s."""
    tables: dict[str, dict[str, Any]] = {
        "trace": {"synergy": {"jobs": jobs, "rate": rate, "split": split, "gpus": gpus}},
        "cluster": {"nodes": nodes, "gpus_per_node": 8, "cpus_per_node": 24, "memory_per_node": "500GB"},
        "policy": {"name": "fifo", "backfill": "fit", "allocation": allocation, "round": "300s"},
        "speed": {"model": "matrix"},
        "run": {"seed": 1},
    }
    return prepare(msgspec.convert(tables, Experiment))


def speed(nodes: int, rate: str, gpus: str, split: str, jobs: int) -> bool:
    """Jobs a second of whole runs, with one allocation and the other."""
    well = True
    for allocation in ("tune", "opt"):
        made = scene(nodes, rate, gpus, split, allocation, jobs)
        runs = [play(made) for _ in range(2)]
        finished = int((runs[0].tape.column("kind") == Kind.FINISHED).sum())
        assert finished == jobs, f"{finished} of {jobs} jobs finished"
        assert runs[0].tape.digest == runs[1].tape.digest, "repetitions differ"
        rate_per_second = jobs / min(run.wall_s for run in runs)
        floor = FLOORS.get((allocation, nodes), 0)
        moves = int((runs[0].tape.column("kind") == Kind.MIGRATE).sum())
        line = f"{rate_per_second:10,.0f} jobs/s{f' (floor {floor})' if floor else '':12}{moves:6} moves"
        print(f"{_case(nodes, rate, gpus, split)} {allocation:5}{line}", flush=True)
        well = well and rate_per_second >= floor
    return well


def _case(nodes: int, rate: str, gpus: str, split: str) -> str:
    return f"{8 * nodes:5} GPUs {rate:>5} {gpus:6} {split:9}"


# --- one decision ---------------------------------------------------------------------------------------------


def decision(gpus: str, split: str) -> bool:
    """One decision on 256 nodes: when jobs for all GPUs come at once, and when all that runs is divided anew."""
    well = True
    for name in ("tune", "opt"):
        started, anew = _decisions(scene(256, "36/h", gpus, split, name, 2500))
        line = f"all start {started:6.0f} ms   all divided anew {anew:6.1f} ms (at most {SLOWEST_MS[name]:.0f})"
        print(f" 2048 GPUs       {gpus:6} {split:9} {name:5} {line}", flush=True)
        well = well and anew <= SLOWEST_MS[name]
    return well


def _decisions(made: JobsScene) -> tuple[float, float]:
    policy = made.policy()
    state = TrainingState(made.cluster, to_come=len(made.jobs), arrangement=policy, speed=made.speed())
    policy.bind(state)
    for job in made.jobs:
        state.apply(0, JobArrived(job))
    started = _milliseconds(state, lambda: policy.decide(0, state))
    held = sum(js.gpus for js in state.running.values())
    assert held == made.cluster.gpus, f"{held} of {made.cluster.gpus} GPUs in use"
    allocation = policy.allocation
    assert allocation is not None
    allocation.bind(state)
    return started, _milliseconds(state, lambda: allocation.divide(0, state))


def _milliseconds(state: TrainingState, decide: Callable[[], Iterable[Action]]) -> float:
    """How long it takes to decide, each action done before the next is asked for."""
    start = time.perf_counter()
    ahead = iter(decide())
    spent = time.perf_counter() - start
    while True:
        start = time.perf_counter()
        action = next(ahead, None)
        spent += time.perf_counter() - start
        if action is None:
            return spent * 1000
        state.commit(0, action)


# --- how near tune comes --------------------------------------------------------------------------------------


class Onlooker:
    """Looks at what each decision of a policy is worth."""

    def __init__(self, policy: ComposedPolicy, state: TrainingState) -> None:
        self.policy = policy
        self.name = policy.name
        self.judge = Opt(between=False, moves=False, gap=0.001)
        self.judge.bind(state)
        self.ratios: list[tuple[float, float]] = []
        """Of contended rounds: the division's worth against the best one in place, and against the bound."""

    def decide(self, now: int, state: TrainingState) -> Iterator[Action]:
        """What the policy decides."""
        before = state.changes
        yield from self.policy.decide(now, state)
        if state.running and state.changes != before:
            found = self.judge.evaluated(now, state)
            if found.achieved_ppm < found.wished_ppm:
                worth = sum(js.speed for js in state.running.values())
                self.ratios.append((worth / found.achieved_ppm, worth / found.bound_ppm))


def nearness(nodes: int, rate: str, gpus: str, split: str, jobs: int, allocation: str = "tune") -> bool:
    """The worth of tune's divisions in its own runs, where not everybody could have everything."""
    made = scene(nodes, rate, gpus, split, allocation, jobs)
    policy = made.policy()
    state = TrainingState(
        made.cluster, to_come=len(made.jobs), arrangement=policy, speed=made.speed(), costs=made.costs()
    )
    policy.bind(state)
    onlooker = Onlooker(policy, state)
    Scheduler[Event, Action](state, onlooker, SimulatedCluster(made.jobs, state, None), TapeWriter(None)).run()
    assert not state.jobs, f"{len(state.jobs)} jobs did not finish"
    if not onlooker.ratios:
        print(f"{_case(nodes, rate, gpus, split)} {allocation}/opt: no contended round", flush=True)
        return True
    here, anywhere = zip(*onlooker.ratios, strict=True)
    print(
        f"{_case(nodes, rate, gpus, split)} {allocation}/opt over {len(here):5} contended rounds:"
        f" in place mean {mean(here):.3f} least {min(here):.3f}, below {LEAST_RATIO} in"
        f" {sum(ratio < LEAST_RATIO for ratio in here)},"
        f" against the bound mean {mean(anywhere):.3f} least {min(anywhere):.3f} (floor {LEAST_RATIO})",
        flush=True,
    )
    return min(here) >= LEAST_RATIO


def main() -> int:
    """Run the cases that match, and fail when a floor is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("match", nargs="*", help="speed, decision, ratio: only these")
    parser.add_argument("--jobs", type=int, default=1000, help="of each workload")
    given = parser.parse_args()
    wanted = set(given.match) or {"speed", "decision", "ratio"}
    well = True
    for case in WORKLOADS if "speed" in wanted else ():
        well = speed(*case, given.jobs) and well
    for gpus in ("single", "multi") if "decision" in wanted else ():
        for split in SPLITS:
            well = decision(gpus, split) and well
    for case in WORKLOADS if "ratio" in wanted else ():
        for allocation in ("tune", "tune(leftovers=true)"):
            well = nearness(*case, given.jobs, allocation) and well
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())

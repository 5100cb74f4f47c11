"""Digests of what allocations do: each with two orders, in rounds and at every event, by both speed models."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from tests.golden.training import of_document

ALLOCATIONS = ("proportional", "greedy", "tune", "opt", "drf", "tetris", "headway")
ORDERS = ("fifo+fit", "srtf")
ROUNDS = ("300s", "0s")
MODELS = ("matrix", "synergy-scalar")
OPTIONS = (
    "tune(leftovers=true)",
    "opt(by_gpus=true)",
    "opt(between=false)",
    "opt(moves=false)",
    "opt(gap=0.1,branches=1,margin=0.5,horizon=2h,every=1h)",
    "headway(moves=0)",
    "headway(moves=1,margin=2.0,rest=10m,slowdown=0.0)",
)


def cases() -> Iterator[tuple[str, partial[str]]]:
    """Every case by its name."""
    for name, document in documents():
        yield f"allocation/{name}", partial(of_document, document)


def divided(order: str, allocation: str, **tables: Any) -> dict[str, Any]:
    """Jobs as Synergy draws them, of 1 to 8 GPUs, on 4 nodes that are short of CPUs and memory."""
    policy = {"name": order, "allocation": allocation, **tables.pop("policy", {})}
    jobs, rate = (28, "20/h") if allocation == "opt" else (45, "9/h")  # opt solves programmes
    return {
        "trace": {"synergy": {"jobs": jobs, "rate": rate, "split": "33,33,34", "gpus": "multi"}},
        "cluster": {"nodes": 4, "gpus_per_node": 8, "cpus_per_node": 36, "memory_per_node": "300GB"},
        "policy": policy,
        "run": {"seed": 7},
        **tables,
    }


def documents() -> Iterator[tuple[str, dict[str, Any]]]:
    """Allocations in every setting; their options in one."""
    for allocation in ALLOCATIONS:
        for order in ORDERS:
            for length in ROUNDS:
                for model in MODELS:
                    when = "at every event" if length == "0s" else "in rounds"
                    setting = divided(order, allocation, policy={"round": length}, speed={"model": model})
                    yield f"{allocation}, {order}, {when}, {model}", setting
    for allocation in OPTIONS:
        yield allocation, divided("srtf+fit", allocation)
    for allocation in ("tune", "headway"):
        others = {"costs": {"preemption": "1m", "migration": "1m", "reallocation": "10s"}}
        failing = {"failures": {"mtbf": "12h", "repair": "1h"}}
        yield f"{allocation}, wrong profiles", divided("las", allocation, speed={"model": "matrix", "error": 0.2})
        yield f"{allocation}, costs", divided("srtf", allocation, **others)
        yield f"{allocation}, failures", divided("fifo+easy", allocation, **others, **failing)
        yield f"{allocation}, ends noticed in rounds", divided("fifo+fit", allocation, run={"completions": "round"})
        yield f"{allocation}, migration", divided("fifo+fit+migrate", allocation, **others)

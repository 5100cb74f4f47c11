"""Digests of programs on one GPU: every policy on recorded pairs, for a few tens of simulated milliseconds."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from tests.golden.training import of_document

POLICIES = (
    "exclusive",
    "time-slicing",
    "mps",
    "mps-priority",
    "strict",
    "xsched",
    "xsched(in_flight=1)",
    "fikit",
    "fikit(threshold=50us,silence=1ms)",
    "headway",
    "headway(slo=1.2,floor=0.2)",
    "headway(slo=1.01,floor=0.0,watch=off)",
)
PAIRS = {
    "resnet50+resnet101-b64": {"high": ["resnet50"], "low": ["resnet101-b64"], "seconds": 0.06},
    "graph+training, pauses": {"high": ["graph"], "low": ["training"], "think": "5ms", "seconds": 0.06},
    "bert+matmul+bert-b32": {"high": ["bert"], "low": ["matmul", "bert-b32@3"], "seconds": 0.04},
    "two above one": {"high": ["vgg16", "alexnet"], "low": ["graph-b64"], "seconds": 0.04},
}


def cases() -> Iterator[tuple[str, partial[str]]]:
    """Every case by its name."""
    for name, document in documents():
        yield name, partial(of_document, document)


def shared(pair: str, policy: str) -> dict[str, Any]:
    """Some programs under one policy."""
    return {"kernels": PAIRS[pair], "policy": {"name": policy}, "run": {"seed": 7}}


def documents() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every policy on every pair."""
    for pair in PAIRS:
        for policy in POLICIES:
            yield f"{pair}/{policy}", shared(pair, policy)

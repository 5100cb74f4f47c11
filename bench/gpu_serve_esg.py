"""Serve ESG's applications with deadlines on workers of several SM shares: ``scripts/gpu-serve esg``.

Four workers share a GPU by MPS, with 1, 1, 2 and 3 sevenths of its SMs. Functions are timed on each share, pairs of
them side by side; then each policy serves the settings of ESG's paper: deadlines of 0.8, 1.0 and 1.2 L (L: the longest
way through a graph, each task alone on the smallest share) at a rising part of what the fleet can do.
"""

import argparse
import os
from collections.abc import Mapping
from typing import Any

from bench.gpu_serve_fleet import COUNTED, ROOT, WARM_LOAD, WARM_SECONDS, Fleet, flags, run
from headway.fleet.live.server import Server
from headway.fleet.model.fleet import percent_of
from headway.formats import toml

SHARES = (1, 1, 2, 3)
MEMORY_BYTES = 24 * 10**9
SETTINGS = {"strict-light": (0.8, 0.25), "moderate-normal": (1.0, 0.5), "relaxed-heavy": (1.2, 0.8)}
"""By name: the deadline in L, and the part of what the fleet answers when it is given all it can take."""
SIZES = ROOT / "src/headway/fleet/scenarios/shipped/esg-h200.toml"


class Esg(Fleet):
    """ESG's applications."""

    name, app, workers = "esg", ROOT / "bench/gpu_serve_esg_app.py", len(SHARES)
    policies = ("headway", "esg", "infless")
    further: Mapping[str, Any] = {"slices": ",".join(map(str, SHARES)), "control": "central"}

    def __init__(self, given: argparse.Namespace, *rest: Any) -> None:
        super().__init__(given, *rest)
        self.memory = "1GB" if given.dry else MEMORY_BYTES - self.context_bytes

    def environments(self) -> tuple[dict[str, str], ...]:
        """Return the environment of each worker, with its part of the SMs."""
        if self.given.dry:
            return (self.environment,)
        percent = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
        return tuple({**self.environment, percent: str(percent_of(share))} for share in SHARES)

    def base(self) -> toml.Document:
        """Return a profile with guessed times; activations are those of the shipped one."""
        known = toml.read(SIZES, "profile")["functions"]
        guessed = [[batch, 2, share, 100.0 * batch / share] for batch in (1, 2, 4) for share in sorted(set(SHARES))]
        functions = {
            name: {"activation": 0 if self.given.dry else table["activation"], "cells": guessed}
            for name, table in known.items()
        }
        models = {model.name: {"weights": model.memory_bytes} for model in self.models}
        return {"name": self.name, "gpu": "H200", "shares": True, "models": models, "functions": functions}

    async def serve(self, policy: str, seconds: float) -> None:
        """Serve each setting under one policy."""
        per_second = self.lines.one(part="saturate")["per_second"]
        async with self.server(policy, self.folder / policy) as (server, requests):
            easy = self._deadlines(server, 3.0)
            await self.open_loop(server, per_second * WARM_LOAD / 2, WARM_SECONDS, self.given.seed + 1, easy)
            for setting in self.drawn.sample(sorted(SETTINGS), len(SETTINGS)):
                factor, load = SETTINGS[setting]
                first, before = len(requests), server.status()
                limits = self._deadlines(server, factor)
                row = await self.open_loop(server, per_second * load, seconds, self.given.seed, limits)
                status = server.status()
                ids = {"first": requests[first].id, "last": requests[-1].id} if len(requests) > first else {}
                counted = {key: status[key] - before[key] for key in COUNTED}
                shown = {"policy": policy, "setting": setting, "load": load, "slo": factor}
                self.lines.keep(part="serve", **shown, **row, **ids, **counted)
        self.lines.keep(part="policy", policy=policy)
        self._pack()

    def _deadlines(self, server: Server, factor: float) -> dict[str, int]:
        """Return by graph a deadline from the arrival on."""
        base = server.state.latency.base[0]
        return {
            graph.name: round(factor * graph.critical_path([base[task.function] for task in graph.tasks]))
            for graph in server.state.catalogue.graphs
        }


def main() -> None:
    """Measure what is missing, until the budget of time is spent."""
    given = flags(__doc__).parse_args()
    if given.dry:
        os.environ["HEADWAY_SMALL"] = "1"
    os.environ.setdefault("HEADWAY_WEIGHTS", str(given.work / "pictures"))
    run(Esg, given, "esg.jsonl")


if __name__ == "__main__":
    main()

"""Digests of requests on a fleet: every policy in every scenario that ships, central and not, with failures."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from tests.golden.training import of_document

PLACING = ("compass", "hash", "heft", "jit", "headway")
CONFIGURING = ("esg", "stagewise", "plan-once", "exact", "infless", "headway")
SCENARIOS = {
    "chat": (("compass", "headway"), {"rate": 20.0, "requests": 120}),
    "compass": (PLACING, {"rate": 2.0, "requests": 120}),
    "compass-slo": (CONFIGURING, {"requests": 100}),
    "esg": (CONFIGURING, {"requests": 250}),
    "pipelines": ((*CONFIGURING, "compass", "jit", "hash", "heft"), {"requests": 150}),
}
OPTIONS = {
    "compass": (
        "compass(adjust=off)",
        "compass(load=off)",
        "compass(cache=off)",
        "compass(evict=fifo)",
        "compass(prefetch=0,adjust_at=start)",
        "compass(estimate=reserved,patience=3,ingress=off)",
        "hash(salt=5)",
        "heft(ingress=off)",
        "jit(start=hash,patience=1)",
        "jit(salt=3,adjust_at=start)",
        "headway(prefetch=0)",
        "headway(evict=fifo,drop=off)",
    ),
    "compass-slo": (
        "esg(together=on)",
        "esg(ranks=2,group=2)",
        "exact(together=on)",
        "headway(drop=off)",
        "aquatope",
    ),
    "esg": (
        "esg(late=plan,patience=1)",
        "esg(prewarm=off,deviations=0)",
        "stagewise(ranks=1,prewarm=off)",
        "plan-once(cutoff=20,late=plan)",
        "exact(ranks=1,deviations=1)",
        "infless(scale=1s,window=1s,metric=code,grid=off)",
        "aquatope",
        "aquatope(rounds=4,batch=on,hold=off,shrink=on)",
        "headway(drop=off)",
        "fast-gshare",
        "fast-gshare(every=1s,wait=off)",
        "orion-dag",
    ),
}


def cases() -> Iterator[tuple[str, partial[str]]]:
    """Every case by its name."""
    for name, document in documents():
        yield name, partial(of_document, document)


def served(scenario: str, policy: str, **tables: Any) -> dict[str, Any]:
    """A few requests of a scenario under one policy."""
    _, workload = SCENARIOS[scenario]
    return {
        "serving": {"scenario": scenario, **tables.pop("serving", {})},
        "workload": {**workload, "overload": True, **tables.pop("workload", {})},
        "policy": {"name": policy},
        "run": {"seed": 7},
        **tables,
    }


def documents() -> Iterator[tuple[str, dict[str, Any]]]:
    """Policies in every setting that concerns them; their options in one scenario."""
    for scenario, (policies, _) in SCENARIOS.items():
        for policy in policies:
            for control in ("central", "decentralised") if policy in PLACING else ("central",):
                yield f"{scenario}/{policy}, {control}", served(scenario, policy, serving={"control": control})
            failures = {"every": "10s", "repair": "5s"} if scenario == "compass" else {"every": "1s", "repair": "1s"}
            yield f"{scenario}/{policy}, failures", served(scenario, policy, failures=failures)
        for policy in OPTIONS.get(scenario, ()):
            yield f"{scenario}/{policy}", served(scenario, policy)
    for policy in PLACING:
        yield f"compass/{policy}, authors", served("compass", policy, serving={"fidelity": "authors"})
        yield f"compass/{policy}, stale", served("compass", policy, serving={"push_interval": "1s", "workers": 9})
    yield from _loads()
    for scenario, policy in (("compass", "compass"), ("compass", "headway"), ("esg", "esg")):
        taking = {"controller": "fixed=5ms,state=20us"}
        failures = {"every": "10s", "repair": "5s"}
        yield f"{scenario}/{policy}, controller", served(scenario, policy, serving=taking, failures=failures)


def _loads() -> Iterator[tuple[str, dict[str, Any]]]:
    """Measured times, heavy load (where requests share a batch), bursts, tenants, interference."""
    heavy: dict[str, Any] = {"serving": {"setting": "relaxed-heavy"}, "workload": {"requests": 400}}
    for policy in CONFIGURING:
        yield f"esg/{policy}, law", served("esg", policy, serving={"profile": "law"})
        yield f"esg/{policy}, heavy", served("esg", policy, **_copied(heavy))
        bursts = {"arrivals": "onoff", "rate": 40, "requests": 300}
        yield f"esg/{policy}, bursts", served("esg", policy, workload=bursts)
    for policy in ("compass", "headway"):
        gamma = {"arrivals": "gamma:3", "tenants": 4, "slo": "20s"}
        yield f"compass/{policy}, gamma, tenants, deadline", served("compass", policy, workload=gamma)
    for policy in ("esg", "headway"):
        beside = {"interference": "h200"}
        yield f"esg/{policy}, interference", served("esg", policy, serving=beside)
        rare = {"mtbf": "10s", "repair": "1s"}
        yield f"pipelines/{policy}, drawn failures", served("pipelines", policy, failures=rare)
    for scaler in ("utilisation(every=2s,window=5s)", "queue(every=2s,window=5s)", "headway(every=2s,smooth=5s)"):
        scaled = {"autoscale": scaler, "startup": "3s", "workers": 8}
        yield f"compass/compass, {scaler}", served("compass", "compass", serving=scaled, workload={"slo": "3L"})


def _copied(tables: dict[str, Any]) -> dict[str, Any]:
    return {name: dict(table) for name, table in tables.items()}

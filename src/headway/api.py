"""Headway from Python: the verbs of the command line, for notebooks and scripts.

``work = hw.jobs("sacct.txt", cluster="nodes.txt")`` says what is to be scheduled; ``hw.simulate`` and ``hw.compare``
play it; a ``Run`` and a ``Comparison`` answer questions. Every setting that has a flag is a keyword of the same name:
``--preemption-cost 30s`` is ``preemption_cost="30s"``; ``set={"cluster.tenancy": "walls"}`` is for those without one.
"""

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from headway.errors import ExperimentError
from headway.experiment import common_flags, given
from headway.experiment.environment import Environment
from headway.experiment.files import Named, copied, read, typed, under_each
from headway.experiment.flags import Flag, document_of
from headway.experiment.pool import LocalPool
from headway.experiment.registry import domain, domain_of
from headway.experiment.result import Comparison, Run, opened_run, played
from headway.experiment.sweep import Sweep
from headway.experiment.sweep import sweep as run_sweep
from headway.formats import toml
from headway.formats.plugins import GIVEN

Policy = Any
"""A policy as text, ``srtf+easy``, or an object of one's own class."""


class Work:
    """What is to be scheduled: a scale and its settings."""

    def __init__(self, scale: str, document: toml.Document) -> None:
        self.domain = domain(scale)
        self.document: toml.Document = {"scale": scale, **document}

    def with_settings(self, **settings: Any) -> "Work":
        """Return the same work with more settings, by the names of the flags."""
        return Work(self.domain.name, _merged(self.document, self.domain.flags, settings))

    def __repr__(self) -> str:
        keys = ", ".join(f"{key}={value!r}" for key, value in toml.leaves(self.document) if key != "scale")
        return f"hw.{self.domain.name}: {keys or 'no settings'}"


def _merged(document: toml.Document, flags: Iterable[Flag], settings: Mapping[str, Any]) -> toml.Document:
    """Return a document with settings put into it; ``set`` holds keys that have no flag, and comes last."""
    own = settings.get("set") or {}
    flagged = document_of((*flags, *common_flags.ALL), {key: each for key, each in settings.items() if key != "set"})
    whole = copied(document)
    for key, value in toml.leaves(flagged):
        toml.put(whole, key, value)
    for assignment in own if not isinstance(own, Mapping) else ():
        toml.override(whole, assignment)
    for key, value in own.items() if isinstance(own, Mapping) else ():
        toml.put(whole, key, value)
    return whole


# --- what is scheduled --------------------------------------------------------------------------------------------


def work(scale: str, what: Mapping[str, Any], **settings: Any) -> Work:
    """Say what is to be scheduled, by the name of its scale."""
    flags = domain(scale).work
    return Work(scale, document_of(flags, what)).with_settings(**settings)


def jobs(trace: Any = None, **settings: Any) -> Work:
    """Say which training jobs: a file, a polars or pandas frame, or ``hw.synthetic(…)``; and on which cluster."""
    table = given.trace_table(trace)
    if "cluster" in settings and isinstance(settings["cluster"], str | PathLike):
        settings["cluster"] = [str(settings["cluster"])]
    return Work("jobs", {"trace": table} if table else {}).with_settings(**settings)


def fleet(scenario: str | PathLike[str], **settings: Any) -> Work:
    """Say which inference pipelines on which fleet: the name of a scenario, or a file of one's own."""
    return work("fleet", {"scenario": str(scenario)}, **settings)


def gpu(high: str | Sequence[str], low: str | Sequence[str] = (), **settings: Any) -> Work:
    """Say which programs share one GPU: those above, and those below."""
    above, below = ([each] if isinstance(each, str) else list(each) for each in (high, low))
    return work("gpu", {"high": above, "low": below}, **settings)


def synthetic(jobs: int, *, kind: str = "synthetic", **settings: Any) -> given.Synthetic:
    """Say that jobs are drawn: like those of the Philly trace, or with ``kind="synergy"`` as Synergy draws them."""
    return given.Synthetic(kind, {"jobs": jobs, **settings})


# --- verbs --------------------------------------------------------------------------------------------------------


def simulate(work: Work, policy: Policy = None, **settings: Any) -> Run:
    """Play one policy; return the run."""
    found = simulate_all(_with_policy(work, policy, settings), keep=True)
    _stop_if_stopped(found)
    return found.runs[0]


def simulate_all(work: Work, *, keep: bool) -> Comparison:
    """Play one policy, all its seeds, and return it as a comparison of one."""
    return played([("", typed(copied(work.document), "settings"))], single=True, keep=keep)


def _with_policy(work: Work, policy: Policy, settings: Mapping[str, Any]) -> Work:
    """Return work with settings and a policy; without one, its own."""
    named = {} if policy is None else {"policy": given.policy_name(policy)}
    return work.with_settings(**settings, **named)


def compare(
    work: Work, policies: Sequence[Policy], *, processes: int = 1, keep: bool = True, **settings: Any
) -> Comparison:
    """Play several policies over the same work, side by side; return their table, figures and runs."""
    names = given.policy_names(policies)
    document = work.with_settings(**settings).document
    at_once = 1 if any(GIVEN in name for name in names) else processes  # objects are known in this process alone
    found = played(under_each(document, names), at_once, keep=keep)
    if keep:
        _stop_if_stopped(found)
    return found


def run(path: str | PathLike[str], *, processes: int = 1, set: Sequence[str] = ()) -> Comparison:
    """Run an experiment file, with a run for each of its variants."""
    return run_all(read(Path(path), set), processes, keep=True)


def run_all(experiments: Sequence[Named], processes: int, *, keep: bool) -> Comparison:
    """Run the experiments of one file."""
    together = domain_of(experiments[0][1]).together(experiments)
    return played(together, processes, single=len(together) == 1, keep=keep)


def sweep(
    work: Work,
    folder: str | PathLike[str],
    vary: Mapping[str, Sequence[Any]],
    *,
    processes: int = 1,
    **settings: Any,
) -> Sweep:
    """Run every combination of some keys' values; what is done in the folder is not done again."""
    axes = {key: [given.policy_name(each) if key == "policy.name" else each for each in vary[key]] for key in vary}
    return run_sweep(work.with_settings(**settings).document, axes, Path(folder), LocalPool(processes))


def open(folder: str | PathLike[str], *, trust: bool = False) -> Run:
    """Return a run that was kept; a Python file that it names is run only if it is trusted."""
    return opened_run(Path(folder), trust=trust)


def environment(work: Work, policy: Policy = None, **settings: Any) -> Environment:
    """Return a run that is played one decision at a time, for learned policies."""
    return Environment(typed(copied(_with_policy(work, policy, settings).document), "settings"))


def _stop_if_stopped(found: Comparison) -> None:
    """Raise what Ctrl-C raises, where it ended a run in good order."""
    if found.stopped:
        raise KeyboardInterrupt(found.stopped)
    if not found.outcomes:
        raise ExperimentError("nothing was run")

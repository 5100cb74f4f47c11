"""Headway from Python: the verbs of the command line, for notebooks and scripts.

``work = hw.jobs("sacct.txt", cluster="nodes.txt")`` says what is to be scheduled; ``hw.simulate`` and ``hw.compare`` play
it; a ``Run`` and a ``Comparison`` answer questions. Every setting that has a flag is a keyword of the same name:
``--preemption-cost 30s`` is ``preemption_cost="30s"``; whatever has none goes into ``set={"cluster.tenancy": "walls"}``.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.errors import ExperimentError
from headway.experiment import common_flags, given, several
from headway.experiment.environment import Environment
from headway.experiment.files import read, under_each, variants
from headway.experiment.flags import Flag, document_of
from headway.experiment.folder import open_run
from headway.experiment.measured import against, baseline_of
from headway.experiment.registry import domain
from headway.experiment.result import Comparison, Run, compared, simulated
from headway.formats import toml

if TYPE_CHECKING:
    from headway.experiment.sweep import Sweep

Policy = Any
"""A policy as text, ``srtf+easy``, or an object of one's own class."""


class Work:
    """What is to be scheduled: a scale and its settings. ``with_settings`` gives another one."""

    def __init__(self, scale: str, document: toml.Document) -> None:
        self.domain = domain(scale)
        self.document: toml.Document = {"scale": scale, **document}

    def with_settings(self, settings: Mapping[str, Any]) -> "Work":
        """Return the same work with more settings, by the names of the flags."""
        return Work(self.domain.name, merged(self.document, self.domain.flags, settings))

    def __repr__(self) -> str:
        keys = ", ".join(f"{key}={value!r}" for key, value in toml.leaves(self.document) if key != "scale")
        return f"hw.{self.domain.name}: {keys or 'no settings'}"


def merged(document: toml.Document, flags: Iterable[Flag], settings: Mapping[str, Any]) -> toml.Document:
    """Return a document with settings put into it; ``set`` holds keys that have no flag, and comes last."""
    settings = dict(settings)
    own = settings.pop("set", None) or {}
    whole: toml.Document = {}
    for source in (document, document_of((*flags, *common_flags.ALL), settings)):
        for key, value in toml.leaves(source):
            toml.put(whole, key, value)
    for assignment in own if not isinstance(own, Mapping) else ():
        toml.override(whole, assignment)
    for key, value in own.items() if isinstance(own, Mapping) else ():
        toml.put(whole, key, value)
    return whole


# --- what is scheduled --------------------------------------------------------------------------------------------


def jobs(trace: Any = None, **settings: Any) -> Work:
    """Say which training jobs: a file, a polars or pandas frame, or ``hw.synthetic(…)``; and on which cluster."""
    table = given.trace_table(trace)
    return Work("jobs", {"trace": table} if table else {}).with_settings(settings)


def fleet(scenario: str, **settings: Any) -> Work:
    """Say which inference pipelines on which fleet: the name of a scenario, or a file of one's own."""
    return Work("fleet", {"serving": {"scenario": str(scenario)}}).with_settings(settings)


def gpu(high: str | Sequence[str], low: str | Sequence[str] = (), **settings: Any) -> Work:
    """Say which programs share one GPU: those above, and those below."""
    above, below = ([each] if isinstance(each, str) else list(each) for each in (high, low))
    return Work("gpu", {"gpu": {"high": above, "low": below}}).with_settings(settings)


def synthetic(jobs: int, *, kind: str = "synthetic", **settings: Any) -> given.Synthetic:
    """Say that jobs are drawn: like those of the Philly trace, or with ``kind="synergy"`` as Synergy draws them."""
    return given.Synthetic(kind, {"jobs": jobs, **settings})


# --- verbs --------------------------------------------------------------------------------------------------------


def simulate(work: Work, policy: Policy = "", **settings: Any) -> Run:
    """Play one policy; return the run."""
    whole = work.with_settings(settings)
    document = dict(whole.document)
    if policy != "":
        toml.put(document, "policy.name", given.policy_name(policy))
    return simulated(document)


def compare(work: Work, policies: Sequence[Policy], *, processes: int = 1, **settings: Any) -> Comparison:
    """Play several policies over the same work, side by side; return their table, figures and runs."""
    whole = work.with_settings(settings)
    return compared(whole.document, given.policy_names(policies), processes)

"""Headway from Python: the verbs of the command line, for notebooks and scripts.

``work = hw.Jobs("sacct.txt", cluster="nodes.txt")`` says what is to be scheduled; ``hw.simulate`` and ``hw.compare``
play it; a ``Run`` and a ``Comparison`` answer questions. Every setting that has a flag is a keyword of the same name:
``--preemption-cost 30s`` is ``preemption_cost="30s"``; ``set={"cluster.tenancy": "walls"}`` is for those without one.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from os import PathLike, fspath
from typing import Any, Self, TypeVar

from headway.errors import ExperimentError, unknown_name
from headway.formats import toml
from headway.jobs.tables.settings import check_synergy, check_synthetic
from headway.plugins import GIVEN
from headway.runs.answer import Answer
from headway.runs.blame import own_code
from headway.runs.environment import Environment
from headway.runs.folder.stored import stored
from headway.runs.registry import DOMAINS, domain, domain_of
from headway.runs.result import Comparison, Run, played, silent
from headway.runs.settings import common_flags, python_input
from headway.runs.settings.files import Named, called, copied, for_each_policy, labelled, read, typed
from headway.runs.sweep.pool import LocalPool
from headway.runs.sweep.sweep import Sweep, sweep as run_sweep

Ended = TypeVar("Ended", Comparison, Answer)
Policy = Any
"""A policy as text, ``srtf+easy``, or an object of one's own class."""


class Work:
    """What is to be scheduled: a scale and its settings."""

    def __init__(self, scale: str, document: toml.Document, /, **settings: Any) -> None:
        self.domain = domain(scale)
        self.document: toml.Document = {"scale": scale, **document}
        self._put(settings)

    def with_settings(self, **settings: Any) -> Self:
        """Return the same work with more settings, by the names of the flags; ``set`` holds keys that have none."""
        changed = copy(self)
        changed.document = copied(self.document)
        changed._put(settings)
        return changed

    def _put(self, settings: Mapping[str, Any]) -> None:
        flags = (*self.domain.work, *self.domain.flags, *common_flags.ALL)
        for name in settings.keys() - {"set", *(flag.name for flag in flags)}:
            for other in map(domain, DOMAINS):
                if name in (flag.name for flag in (*other.work, *other.flags)):
                    raise ExperimentError(f"setting {name} is one of {other.name}, not of {self.domain.name}")
        python_input.put_settings(self.document, flags, settings)

    def __repr__(self) -> str:
        keys = ", ".join(f"{key}={value!r}" for key, value in toml.leaves(self.document) if key != "scale")
        kind = self.domain.name if type(self) is Work else type(self).__name__
        return f"hw.{kind}: {keys or 'no settings'}"


# --- what is scheduled --------------------------------------------------------------------------------------------


class Jobs(Work):
    """Training jobs and the cluster that they come to: ``hw.Jobs("jobs.csv", nodes=16, gpus_per_node=8)``.

    The trace is a file, a polars or pandas frame, or ``hw.synthetic(…)``; ``cluster`` is a file of nodes. Every flag of
    ``headway jobs simulate`` is a keyword.
    """

    def __init__(self, trace: Any = None, **settings: Any) -> None:
        if trace is None and not settings:
            cluster = "and a cluster: nodes=2, gpus_per_node=8"
            raise ExperimentError(f"no jobs: give a file, a polars or pandas frame, or hw.synthetic(…); {cluster}")
        table = python_input.trace_table(trace)
        super().__init__("jobs", {"trace": table} if table else {}, **settings)


class Fleet(Work):
    """Inference pipelines on a fleet: ``hw.Fleet("compass", workers=5)``.

    The scenario goes by its name, or is a file of one's own. Every flag of ``headway fleet simulate`` is a keyword.
    """

    def __init__(self, scenario: str | PathLike[str], **settings: Any) -> None:
        super().__init__("fleet", {}, scenario=scenario, **settings)
        with own_code():
            self.domain.check(typed(copied(self.document), "settings"))


class Gpu(Work):
    """Programs that share one GPU: ``hw.Gpu("resnet50", ["bert", "matmul"], seconds=0.1)``.

    First the program above, or a list of them, then those below: by their names, or as files. Every flag of
    ``headway gpu simulate`` is a keyword.
    """

    def __init__(self, high: str | Sequence[str], low: str | Sequence[str] = (), **settings: Any) -> None:
        super().__init__("gpu", {}, high=[high] if isinstance(high, PathLike) else high, low=low, **settings)


_KINDS: dict[str, type[Work]] = {"jobs": Jobs, "fleet": Fleet, "gpu": Gpu}


def work(scale: str, **settings: Any) -> Work:
    """Say what is to be scheduled, by the name of its scale and the names of its arguments and flags."""
    found = Work.__new__(_KINDS.get(scale, Work))
    Work.__init__(found, scale, {}, **settings)
    return found


def synthetic(jobs: int, *, kind: str = "synthetic", **settings: Any) -> python_input.Synthetic:
    """Say that jobs are drawn: like those of the Philly trace, or with ``kind="synergy"`` as Synergy draws them."""
    if kind not in ("synthetic", "synergy"):
        raise ExperimentError(unknown_name("kind", str(kind), ("synthetic", "synergy")))
    workload = python_input.Synthetic(kind, {"jobs": jobs, **settings})
    table = typed({"scale": "jobs", "trace": python_input.trace_table(workload)}, "hw.synthetic").trace
    check_synthetic(table.synthetic) if table.synthetic else check_synergy(table.synergy)
    return workload


# --- verbs --------------------------------------------------------------------------------------------------------


def simulate(work: Work, policy: Policy = None, *, label: str = "", **settings: Any) -> Run:
    """Play one policy; return the run. Of several seeds the numbers are over all, and the tables of the first."""
    labels = [label] if label else []
    return _ended(simulate_all(_with_policy(work, policy, settings), keep=True, labels=labels)).runs[0]


def simulate_all(work: Work, *, keep: bool, labels: Sequence[str] = ()) -> Comparison:
    """Play one policy, all its seeds, and return it as a comparison of one."""
    experiment = typed(copied(work.document), "settings")
    return played(labelled([(called(experiment.policy.name), experiment)], labels), single=True, keep=keep)


def _with_policy(work: Work, policy: Policy, settings: Mapping[str, Any]) -> Work:
    """Return work with settings and a policy; without one, its own."""
    named = {} if policy is None or policy == "" else {"policy": python_input.policy_name(policy)}
    return _settled(work, {**settings, **named})


def compare(
    work: Work,
    policies: Policy | Iterable[Policy],
    *,
    processes: int = 1,
    keep: bool = True,
    labels: Sequence[str] = (),
    **settings: Any,
) -> Comparison:
    """Play several policies over the same work, side by side; return their table, figures and runs.

    ``labels`` are what to call them, in their order.
    """
    names = python_input.policy_names(policies)
    document = _settled(work, settings).document
    at_once = python_input.whole(processes, "processes")
    if any(GIVEN in name for name in names):  # objects are known in this process alone
        at_once = 1
    comparison = played(labelled(for_each_policy(document, names), labels), at_once, keep=keep)
    return _ended(comparison) if keep else comparison


def run(path: str | PathLike[str], *, processes: int = 1, set: Any = (), **settings: Any) -> Comparison:
    """Run an experiment file, with a run for each of its variants; ``seeds``, ``out`` and their like as settings."""
    return _ended(
        run_all(
            read(python_input.path(path, "path"), set, **settings),
            python_input.whole(processes, "processes"),
            keep=True,
        )
    )


def run_all(experiments: Sequence[Named], processes: int, *, keep: bool) -> Comparison:
    """Run the experiments of one file."""
    together = domain_of(experiments[0][1]).comparable_variants(experiments)
    return played(together, processes, single=len(together) == 1, keep=keep)


def sweep(
    work: Work,
    folder: str | PathLike[str],
    vary: Mapping[str, Iterable[Any]],
    *,
    processes: int = 1,
    retry: bool = False,
    **settings: Any,
) -> Sweep:
    """Run every combination of some keys' values; what is done in the folder is not done again."""
    document = _settled(work, settings).document
    place, axes = python_input.path(folder, "folder"), python_input.axes(vary)
    pool = LocalPool(python_input.whole(processes, "processes"))
    grid = run_sweep(document, axes, place, pool, retry=retry, note=silent)
    if grid.stopped:
        raise KeyboardInterrupt(f"stopped; the same sweep goes on with what is left to do in {folder}")
    return grid


def backtest(
    work: Work,
    policies: Policy | Iterable[Policy] = "site",
    *,
    config: Any = None,
    csv: str | PathLike[str] = "",
    squeue: str | PathLike[str] = "",
    **settings: Any,
) -> Answer:
    """Replay a site's history under some policies; say how far simulated starts are from the recorded ones.

    ``config`` is the site's slurm.conf; the policy ``site`` is the one that it describes. ``csv`` is a file for the
    table of jobs, ``squeue`` one of sampled queues.
    """
    return _ended(backtest_all(work, policies, config, fspath(csv), fspath(squeue), **settings))


def backtest_all(
    work: Work, policies: Policy | Iterable[Policy], config: Any, csv: str = "", squeue: str = "", **settings: Any
) -> Answer:
    """Replay a history under some policies, until one is stopped."""
    from headway.jobs.ask import backtest as backtests

    document = copied(_settled(work, settings).document)
    return backtests.answer(document, python_input.policy_names(policies), config, csv, squeue)


def tune(
    work: Work,
    knobs: str | Iterable[str],
    lower: str,
    keep: str | Iterable[str] = (),
    *,
    test_from: str = "",
    processes: int = 1,
    **settings: Any,
) -> Answer:
    """Search rules of a Slurm site for an aim, ``wait of QOS normal``, and test what is found on a later window.

    A knob is ``qos long.MaxTRESPU=gres/gpu=16|24|32``. What is to be kept, ``wait of QOS long 5%``, may rise by that.
    """
    return _ended(tune_all(work, knobs, lower, keep, test_from, processes, **settings))


def tune_all(
    work: Work,
    knobs: str | Iterable[str],
    lower: str,
    keep: str | Iterable[str],
    test_from: str,
    processes: int,
    **settings: Any,
) -> Answer:
    """Search rules of a site, until it is stopped."""
    from headway.jobs.ask import tuning

    turned, kept = ([each] if isinstance(each, str) else list(each) for each in (knobs, keep))
    document = copied(_settled(work, settings).document)
    return tuning.answer(document, turned, lower, kept, test_from, python_input.whole(processes, "processes"))


def plan(
    graph: str | PathLike[str],
    *,
    rate: float | None = None,
    in_time: float = 0.99,
    scenario: str | None = None,
    policies: Policy | Iterable[Policy] | None = None,
    report: str | PathLike[str] | None = None,
    **settings: Any,
) -> Answer:
    """Say how many workers of which kind answer so many requests a second in time, and what they cost.

    ``graph`` is a pipeline or a scenario by name, or a scenario file of one's own; settings are those of ``hw.Fleet``.
    ``policies`` compares several; ``report`` is a page with the curve of each.
    """
    from headway.fleet.ask import capacity_planning, planning

    if policies is not None and settings.get("policy") is not None:
        raise ExperimentError("--policy and --policies: give one of them")
    trial = work("fleet", **capacity_planning.settings_for(fspath(graph), scenario)).with_settings(
        rate=rate, **settings
    )
    if policies is None:
        experiments = [typed(copied(trial.document), "settings")]
    else:
        names = python_input.policy_names(policies, trial.domain.example_policies)
        experiments = [each for _, each in for_each_policy(trial.document, names)]
    with own_code():
        for each in experiments:
            trial.domain.check(each)  # one that cannot be made is refused before the first is tried
    return planning.answer(experiments, in_time, None if report is None else fspath(report))


def predict(high: str | PathLike[str], low: Any, **settings: Any) -> Answer:
    """Say what programs would do to each other on one GPU, for each way to share it.

    Settings are those of ``hw.Gpu``, and ``alone``: what a request of ``high`` takes alone on the machine in question.
    """
    from headway.gpu import predict as predicting

    below = [low] if isinstance(low, str | PathLike) else low
    return predicting.answer(fspath(high), [fspath(each) for each in below], settings)


def open(folder: str | PathLike[str], *, trust: bool = False) -> Run:
    """Return a run that was kept; a Python file that it names is run only if it is trusted."""
    return Run(stored(python_input.path(folder, "folder"), trust=trust), trust=trust)


def environment(work: Work, policy: Policy = None, **settings: Any) -> Environment:
    """Return a run that is played one decision at a time, for learned policies."""
    return Environment(typed(copied(_with_policy(work, policy, settings).document), "settings"))


def _settled(work: Work, settings: Mapping[str, Any]) -> Work:
    """Return work with settings."""
    if not isinstance(work, Work):
        raise ExperimentError(f"what is scheduled is hw.Jobs(…), hw.Fleet(…) or hw.Gpu(…), not a {type(work).__name__}")
    return work.with_settings(**settings)


def _ended(result: Ended) -> Ended:
    """Return runs that went to their end; raise what Ctrl-C raises, where it ended one of them in good order."""
    if result.stopped:
        raise KeyboardInterrupt(result.stopped)
    return result

"""A site's own history through a policy, against the starts that it recorded."""

from collections.abc import Mapping

from headway import experiment, traces
from headway.errors import TraceError
from headway.formats.settings import Experiment
from headway.metrics.training.backtest import Backtest, backtest
from headway.metrics.training.ledger import Ledger


def recorded(each: Experiment) -> Mapping[str, int]:
    """When each job of the trace started, by its name, in nanoseconds since the run began."""
    table = each.trace
    starts = traces.load(table.path, table.format, strict=table.strict, columns=table.map).starts
    if not starts:
        raise TraceError(f"trace {table.path}: says of no job when it started: there is nothing to compare with")
    return starts


def replayed(
    each: Experiment, starts: Mapping[str, int], progress: experiment.Progress | None = None
) -> tuple[Backtest, experiment.RunResult]:
    """The history played through a policy, and how far it is from what was recorded."""
    result = experiment.run(each, progress)
    ledger = Ledger(result.tape, result.scene.jobs, result.scene.cluster)
    return backtest(ledger, starts, result.policy), result

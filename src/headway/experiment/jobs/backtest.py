"""A site's own history through a policy, against the starts that it recorded."""

from collections.abc import Mapping

from headway import traces
from headway.errors import ExperimentError, TraceError
from headway.experiment.domain import Progress, RunResult
from headway.experiment.play import run
from headway.formats.settings import Experiment
from headway.metrics.training.backtest import Backtest, backtest
from headway.metrics.training.ledger import Ledger


def recorded(each: Experiment) -> Mapping[str, int]:
    """How long each job of the trace really waited for its first start, by its name, in nanoseconds."""
    table = each.trace
    if not table.path:
        raise ExperimentError("a backtest needs a history: name a trace (headway jobs backtest TRACE …)")
    if str(table.load) != "1" or table.estimates != "trace":
        raise ExperimentError("a backtest replays the history as it was: trace.load and trace.estimates cannot be set")
    asked = {"strict": table.strict, "skip_bad_rows": table.skip_bad_rows}
    trace = traces.load(table.path, table.format, columns=table.map, **asked)
    if not trace.starts:
        raise TraceError(f"trace {table.path}: says of no job when it started: there is nothing to compare with")
    return {job.name: trace.starts[job.name] - job.submit for job in trace.jobs if job.name in trace.starts}


def replayed(
    each: Experiment, waits: Mapping[str, int], progress: Progress | None = None
) -> tuple[Backtest, RunResult]:
    """The history played through a policy, and how far it is from what was recorded."""
    result = run(each, progress)
    ledger = Ledger(result.tape, result.scene.jobs, result.scene.cluster)
    return backtest(ledger, waits, result.policy), result

"""Make the terminal tables of a backtest: errors of simulated starts, in all, by size and by partition."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.table import Table

from headway.metrics.training.backtest import Backtest, Errors
from headway.report.terminal import framed
from headway.units import format_duration, seconds

_COLUMNS = ("jobs", "wait recorded", "simulated", "error median", "p90", "bias")


def errors_table(title: str, groups: Sequence[Errors], first: str) -> Table:
    """Return one line a group; median and p90 are of absolute errors, the bias has a sign."""
    table = framed([first], _COLUMNS, title)
    for group in groups:
        times = (group.wait_recorded_mean_s, group.wait_simulated_mean_s, group.error_p50_s, group.error_p90_s)
        table.add_row(group.group, f"{group.jobs:,}", *(said(time) for time in times), signed(group.bias_s))
    return table


def said(time_s: float) -> str:
    """Return a time as people say it; below a minute with a tenth of a second."""
    return f"{time_s:.1f} s" if time_s < 60 else format_duration(seconds(round(time_s)))


def signed(time_s: float) -> str:
    """Return the same with its sign; what rounds to nothing has none."""
    text = said(abs(time_s))
    return text if text == "0.0 s" else f"{'+' if time_s > 0 else '-'}{text}"


def tables(backtests: Sequence[Backtest], names: Sequence[str]) -> Iterator[Table]:
    """Yield all tables: policies side by side under these names, then those of the first by size and partition."""
    whole = [replace(backtest.whole, group=name) for name, backtest in zip(names, backtests, strict=True)]
    yield errors_table("", whole, "policy")
    first = backtests[0]
    whose = f", {names[0]}" if len(backtests) > 1 else ""
    yield errors_table(f"by size{whose}", first.by_size, "size")
    if len(first.by_partition) > 1:
        yield errors_table(f"by partition{whose}", first.by_partition, "partition")


def missed(backtest: Backtest) -> list[str]:
    """Return a line about jobs that are compared with nothing, where there are such."""
    parts = [
        *([f"{backtest.only_recorded:,} started only in the record"] if backtest.only_recorded else []),
        *([f"{backtest.only_simulated:,} only in the simulation"] if backtest.only_simulated else []),
    ]
    return [f"({' and '.join(parts)}; {backtest.jobs:,} jobs in all)"] if parts else []


def verdict(backtest: Backtest) -> str:
    """Return one sentence on what to believe."""
    if not backtest.compared:
        return "no job started in both: there is nothing to believe"
    half, most = said(backtest.whole.error_p50_s), said(backtest.whole.error_p90_s)
    correlation = backtest.rank_correlation
    rank = "" if correlation is None else f"; the order of waits agrees to {correlation:.2f}"
    return (
        f"half of the {backtest.compared:,} jobs start within {half} of their recorded start, "
        f"nine of ten within {most}{rank}"
    )

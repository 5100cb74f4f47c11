"""Make the terminal tables of a shadow: waits avoided, by tenant, QOS and cause, beside the backtest's error."""

from collections.abc import Iterator, Sequence

from rich.table import Table

from headway.jobs.show.terminal.backtest import said, signed
from headway.jobs.slurm.shadow.savings import GROUPS, Saving, Savings
from headway.show.terminal import framed

_COLUMNS = (
    "jobs",
    "real wait",
    "in shadow",
    "saved a job",
    "interval",
    "saved h",
    "error",
    "its interval",
    "beyond it",
)
_TITLES = {"qos": "QOS", "cause": "cause of the real wait"}
MOST_ROWS = 10
"""So many groups of a kind are shown, those that save most; --json has all."""


def tables(savings: Savings) -> Iterator[Table]:
    """Yield the table of all jobs, then one for each kind of group that there are several of."""
    yield savings_table("", (savings.whole,), "jobs that ended")
    for kind in GROUPS:
        groups, called = savings.groups[kind], _TITLES.get(kind, kind)
        if len(groups) > 1:
            which = f", the {MOST_ROWS} of {len(groups):,} that save most" if len(groups) > MOST_ROWS else ""
            yield savings_table(f"by {called}{which}", groups[:MOST_ROWS], called)


def savings_table(title: str, groups: Sequence[Saving], first: str) -> Table:
    """Return one line a group."""
    table = framed([first], _COLUMNS, title)
    for each in groups:
        table.add_row(
            each.group,
            f"{each.jobs:,}",
            said(each.wait_real_mean_s),
            said(each.wait_shadow_mean_s),
            signed(each.saved_mean_s),
            _interval(each.saved_low_s, each.saved_high_s),
            f"{each.saved_total_h:,.1f}",
            "–" if each.error_mean_s is None else signed(each.error_mean_s),
            _interval(each.error_low_s, each.error_high_s),
            {True: "yes", False: "no", None: "–"}[each.beyond_error],
        )
    return table


def _interval(low: float | None, high: float | None) -> str:
    return "–" if low is None or high is None else f"{signed(low)} … {signed(high)}"


def verdict(savings: Savings) -> str:
    """Say in a line what may be claimed."""
    whole = savings.whole
    if not savings.booked:
        return "nothing is booked yet: no job that was submitted since the first look has ended in reality"
    if whole.beyond_error is None:
        what = "the site's own policy is not known (--config)" if whole.error_mean_s is None else "too few jobs ended"
        return f"how far to trust this cannot be said: {what}"
    if whole.least_saved_s is not None:
        return f"saved beyond the backtest's error: at least {said(whole.least_saved_s)} a job"
    return "no saving beyond the backtest's error"

"""Warn about suspicious content of a trace that could be read: one line each, nothing is changed.

A row that breaks a rule is dropped by its reader; these are the patterns that break none and that a person would
want to know of before believing a result.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from headway.jobs.model.job import Job
from headway.units import format_duration, seconds

FloatArray = npt.NDArray[np.float64]

USUAL_NODE = 8
"""GPUs of the node that most clusters of today are made of."""
FEWEST = 10
"""Below so many jobs a pattern is chance."""
_CUT_SHARE = 0.001
_SAME_SHARE = 0.02
_SAME_LEAST_S = 60
_JUMP = 20
_JUMPS_SHOWN = 3
_BURST = 10
_MOMENT_S = 1.0
KILL_WAIT_S = 120.0
"""A limit ends a job so late at most: it is looked at once a minute, and the kill waits half a minute more."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The numbers of all jobs, in order of submission: times in seconds, widths in GPUs."""

    submit: FloatArray
    run: FloatArray
    width: FloatArray
    cpus: FloatArray
    estimate: FloatArray
    failed: npt.NDArray[np.bool_]

    @property
    def ran(self) -> npt.NDArray[np.bool_]:
        """Return which jobs ran at all; others were cancelled before they started."""
        return self.run > 0

    @property
    def outlived(self) -> npt.NDArray[np.bool_]:
        """Return which jobs ran longer than estimated."""
        return (self.estimate > 0) & (self.estimate < self.run)

    @property
    def cut_off(self) -> npt.NDArray[np.bool_]:
        """Return which jobs their time limit ended: they fail soon after it, once the wait before the kill is over."""
        return self.outlived & self.failed & (self.run - self.estimate <= KILL_WAIT_S)

    @property
    def span(self) -> float:
        """Return the time from the first to the last submission."""
        return float(self.submit[-1] - self.submit[0]) if self.submit.size else 0.0


@dataclass(frozen=True, slots=True)
class Oddity:
    """One pattern: its kind, how many jobs it is about, and what to know of it."""

    kind: str
    jobs: int
    line: str


def oddities(jobs: Sequence[Job], columns: Columns, gpus: int = 0) -> list[Oddity]:
    """Return what is odd about these jobs; with ``gpus`` also about them on a cluster of so many."""
    return [
        *_same_durations(columns.run[columns.ran]),
        *_moments(columns.run[columns.ran]),
        *_outlasting(columns),
        *jumps(columns.submit),
        *bursts(columns.submit, "jobs"),
        *_copies(jobs),
        *_unannounced(columns),
        *_awkward(columns.width, gpus),
    ]


def _told(time_s: float) -> str:
    return format_duration(seconds(float(time_s)))


def _same_durations(run: FloatArray) -> Iterator[Oddity]:
    """Find many jobs of exactly the same length: a limit that cut them, or a default that was filled in."""
    lengths, counts = np.unique(run, return_counts=True)
    if not lengths.size:
        return
    last = int(counts[-1])
    if last >= max(FEWEST, _CUT_SHARE * run.size) and lengths.size > 1:
        rule = "and none lasts longer: they may have been cut there"
        yield Oddity("cut", last, f"{last:,} jobs last exactly {_told(lengths[-1])} {rule}")
    often = (counts >= max(FEWEST, _SAME_SHARE * run.size)) & (lengths >= _SAME_LEAST_S)
    often[-1] &= lengths.size == 1
    for at in np.flatnonzero(often):
        line = f"{counts[at]:,} jobs ({100 * counts[at] / run.size:.0f} %) last exactly {_told(lengths[at])}"
        yield Oddity("same-duration", int(counts[at]), line)


def _moments(run: FloatArray) -> Iterator[Oddity]:
    if count := int((run <= _MOMENT_S).sum()):
        yield Oddity("moment", count, f"{count:,} job{'s last' if count > 1 else ' lasts'} a second or less")


def _outlasting(columns: Columns) -> Iterator[Oddity]:
    count = int((columns.run > columns.span).sum())
    if count and columns.span:
        line = f"{count:,} job{'s last' if count > 1 else ' lasts'} longer than the trace spans ({_told(columns.span)})"
        yield Oddity("outlasting", count, line)


def jumps(submit: FloatArray) -> Iterator[Oddity]:
    """Find stretches without a submission, far longer than usual: an outage, missing rows, a clock that was set."""
    instants = np.unique(submit)
    gaps = np.diff(instants)
    if gaps.size < FEWEST:
        return
    usual = np.percentile(gaps, 99, method="lower")
    jumps_at = np.flatnonzero(gaps > _JUMP * usual)
    for at in jumps_at[np.argsort(-gaps[jumps_at], kind="stable")][:_JUMPS_SHOWN]:
        line = (
            f"nothing is submitted for {_told(gaps[at])} after {_told(instants[at])} "
            f"(99 % of the gaps are at most {_told(usual)}): a clock that jumped, or rows that are missing"
        )
        yield Oddity("jump", int((submit <= instants[at]).sum()), line)


def bursts(submit: FloatArray, what: str) -> Iterator[Oddity]:
    """Find many submissions in one second."""
    if not submit.size:
        return
    whole, counts = np.unique(np.floor(submit), return_counts=True)
    most = int(counts.argmax())
    if counts[most] >= _BURST:
        within = int(counts[counts >= _BURST].sum())
        line = (
            f"{within:,} {what} are submitted in the same second as at least {_BURST - 1} others; "
            f"the most, {counts[most]:,}, at {_told(whole[most])}"
        )
        yield Oddity("burst", within, line)


def _copies(jobs: Sequence[Job]) -> Iterator[Oddity]:
    fields = attrgetter("submit", "work", "gpus", "gpu_milli", "tenant", "user", "partition", "cpu_milli", "model")
    if count := len(jobs) - len(set(map(fields, jobs))):
        line = f"{count:,} job{'s are' if count > 1 else ' is'} equal to an earlier one in all but the name"
        yield Oddity("copy", count, line)


def _unannounced(columns: Columns) -> Iterator[Oddity]:
    given = columns.estimate > 0
    missing, count = int((~given).sum()), given.size
    if missing == count:
        yield Oddity("no-estimate", missing, "no job has an estimate: policies are shown the time that it will run")
    elif missing:
        yield Oddity("no-estimate", missing, f"{missing:,} of {count:,} jobs have no estimate")
    if ended := int(columns.cut_off.sum()):
        line = f"{ended:,} job{'s were' if ended > 1 else ' was'} ended by the time limit: failed within 2 min after it"
        yield Oddity("limit-ended", ended, line)
    short = int((columns.outlived & ~columns.cut_off).sum())
    if short:
        line = f"{short:,} job{'s run' if short > 1 else ' runs'} longer than estimated: no time limit ended that"
        yield Oddity("short-estimate", short, line)


def _awkward(width: FloatArray, gpus: int) -> Iterator[Oddity]:
    uneven = int(((width > USUAL_NODE) & (width % USUAL_NODE != 0)).sum())
    if uneven:
        line = (
            f"{uneven:,} job{'s want' if uneven > 1 else ' wants'} more than {USUAL_NODE} GPUs and no multiple of it: "
            f"on nodes of {USUAL_NODE} the last is partly used"
        )
        yield Oddity("uneven", uneven, line)
    large = int((width > gpus).sum()) if gpus else 0
    if large:
        line = f"{large:,} job{'s want' if large > 1 else ' wants'} more than all {gpus:,} GPUs and can never run there"
        yield Oddity("too-wide", large, line)

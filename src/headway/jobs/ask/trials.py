"""Hold combinations of rules that were played against the present ones: how each aim changed, and what was not kept.

A combination is judged by the interval of the relative change of its aim. Where waits fall to 0, or nearly so, that has
none, and the change in seconds counts.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headway.jobs.ask.aims import Aim
from headway.jobs.metrics.changes import Change, changed, in_seconds, mean
from headway.jobs.slurm.site.modify import Value
from headway.statistics.replications import Sample
from headway.units import counted

LEAST_S = 60.0
"""What is to be kept may rise by a minute, however little it was."""
_FEW = 0.01
"""So much of the jobs may leave the queue that completed before: users who cancelled while they waited."""
Chosen = Mapping[str, Value]
"""Values by the keys of settings; empty: the present rules."""
Played = tuple[int, int, tuple[Sample, ...]]
"""A seed, how many jobs were measured, and each aim."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A combination that was played: what each aim came to, and how that differs from the present rules."""

    chosen: Chosen
    samples: tuple[Sample, ...] = ()
    """Of each aim, the first the one to lower."""
    error: str = ""
    """Why there is nothing."""
    changes: tuple[Change, ...] = ()
    refused: int = 0
    """Jobs that run under the present rules and not under these."""
    missed: tuple[str, ...] = ()
    """What was to be kept and is not."""

    @property
    def means(self) -> list[float | None]:
        """Return the mean of each aim, in seconds."""
        return [mean(each.jct_s) for each in self.samples]

    @property
    def better(self) -> bool:
        """Return whether it is better than the present rules, by the rule above."""
        interval = self.changes[0].sure if self.changes else None
        return not self.missed and interval is not None and interval[1] < 0

    @property
    def by_seconds(self) -> bool:
        """Return whether it is judged by the change in seconds, because the aim falls to 0 or nearly so."""
        change = self.changes[0] if self.changes else Change()
        lower = change.value is not None and change.value < 0
        return lower and change.interval is None and change.seconds_interval is not None

    @property
    def unsure(self) -> bool:
        """Return whether the aim is lower, and too few jobs count for an interval of that change."""
        change = self.changes[0] if self.changes and not self.error else Change()
        return change.sure is None and change.value is not None and change.value < 0


def together(runs: Sequence[Played]) -> tuple[Sample, ...]:
    """Return the samples of all seeds as one."""
    if len(runs) < 2:
        return runs[0][2] if runs else ()
    in_order = sorted(runs, key=lambda each: each[0])
    return tuple(
        Sample(
            tuple(f"{seed}:{name}" for seed, _, samples in in_order for name in samples[aim].names),
            np.concatenate([samples[aim].jct_s for _, _, samples in in_order]),
        )
        for aim in range(len(in_order[0][2]))
    )


def compared(
    several: Sequence[Chosen],
    samples: Sequence[tuple[Sample, ...]],
    errors: Mapping[int, str],
    aims: Sequence[Aim],
    level: float,
) -> list[Trial]:
    """Return all trials, each held against the first."""
    reference = samples[0]
    trials = []
    for number, (chosen, own) in enumerate(zip(several, samples, strict=True)):
        if errors.get(number) or not reference or number == 0:
            trials.append(Trial(chosen, own if not errors.get(number) else (), errors.get(number, "")))
            continue
        changes = tuple(_change(mine, base, level) for mine, base in zip(own, reference, strict=True))
        refused = max(len(base.names) - len(mine.names) for mine, base in zip(own, reference, strict=True))
        missed = tuple(_missed(aims, own, reference, refused))
        trials.append(Trial(chosen, own, "", changes, max(0, refused), missed))
    return trials


def _change(mine: Sample, base: Sample, level: float) -> Change:
    return in_seconds(changed(mine, base, level), mine, base, level)


def _completed(sample: Sample) -> int:
    return int(np.isfinite(sample.jct_s).sum())


def _missed(aims: Sequence[Aim], own: Sequence[Sample], reference: Sequence[Sample], refused: int) -> Iterator[str]:
    """Yield what was to be kept and is not."""
    if refused > 0:
        yield f"{counted(refused, 'job')} can no longer run"
    both = [(_completed(base), _completed(mine)) for mine, base in zip(own, reference, strict=True)]
    gone = max(before - after - _FEW * before for before, after in both)
    if gone > 0 and not refused:
        yield "more than 1 % of the jobs no longer complete"
    for aim, mine, base in list(zip(aims, own, reference, strict=True))[1:]:
        after, before = mean(mine.jct_s), mean(base.jct_s)
        if after is not None and before is not None and after > max(before * (1 + aim.tolerance), before + LEAST_S):
            yield str(aim)

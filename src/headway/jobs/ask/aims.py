"""Read what a search is for, ``wait of QOS normal``, and measure it on a run: a number for each of those jobs."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headway.errors import ExperimentError, unknown_name
from headway.jobs.metrics.backtest.errors import labelled
from headway.jobs.metrics.groups import TITLES
from headway.jobs.metrics.ledger import Ledger
from headway.jobs.model.job import Job
from headway.runs.domain import RunResult
from headway.statistics.replications import Sample
from headway.statistics.series import FloatArray
from headway.units import SECOND

TOLERANCE = 0.05
"""What is to be kept may rise by so much, where no tolerance is written."""
METRICS = {"wait": "wait", "time to completion": "jct", "jct": "jct"}
GROUPS = {"qos": "qos", "partition": "partition", "account": "account", "user": "user", "gpu type": "gpu_type"}
_WRITTEN = re.compile(
    rf"(?P<metric>{'|'.join(METRICS)})\s+of\s+(?:(?P<all>all)|(?P<group>{'|'.join(GROUPS)})\s+(?P<name>\S+))"
    r"(?:\s+(?P<tolerance>\d+(?:\.\d+)?)\s*%)?",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Aim:
    """The mean of something over some jobs."""

    metric: str
    """wait or jct."""
    group: str = ""
    """One of the values of ``GROUPS``; empty: all jobs."""
    name: str = ""
    tolerance: float = TOLERANCE

    def __str__(self) -> str:
        what = "wait" if self.metric == "wait" else "time to completion"
        return f"{what} of {f'{TITLES.get(self.group, self.group)} {self.name}' if self.group else 'all'}"

    def check(self, jobs: Sequence[Job]) -> None:
        """Refuse an aim that no job has to do with."""
        if self.group and self.name not in (known := set(labelled(jobs, {})[self.group])):
            named = sorted(known)
            raise ExperimentError(
                f"{self}: {unknown_name(TITLES.get(self.group, self.group), self.name, named[:20])}"
                f"{f', and {len(named) - 20} more' if len(named) > 20 else ''}"
            )

    def sample(self, result: RunResult) -> Sample:
        """Return it for each measured job of a run that is meant, in seconds; nan for one that did not complete."""
        scene = result.scene
        ledger = Ledger(result.tape, scene.jobs, scene.cluster)
        window = scene.window()
        inside = slice(None) if window is None else window.jobs
        times = ledger.wait if self.metric == "wait" else ledger.end - ledger.submit
        values: FloatArray = np.where(ledger.completed, times / SECOND, np.nan)[inside]
        jobs = scene.jobs[inside]
        if not self.group:
            return Sample(_names(jobs), values)
        chosen = np.array([label == self.name for label in labelled(jobs, {})[self.group]], dtype=bool)
        return Sample(_names([job for job, here in zip(jobs, chosen, strict=True) if here]), values[chosen])


def _names(jobs: Sequence[Job]) -> tuple[str, ...]:
    return tuple(job.name or str(job.id) for job in jobs)


def aim_of(text: str, flag: str) -> Aim:
    """Read ``wait of QOS long``, or with a tolerance ``wait of all 5%``."""
    match = _WRITTEN.fullmatch(" ".join(text.split()))
    if match is None:
        raise ExperimentError(
            f"{flag} {text!r} is not understood: write it like 'wait of QOS long', 'time to completion of account bio' "
            "or 'wait of all 5%'; partition, user and GPU type are told apart too"
        )
    tolerance = TOLERANCE if match["tolerance"] is None else float(match["tolerance"]) / 100
    group = "" if match["all"] else GROUPS[match["group"].lower()]
    return Aim(METRICS[match["metric"].lower()], group, match["name"] or "", tolerance)

"""Say how far a simulation of a site may be trusted, by a written rule, and what its errors come from.

The rule is in docs/guides/backtest.md; the numbers are here. It is about waits: recorded ones against those of a
replay under the site's own policy.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from headway.jobs.metrics.backtest import remedies
from headway.jobs.metrics.backtest.errors import Backtest, Errors
from headway.jobs.metrics.sizes import NOTHING
from headway.units import counted

YES, RELATIVE, NO, UNKNOWN = "yes", "relative", "no", "unknown"
CLOSE, NEAR = 0.10, 0.30
"""How far the mean simulated wait may be from the recorded one: for absolute answers, and for relative ones."""
RANKED = 0.5
"""Relative answers also need waits that agree in their order to this much."""
LEAST_WAIT_S = 60.0
"""A mean wait below a minute counts as one: who hardly waits is not judged by seconds."""
FEWEST = 20
"""Fewer jobs are not judged by themselves."""
JUDGED = {"qos": "QOS", "partition": "partition", "gpu_type": "GPU type", "account": "account", "user": "user"}
"""Groups that are judged by themselves, and what they are called."""
MOST_NAMED = 4
LARGE = 0.15
"""A group with so much of all errors, and more than its part of the jobs, is named as a source."""
MOST_SOURCES = 5


@dataclass(frozen=True, slots=True)
class Source:
    """A group of jobs with much of the error, its likely cause, and what would close it."""

    by: str
    group: str
    jobs: int
    share: float
    """Of all absolute errors."""
    bias_s: float
    cause: str
    remedy: str
    rule: str = ""
    """What the cause is about, of ``remedies.RULES``."""

    @property
    def limits(self) -> bool:
        """Return whether a limit is the likely cause."""
        return self.rule in remedies.LIMITS


@dataclass(frozen=True, slots=True)
class Verdict:
    """How far answers may be trusted."""

    level: str
    """yes, relative, no or unknown."""
    text: str
    """In words, one line."""
    policy: str = ""
    """Whose replay it is about."""
    doubtful: tuple[str, ...] = ()
    """Groups that questions should not be about: ``QOS long``."""
    sources: tuple[Source, ...] = ()

    def record(self) -> dict[str, Any]:
        """Return one object for ``--json``."""
        return {**asdict(self), "doubtful": list(self.doubtful), "sources": [asdict(each) for each in self.sources]}


def verdict_of(backtest: Backtest) -> Verdict:
    """Judge a replay under the site's own policy."""
    if not backtest.compared:
        return Verdict(UNKNOWN, "Not known: no job started in both, the record and the simulation.", backtest.policy)
    level = level_of(backtest.whole)
    doubtful = tuple(_doubtful(backtest))
    sources = tuple(sources_of(backtest))
    if level == RELATIVE and sources and sources[0].limits and "qos" not in backtest.given:
        level = NO  # a limit that is not known would hold in any other setting too
    lacking = _lacking(backtest)
    if level == YES and lacking:
        level = NO if _moved(backtest, lacking) > CLOSE else RELATIVE
    text = _text(backtest, level, doubtful, sources)
    more = (
        f"The record names limits that were not given ({_named(groups)}): {remedy}."
        for remedy, groups in lacking.items()
        if remedy not in text
    )
    text = " ".join((text, *more))
    return Verdict(level, text, backtest.policy, doubtful, sources)


def _lacking(backtest: Backtest) -> dict[str, list[Errors]]:
    """Return the jobs by recorded reason, where it is a limit that nobody gave, by the remedy."""
    found: dict[str, list[Errors]] = {}
    for each in backtest.groups["reason"]:
        if remedy := remedies.limit_not_given(each.group, backtest.given, backtest.limits):
            found.setdefault(remedy, []).append(each)
    return found


def _moved(backtest: Backtest, lacking: Mapping[str, Sequence[Errors]]) -> float:
    """Return how far off the mean wait would be by the jobs of these limits alone.

    Where that is far, others are off the other way: that the mean is right is an accident.
    """
    late = sum(each.bias_s * each.jobs for groups in lacking.values() for each in groups)
    return abs(late) / backtest.compared / max(backtest.whole.wait_recorded_mean_s, LEAST_WAIT_S)


def _named(groups: Sequence[Errors]) -> str:
    names = ", ".join(each.group for each in groups[:MOST_NAMED])
    return f"{names}: {counted(sum(each.jobs for each in groups), 'job')}"


def unjudged(why: str) -> Verdict:
    """Return what stands where nothing was compared with the past."""
    return Verdict(UNKNOWN, f"How far to trust it is not known: {why}")


def level_of(errors: Errors) -> str:
    """Judge some jobs by the rule."""
    off = abs(off_by(errors))
    rank = errors.rank_correlation
    if off <= CLOSE and (rank is None or rank >= RANKED or errors.wait_recorded_mean_s < LEAST_WAIT_S):
        return YES
    return RELATIVE if off <= NEAR and (rank is None or rank >= RANKED) else NO


def off_by(errors: Errors) -> float:
    """Return how far the mean simulated wait is from the recorded one, as a part of it."""
    return errors.bias_s / max(errors.wait_recorded_mean_s, LEAST_WAIT_S)


def _doubtful(backtest: Backtest) -> Iterator[str]:
    for by, called in JUDGED.items():
        groups = backtest.groups[by]
        wrong = [each for each in groups if each.jobs >= FEWEST and level_of(each) == NO and each.group != NOTHING]
        if len(groups) > 1:
            yield from (f"{called} {each.group}" for each in sorted(wrong, key=lambda each: -each.share))


def _text(backtest: Backtest, level: str, doubtful: Sequence[str], sources: Sequence[Source]) -> str:
    whole = backtest.whole
    off = off_by(whole)
    far = (
        f"the mean wait is {100 * abs(off):.0f} % too {'long' if off > 0 else 'short'}"
        if abs(off) >= 0.005
        else ("the mean wait is that of the record")
    )
    if whole.rank_correlation is not None:
        far += f", the order of waits agrees to {whole.rank_correlation:.2f}"
    answers = {
        YES: "Absolute waits, and relative questions about nodes, load and backfill: yes",
        RELATIVE: "Relative questions about nodes, load and backfill: yes; absolute waits: no",
        NO: "Do not trust it: neither waits nor relative questions",
    }[level]
    told = f"{answers} ({far})."
    if doubtful and level != NO:
        more = f" and {len(doubtful) - MOST_NAMED} more" if len(doubtful) > MOST_NAMED else ""
        told += f" About {', '.join(doubtful[:MOST_NAMED])}{more}: no."
    if level != YES and sources:
        first = sources[0]
        told += f" The likely reason: {first.cause} ({100 * first.share:.0f} % of the error); {first.remedy}."
    return told


def sources_of(backtest: Backtest) -> list[Source]:
    """Return the groups with the largest errors, those with a recorded reason first, and what would close them.

    Where QOS limits were not given, a QOS comes before other groups: that they are missing is known.
    """
    reasons, groups = _by_reason(backtest), _by_groups(backtest)
    if "qos" not in backtest.given:
        if not any(each.rule == "qos" for each in (*reasons, *groups)):
            groups += _without_limits(backtest)
        groups.sort(key=lambda each: each.by != "qos")
    return [*reasons, *groups][:MOST_SOURCES]


def _without_limits(backtest: Backtest) -> list[Source]:
    """Return the QOS with most of the error, where jobs start too early and nobody told what QOSs allow."""
    named = [each for each in backtest.groups["qos"] if each.group != NOTHING]
    if len(named) < 2 or level_of(backtest.whole) != NO or backtest.whole.bias_s >= 0:
        return []
    most = max(named, key=lambda each: each.share)
    return [_source("qos", [most.group], [most], remedies.for_group("qos", backtest.given))]


def _by_reason(backtest: Backtest) -> list[Source]:
    causes: dict[remedies.Cause, list[Errors]] = {}
    for each in backtest.groups["reason"]:
        if (cause := remedies.for_reason(each.group, backtest.given)) is not None:
            causes.setdefault(cause, []).append(each)
    found = [_source("reason", [each.group for each in groups], groups, cause) for cause, groups in causes.items()]
    return sorted((each for each in found if each.share >= LARGE), key=lambda each: -each.share)


def _by_groups(backtest: Backtest) -> list[Source]:
    found = []
    for by in remedies.GROUPS:
        cause = remedies.for_group(by, backtest.given)
        groups = [each for each in backtest.groups[by] if each.group != NOTHING]
        if len(backtest.groups[by]) < 2:
            continue
        for each in groups:
            part = each.jobs / max(1, backtest.compared)
            if each.share >= LARGE and each.share > 1.5 * part and level_of(each) == NO:
                found.append(_source(by, [each.group], [each], cause))
    return sorted(found, key=lambda each: -each.share)


def _source(by: str, names: Sequence[str], groups: Sequence[Errors], cause: remedies.Cause) -> Source:
    jobs = sum(each.jobs for each in groups)
    bias = sum(each.bias_s * each.jobs for each in groups) / max(1, jobs)
    return Source(by, ", ".join(names[:MOST_NAMED]), jobs, sum(each.share for each in groups), bias, *cause)


def spread(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the verdict that holds for runs side by side: that of the site's own policy, where it is among them."""
    known = [row["verdict"] for row in rows if row.get("verdict")]
    return next((each for each in known if each["level"] != UNKNOWN), known[0] if known else None)

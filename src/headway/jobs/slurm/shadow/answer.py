"""Answer what a shadow has saved so far, beside what a backtest of the site's own policy is off."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headway.jobs.metrics.ledger import Ledger
from headway.jobs.slurm.shadow.folder import SITE, Shadow
from headway.jobs.slurm.shadow.savings import Floats, Savings, savings, waits_until
from headway.jobs.slurm.shadow.tables import tables, verdict
from headway.jobs.slurm.shadow.world import Played, World
from headway.runs.answer import Answer, spaced
from headway.statistics.intervals import LEVEL as LEVEL
from headway.units import counted, format_duration


def answer(shadow: Shadow, level: float = LEVEL) -> Answer:
    """Return what is booked and open of a shadow, as tables and as a record."""
    played = shadow.played
    if played is None:
        none = "note: no job was there at the first look that could be played, and none was submitted since"
        return Answer({"looks": shadow.records.looks, "booked": 0}, [], [none])
    found = savings_of(shadow, played, level)
    record = {**_about(shadow, played), **found.record(), "verdict": verdict(found), "notes": list(played.scene.notes)}
    shown = [_headline(shadow, played), "", *spaced(list(tables(found))), "", *_counted(found), verdict(found)]
    return Answer(record, shown, [f"note: {line}" for line in (*_remarks(shadow, played), *played.scene.notes)])


def savings_of(shadow: Shadow, played: Played, level: float = LEVEL) -> Savings:
    """Return what the jobs that have ended in reality would have saved."""
    scene, past, at = played.scene, played.scene.past, shadow.at(played.scene)
    causes = _causes(shadow.records.causes(), past.reasons, [job.name for job in scene.jobs])
    ledger = Ledger(played.tape, scene.jobs, scene.cluster)
    return savings(
        ledger,
        at,
        played.settled,
        past.waits,
        past.ran,
        causes,
        site=_site_waits(shadow, played, at),
        carried=past.carried,
        level=level,
    )


def _site_waits(shadow: Shadow, played: Played, at: int) -> Floats | None:
    """Return the waits in a simulation of the site's own policy, by job; None where that is not known."""
    if not shadow.settings.config:
        return None
    if shadow.settings.policy == SITE:
        own = played
    else:
        own = World().look(shadow.scene(SITE), at)
    waits = waits_until(Ledger(own.tape, own.scene.jobs, own.scene.cluster), at)[0]
    by_name = {job.name: wait for job, wait in zip(own.scene.jobs, waits.tolist(), strict=True)}
    waits.resize(len(played.scene.jobs), refcheck=False)
    for number, job in enumerate(played.scene.jobs):
        waits[number] = by_name.get(job.name, 0.0)
    return waits


def _causes(seen: Mapping[str, str], recorded: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return why each job waited in reality: what it was seen to wait for longest, else what its record says."""
    told = recorded or [""] * len(names)
    return [seen.get(name) or reason for name, reason in zip(names, told, strict=True)]


def _about(shadow: Shadow, played: Played) -> dict[str, Any]:
    calendar, at = played.scene.calendar, shadow.at(played.scene)
    assert calendar is not None
    return {
        "policy": played.scene.policy_name(),
        "looks": shadow.records.looks,
        "first_look": calendar.iso(0),
        "last_look": calendar.iso(at),
        "settled_until": calendar.iso(played.settled),
        "jobs": len(played.scene.jobs),
        "carried": played.scene.past.carried,
        "ahead": len(played.ahead),
        "outran": len(shadow.counts.outran),
        "revised": shadow.counts.revised + shadow.world.revised,
        "ended_unseen": shadow.records.unseen,
        "digest": played.tape.digest,
    }


def _headline(shadow: Shadow, played: Played) -> str:
    calendar, at = played.scene.calendar, shadow.at(played.scene)
    assert calendar is not None
    looks = counted(shadow.records.looks, "look")
    return (
        f"{shadow.settings.policy} in the shadow of {Path(shadow.folder).name}: {looks} from {calendar.short(0)} to "
        f"{calendar.short(at)}; settled until {calendar.short(min(played.settled, at))}"
    )


def _counted(found: Savings) -> list[str]:
    lines = [f"{found.booked:,} jobs booked, {found.open:,} open (they have not ended in reality)"]
    parts = {
        "start in the shadow may still change": found.provisional - found.waiting_in_shadow,
        "still wait in the shadow: they count with their wait so far": found.waiting_in_shadow,
        "left in reality before they started, and are not counted": found.never_started,
    }
    return lines + [
        f"  {count:,} {'of them ' if place < 2 else ''}{what}"
        for place, (what, count) in enumerate(parts.items())
        if count
    ]


def _remarks(shadow: Shadow, played: Played) -> list[str]:
    lines = []
    if played.end.policy.preempts:
        lines.append(
            "this policy stops running jobs, which then go on where they were: --set costs.preemption=10m charges them "
            "for that, --set policy.preemption=off forbids it"
        )
    if ahead := len(played.ahead):
        lag = format_duration(max(0, shadow.at(played.scene) - played.settled))
        lines.append(
            f"{counted(ahead, 'job')} {'has' if ahead == 1 else 'have'} run longer in the shadow than in reality, and "
            f"{'is' if ahead == 1 else 'are'} taken to run to the limit: the last {lag} may still change"
        )
    if revised := shadow.counts.revised + shadow.world.revised:
        lines.append(f"what was settled had to be changed {revised:,} times: jobs were changed, requeued or seen late")
    if unseen := shadow.records.unseen:
        lines.append(f"of {counted(unseen, 'job')} the end was not seen: taken to be when they were first missed")
    return lines

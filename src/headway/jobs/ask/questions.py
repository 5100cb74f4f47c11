"""Answer questions about a stored run of jobs: why a job does not run at a time, and what-ifs."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from headway.errors import ExperimentError, InputError, TapeError
from headway.formats.dates import is_date
from headway.jobs.ask.changes import Changes
from headway.jobs.ask.explanation import Explanation, explain as explained, moment_to_ask
from headway.jobs.ask.whatif import WhatIf, auditable, date_of, store, time_of, what_if, when
from headway.jobs.experiment.observed import last_rows
from headway.jobs.experiment.site_changes import rules_from
from headway.jobs.metrics.difference import as_json, difference
from headway.jobs.metrics.ledger import Ledger
from headway.jobs.show.terminal.whatif import tables
from headway.jobs.state.state import TrainingState
from headway.runs.answer import Answer, spaced
from headway.runs.domain import Progress, StoredRun
from headway.runs.folder.folder import check_folder, claimed, origin
from headway.runs.measured import numbers
from headway.runs.registry import domain
from headway.runs.settings.changes import check_writable, failures_of, given_changes, listed
from headway.units import SECOND, counted, format_duration, parse_duration, seconds

Value = TypeVar("Value")
Resuming = Callable[[int, TrainingState], None] | None
Drawing = Callable[[int, int], None] | None
_MOST_NAMED = 6


# --- explain --------------------------------------------------------------------------------------------------------


def explain(
    stored: StoredRun,
    job: int,
    time: int,
    draws: int | None = None,
    resuming: Resuming = None,
    first: Callable[[Explanation], None] | None = None,
    drawing: Drawing = None,
) -> Explanation:
    """Say why a job does not run at a time, which moves would admit it, and when to expect its start."""
    scene = stored.scene
    try:
        return explained(
            scene.cluster,
            scene.jobs,
            stored.tape,
            scene.policy(),
            job,
            time,
            speed=scene.speed(),
            costs=scene.costs(),
            faults=scene.faults(),
            completions=scene.completions(),
            draws=draws,
            resuming=resuming,
            first=first,
            drawing=drawing,
            stopped=_stopped(stored, time),
        )
    except TapeError:
        if (came := origin(stored.folder)) is None:
            raise
        since = format_duration(seconds(came.at_s))
        raise TapeError(  # the second part of a run that was continued under changes does not follow from its first
            f"run folder {stored.folder}: was continued under changes from {since} on and cannot be taken up after "
            f"that: ask for an earlier --at, or in the run it came from, {came.run}"
        ) from None


def moment_of(stored: StoredRun, at: str | None, job: int) -> int:
    """Return the moment that is meant, which has to lie within what is recorded; the middle of the job's first wait."""
    last, live = int(stored.tape.column("time")[-1]), now(stored)
    whole = stored.complete or stored.scene.experiment.run.engine  # that of a run that was cut short may be half a step
    end = max(last, live) if live is not None else last if whole else max(0, last - 1)
    if at is None and live is not None and job not in last_rows(stored.tape):
        return end
    if at is None:
        return min(end, moment_to_ask(Ledger(stored.tape, stored.scene.jobs, stored.scene.cluster), job))
    if at.strip() == "end":
        return end
    try:
        time = date_of(at, stored) if is_date(at) else parse_duration(at, what="--at")
    except ExperimentError:
        raise
    except InputError as problem:
        raise InputError(f"{problem} (or write end)") from None
    if time > end:
        how = "ends" if stored.complete else "was cut short" if live is None else "goes on, and is"
        raise ExperimentError(f"--at {at}: the run {how} at {when(stored, end if live is not None else last)}")
    return time


def now(stored: StoredRun) -> int | None:
    """Return how far the run of a queue is by now; None for any other, and where a later one has begun."""
    if not stored.scene.experiment.run.engine:
        return None
    from headway.jobs.live.run_folder import now as now_of

    return now_of(stored.folder)


def _stopped(stored: StoredRun, time: int) -> str:
    """Say that the queue of a run does not run, where that is asked about now; else nothing."""
    if now(stored) is None or time <= int(stored.tape.column("time")[-1]):
        return ""
    from headway.jobs.live.run_folder import stopped

    return stopped(stored.folder)


# --- what if --------------------------------------------------------------------------------------------------------


def ask(
    stored: StoredRun,
    at: str,
    given: Mapping[str, Any],
    folder: Path | None = None,
    progress: Progress | None = None,
) -> Answer:
    """Continue a run from a moment of it under changes, and say who gains and who loses; with a folder, store it."""
    changes = changes_of(given)
    if not at:
        raise ExperimentError("from when on do the changes hold? Write --at 2d, --at 50% or --at end")
    if folder is not None:
        check_folder(folder)
        check_writable(folder)
    time = time_of(at, stored)
    with claimed(folder):
        what_if_run = what_if(
            stored, time, changes, skip_infeasible=bool(given.get("skip_infeasible")), folder=folder, progress=progress
        )
        if what_if_run.after.stopped:
            return Answer(None, (), stopped=_cut_short(what_if_run, folder))
        result = _result(stored, what_if_run)
        kept = _keep(folder, what_if_run, result)
    shown = [*_headline(what_if_run, result), "", *spaced(list(tables(result)))]
    return Answer(result, shown, [*_notes(stored, what_if_run, result), *kept])


def _headline(what_if_run: WhatIf, result: Mapping[str, Any]) -> Iterator[str]:
    """Say what changes, for how many jobs, and which are compared with nothing."""
    yield f"From {when(what_if_run.after, what_if_run.at)} on: {'; '.join(what_if_run.plan.told) or 'nothing changes'}"
    jobs = f"{counted(result['jobs'], 'job')} {'was' if result['jobs'] == 1 else 'were'} not over by then or came later"
    sooner = "ends sooner after it arrives" if result["better"] == 1 else "end sooner after they arrive"
    yield f"{jobs}: {result['better']:,} of them {sooner}, {result['worse']:,} later"
    if what_if_run.left_out:
        left = [what_if_run.jobs[job] for job in what_if_run.left_out]
        named = [job.name or str(job.id) for job in left[:_MOST_NAMED]]
        more = f" and {len(left) - _MOST_NAMED:,} more" if len(left) > _MOST_NAMED else ""
        yield (
            f"{counted(len(left), 'job')} can never run after the change and {'is' if len(left) == 1 else 'are'} left "
            f"out of both sides: {', '.join(named)}{more}"
        )


def _notes(stored: StoredRun, what_if_run: WhatIf, result: Mapping[str, Any]) -> Iterator[str]:
    if what_if_run.plan.nothing:
        same = "the same" if what_if_run.after.tape.digest == what_if_run.before.digest else "NOT the same"
        yield f"note: nothing was to change: the rest of the tape is {same}, row for row"
    elif result["jobs"] and not (result["better"] or result["worse"]) and result["before"] == result["after"]:
        yield "note: the change makes no difference: every job waits and runs as long as without it"
    last = stored.scene.jobs[-1].submit
    if what_if_run.at >= last and not what_if_run.plan.nothing:
        yield f"note: all jobs had arrived by {format_duration(last)}; an earlier --at concerns more of them"
    if not stored.complete:
        yield "note: the run was cut short; what it is compared with is its continuation without changes"
    yield from (f"note: {note}" for note in what_if_run.plan.notes)
    if judged := stored.result.get("verdict"):
        yield f"note: verdict on the run that was continued: {judged['text']}"
    if not what_if_run.plan.same_failures:
        yield (
            "note: failures are drawn: the difference is that of one draw. The same for runs with other seeds "
            "(--seed) tells how much of it is chance"
        )
    if what_if_run.left_out:
        jobs = counted(len(what_if_run.left_out), "job")
        yield f"note: before is the run continued without {jobs} that can never run after the change"


def _cut_short(what_if_run: WhatIf, target: Path | None) -> str:
    whole = target is not None and auditable(what_if_run.plan, what_if_run.left_out)
    kept = f"the tape is in {target}" if whole else "nothing is kept"
    return f"stopped at {format_duration(what_if_run.after.reached)}; {kept}"


def _keep(target: Path | None, what_if_run: WhatIf, result: dict[str, Any]) -> tuple[str, ...]:
    if target is None:
        return ()
    if what_if_run.after.folder is not None:
        numbers(what_if_run.after)  # and into the folder with them
    return (store(target, what_if_run, result),)


def _result(stored: StoredRun, what_if_run: WhatIf) -> dict[str, Any]:
    before = Ledger(what_if_run.before, what_if_run.jobs, stored.scene.cluster)
    after = Ledger(what_if_run.after.tape, what_if_run.after.scene.jobs, what_if_run.after.scene.cluster)
    recorded = Ledger(what_if_run.recorded, what_if_run.jobs, stored.scene.cluster) if what_if_run.left_out else None
    differs = difference(before, after, what_if_run.at, what_if_run.left_out, recorded)
    return {
        "run": str(stored.folder),
        "at_s": what_if_run.at / SECOND,
        "policy_before": stored.scene.policy_name(),
        "policy_after": what_if_run.after.policy,
        "changes": list(what_if_run.plan.told),
        "notes": list(what_if_run.plan.notes),
        **({} if (dates := stored.scene.calendar) is None else {"at": dates.iso(what_if_run.at)}),
        **as_json(differs, stored.scene.experiment.measure.confidence),
        **{key: stored.result[key] for key in ("verdict", "caveats") if key in stored.result},
        "digest": what_if_run.after.tape.digest,
    }


def changes_of(given: Mapping[str, Any]) -> Changes:
    """Return what is to change, from settings as a person writes them: ``add_nodes="10"``, ``quota="a=8,b=none"``."""
    found = given_changes(domain("jobs"), given)
    return Changes(
        add_nodes=[part for text in listed(found.get("add_nodes")) for part in text.split(",")],
        remove_nodes=str(found.get("remove_nodes", "")).strip(),
        policy=str(found.get("policy", "")).strip(),
        quota=_pairs("--quota", found.get("quota"), _gpus),
        limit=_pairs("--limit", found.get("limit"), _amount),
        rules=rules_from(found),
        gpu_speed=_pairs("--gpu-speed", found.get("gpu_speed"), float),
        upgrade=_pairs("--upgrade", found.get("upgrade"), str),
        failures=failures_of(found.get("failures")),
        load=str(found.get("load", "")).strip(),
        overrides=listed(found.get("set")),
    )


def _amount(text: str) -> int | str | None:
    """Read a number of GPUs, an amount of something else (``500GB``, ``12h``), or ``none``."""
    return None if text == "none" else int(text) if text.isdecimal() else text


def _pairs(flag: str, given: Any, read: Callable[[str], Value]) -> dict[str, Value]:
    """Read ``a=1,b=2``, in one text or several, or a mapping."""
    if isinstance(given, Mapping):
        given = [f"{name}={'none' if value is None else value}" for name, value in given.items()]
    pairs: dict[str, Value] = {}
    for part in (part for text in listed(given) for part in text.split(",")):
        name, _, value = (piece.strip() for piece in part.rpartition("="))
        if not name or not value:
            raise ExperimentError(f"{flag} {part!r} is not understood: write it like {flag} NAME=VALUE")
        if name in pairs:
            raise ExperimentError(f"{flag}: {name} is given twice")
        try:
            pairs[name] = read(value)
        except ValueError:
            kind = "a number" if read is float else "a whole number"
            raise ExperimentError(f"{flag} {part[:60]}: {value[:40]!r} is not {kind}") from None
    return pairs


def _gpus(text: str) -> int | None:
    return None if text == "none" else int(text)

"""Why a decision was taken, in a few words for the log: whom a start overtook, for whom a job was stopped."""

from collections.abc import Sequence

from headway.jobs.explain.explain import why_waiting
from headway.jobs.model.actions import Action, MigrateJob, ReallocateJob, StartJob, Stop, WakeAt
from headway.jobs.policies.compose import ComposedPolicy
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.state import TrainingState


def why_started(now: int, state: TrainingState, policy: ComposedPolicy, js: JobState) -> str:
    """Return why a job that was just started did so before those that still wait; asked at the end of an instant."""
    ahead = next((job for key, job in state.queue.in_order() if (key, job) < (js.key, js.id)), None)
    if ahead is None:
        return f"the first of those that wait, by {policy.name}"
    causes = "; ".join(map(str, why_waiting(now, state, policy, state.jobs[ahead])))
    return f"it fits where job {ahead}, which comes before it, does not ({causes})"


def why_stopped(actions: Sequence[Action], stopped: int, nodes: Sequence[tuple[int, int]]) -> str:
    """Return for whom a job was stopped: those that started on its GPUs in the same instant."""
    starts = [each for each in actions if isinstance(each, StartJob | MigrateJob) and each.job != stopped]
    held = dict(nodes)
    there = [each.job for each in starts if any(held.get(node, 0) & mask for node, mask in each.placement)]
    return f"for job {', '.join(map(str, there or [each.job for each in starts]))}" if starts else "for what comes"


def lines(
    now: int, state: TrainingState, policy: ComposedPolicy, actions: Sequence[Action]
) -> list[tuple[str, int, str]]:
    """Return (what was done, job, why) for each decision of an instant, at its end."""
    said = []
    for action in actions:
        js = None if isinstance(action, WakeAt) else state.jobs.get(action.job)
        if js is None or isinstance(action, WakeAt):
            continue
        if isinstance(action, Stop):
            said.append(("preempt", js.id, why_stopped(actions, js.id, js.placement)))
            continue
        match action:
            case StartJob():
                said.append(("start", js.id, why_started(now, state, policy, js)))
            case MigrateJob():
                said.append(("move", js.id, f"to a better place, by {policy.name}"))
            case ReallocateJob():
                shares = f"{js.cpu_milli / 1000:g} CPUs, {js.memory_bytes:,} bytes"
                said.append(("divide", js.id, f"{shares}, by {policy.name}"))
    return said

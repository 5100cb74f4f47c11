"""Waiting jobs in the order in which conservative backfilling plans them."""

from bisect import bisect_right
from collections.abc import Iterable
from heapq import merge
from itertools import chain, islice
from operator import itemgetter

from headway.jobs.policies.backfills.walk import guaranteed
from headway.jobs.policies.parts import Admission, Order
from headway.jobs.state.feasible import quota_refusal
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.queue import Entry, Lane, tier_of
from headway.jobs.state.state import TrainingState

_job = itemgetter(1)


def last_of(state: TrainingState, depth: int) -> Entry | None:
    """Return the last job that is to have a reservation; None if all are."""
    if state.queue.size <= depth:
        return None
    entries = sorted(chain.from_iterable([list(lane)[:depth] for lane in state.queue.lanes.values()]))
    return entries[depth - 1]


def versions_of(state: TrainingState, lanes: list[Lane]) -> list[int]:
    """Return numbers that are others when the order of the jobs of these lanes may be another one."""
    versions = [lane.version for lane in lanes]
    return versions if len(versions) == 1 else [*versions, state.refreshed]


def jobs_of(lanes: list[Lane], last: Entry | None) -> list[int]:
    """Return the jobs of these lanes in order, up to the last one that counts."""
    entries = list(lanes[0])
    for lane in lanes[1:]:
        entries += lane
    if len(lanes) > 1:
        entries.sort()
    return list(map(_job, entries if last is None else entries[: bisect_right(entries, last)]))


def in_order(state: TrainingState, policy: Admission, count: int) -> list[Entry]:
    """Return the first ``count`` waiting jobs in the policy's current order."""
    lanes = state.queue.lanes.values()
    if len(lanes) == 1:
        return list(next(iter(lanes)))[:count]
    if not state.quotas and type(policy.order).lane is Order.lane:
        if count == 1 and lanes:
            return [min(lane.head for lane in lanes)]
        return sorted(chain.from_iterable([list(lane)[:count] for lane in lanes]))[:count]
    ordered = merge(*(_keyed(state, policy, lane) for lane in lanes))
    return [entry for *_, entry in islice(ordered, count)]


def _keyed(state: TrainingState, policy: Admission, lane: Lane) -> Iterable[tuple[bool, object, object, Entry]]:
    first = state.jobs[lane.head[1]]
    later = state.quotas and not guaranteed(first)
    key = policy.order.lane_key(state, first)
    return ((later, tier_of(entry[0]), key, entry) for entry in lane)


def is_kept_out(state: TrainingState, js: JobState) -> bool:
    """Return whether a limit or its quota keeps a waiting job out: it has no reservation."""
    return js.lane in state.queue.aside or (state.quotas and quota_refusal(js) is not None)

"""Preemption and reclaim: which running jobs to stop so that a waiting one fits.

One rule for all orders: victims are taken last ones first, only from among jobs that the waiting one comes before,
until it fits; then every victim that turns out not to be needed is spared, the ones that come first first. What a
tenant holds within its guarantee is never taken by another tenant. Reclaim is the same search over what was borrowed
beyond guarantees.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from headway.jobs.model.resources import Placement
from headway.jobs.policies.parts import PlacementRule
from headway.jobs.policies.preemption.releasing import Releasing, shortfall
from headway.jobs.state.draft import Draft
from headway.jobs.state.feasible import limit_refusal, quota_refusal
from headway.jobs.state.jobstate import Account, JobState
from headway.jobs.state.queue import tier_of
from headway.jobs.state.state import TrainingState


class Room(NamedTuple):
    """How a waiting job comes to its GPUs: who is stopped for it, and where it goes."""

    victims: list[JobState]
    placement: Placement | None
    """None: even all that were offered are not enough."""
    shortfall: int = 0
    """How many GPUs at least are missing then."""


def make_room(state: TrainingState, js: JobState, rule: PlacementRule, victims: Iterable[JobState]) -> Room:
    """Return the victims to stop, of those offered, and where the job then goes."""
    eligible = js.eligible
    offered = iter(victims)
    if (first := next(offered, None)) is None:
        return Room([], None, shortfall(state.pool, js, rule))
    with state.draft() as draft:
        releasing = Releasing(state, draft, js, rule, lambda: fits(state, js, rule))
        for victim in chain((first,), offered):
            for node, _ in victim.placement:
                if eligible >> node & 1:
                    break
            else:
                continue
            if (placement := releasing.add(victim)) is not None:
                return _spare(draft, state, js, rule, releasing.needed, placement)
        return Room([], None, releasing.shortfall())


def fits(state: TrainingState, js: JobState, rule: PlacementRule) -> Placement | None:
    """Return where a waiting job could start now if nobody came before it; None when nowhere or not allowed."""
    if (state.quotas and quota_refusal(js) is not None) or (js.limits is not None and limit_refusal(state, js)):
        return None
    return rule.place(state.pool, js)


def _spare(
    draft: Draft,
    state: TrainingState,
    js: JobState,
    rule: PlacementRule,
    chosen: list[JobState],
    placement: Placement,
) -> Room:
    """Give back every victim that the job can do without, those that come first first."""
    if len(chosen) == 1:
        return Room(chosen, placement)
    nodes = {node for node, _ in placement}
    needed = []
    for victim in reversed(chosen):
        draft.start(victim, victim.placement)
        if not nodes.isdisjoint(node for node, _ in victim.placement):
            other = fits(state, js, rule)
            if other is None:
                draft.release(victim)
                needed.append(victim)
            else:
                placement = other
                nodes = {node for node, _ in placement}
    needed.reverse()
    if (last := fits(state, js, rule)) is None:
        return Room(chosen, placement)
    return Room(needed, last)


def open_to_preemption(
    now: int, state: TrainingState, js: JobState, victims: Iterable[JobState], quantum: int
) -> Iterator[JobState]:
    """Of an order's victims, those past their quantum and not within another tenant's guarantee.

    A job that its quota keeps out may take the place of its own tenant's jobs only. Nobody takes that of a higher tier.
    """
    mine = tier_of(js.key)
    own_only = state.quotas and quota_refusal(js) is not None
    beyond: dict[str, set[int]] = {}
    for victim in victims:
        if victim.since == now or (quantum and victim.base + quantum > now):
            continue  # a quantum begins when the checkpoint is loaded: a job that only loads would never get on
        if tier_of(victim.key) < mine:
            continue
        account = victim.account
        if state.quotas and account is not js.account:
            if own_only:
                continue
            if account.name not in beyond:
                beyond[account.name] = {borrower.id for borrower in _borrowers(state, account)}
            if victim.id not in beyond[account.name] or account.held <= account.guaranteed:
                continue
        yield victim


def borrowed(state: TrainingState, js: JobState) -> Iterator[JobState]:
    """Preemptible jobs that hold GPUs beyond their tenant's guarantee, those of the tenant furthest beyond first.

    Looks at what each tenant holds as it goes: a tenant that is back within its guarantee gives no more.
    """
    over: list[Account] = [a for a in state.accounts.values() if a.held > a.guaranteed and a is not js.account]
    over.sort(key=lambda account: (account.guaranteed - account.held, account.name))
    for account in over:
        for victim in reversed(_borrowers(state, account)):
            if account.held <= account.guaranteed:
                break
            if victim.job.preemptible:
                yield victim


def _borrowers(state: TrainingState, account: Account) -> list[JobState]:
    """The jobs that take a tenant beyond its guarantee, when its jobs are counted in the order of their starts."""
    held = 0
    found = []
    for js in sorted((js for js in state.running.values() if js.account is account), key=lambda js: js.turn):
        held += js.width
        if held > account.guaranteed:
            found.append(js)
    return found

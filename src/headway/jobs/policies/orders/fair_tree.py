"""Slurm's Fair Tree: who has used least for their share comes first, account by account, then user by user.

(SchedMD, "Fair Tree Fairshare Algorithm".) Siblings are put in order of share over usage. The users below the first
account rank before all those below the second; a user's factor is its rank over the number of users. Accounts that tie
are looked at as one, with the users of all of them together, each by its part of its own account.

Accounts may stand below accounts, and users have shares where the cluster's tenants say so.

Departures: only accounts and users that have submitted something are in the tree, and accounts above them; a user that
ties with an account beside it comes first.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby, pairwise
from operator import itemgetter

import numpy as np

from headway.jobs.model.cluster import Tenant

Who = tuple[str, str]
"""An account and one of its users."""
_ROOT = -1
_CLEARLY = 1 + 1e-9
"""Who has used so much more than another for its share comes after it, however sums are rounded."""


def fair_tree(
    usage: Mapping[Who, float], weights: Mapping[str, int], tenants: Mapping[str, Tenant] | None = None
) -> dict[Who, float]:
    """Return the factor of each user of each account: 1 for the first, down to 1 over their number."""
    return FairTree(usage, weights, tenants or {}).factors(usage)


class FairTree:
    """The tree of these users, for any usage.

    Its members are numbers: users and accounts in order, a user before an account of its name.
    """

    def __init__(self, users: Iterable[Who], weights: Mapping[str, int], tenants: Mapping[str, Tenant]) -> None:
        above = {name: tenant.parent for name, tenant in tenants.items()}
        paths = {(account, user): _path(account, above) for account, user in users}
        named = {(account, "", False) for path in paths.values() for account in path}
        members = sorted({(*who, True) for who in paths} | named)
        number = {member: place for place, member in enumerate(members)}
        self._users = [(account, user) if is_user else None for account, user, is_user in members]
        """Who each member is; None for an account."""
        self._paths = [
            (who, [number[*who, True], *(number[account, "", False] for account in path)])
            for who, path in paths.items()
        ]
        """Each user with its number and those of the accounts above it, the nearest first."""
        self._weights = [
            (dict(tenants[account].users).get(user, 1) if account in tenants else 1)
            if is_user
            else weights.get(account, 1)
            for account, user, is_user in members
        ]
        self._below: dict[int, list[int]] = {_ROOT: []}
        for _, path in self._paths:
            for member, parent in zip(path, [*path[1:], _ROOT], strict=True):
                if member not in self._below.setdefault(parent, []):
                    self._below[parent].append(member)
        for below in self._below.values():
            below.sort()
        self._shares = {parent: sum(self._weights[each] for each in below) for parent, below in self._below.items()}
        self._used: list[float] = []
        pairs = [(member, place) for place, (_, path) in enumerate(self._paths) for member in path]
        self._above, self._under = np.array(pairs, dtype=np.intp).reshape(-1, 2).T
        """Members, and the users that are one or below it, pair by pair."""
        self._divisors = np.array(self._weights, dtype=float)
        self._neighbours = np.zeros((2, 0), dtype=np.intp)
        """Members that came one after the other below the same one, when all were last put in order."""
        self._tied = np.zeros(0, dtype=bool)
        """Which of these had used the same."""
        self._found: dict[Who, float] = {}

    def factors(self, usage: Mapping[Who, float]) -> dict[Who, float]:
        """Return the factor of each user: the same mapping as the last time where their order is the same."""
        if not self._found or not self._in_order(usage):
            self._found = self._ordered(usage)
        return self._found

    def _in_order(self, usage: Mapping[Who, float]) -> bool:
        """Return whether all are clearly in the order in which they last were."""
        own = np.array([usage[who] for who, _ in self._paths])
        levels = np.bincount(self._above, own[self._under], len(self._users)) / self._divisors
        before, after = levels[self._neighbours]
        return bool(np.where(self._tied, after + before == 0.0, after > before * _CLEARLY).all())

    def _ordered(self, usage: Mapping[Who, float]) -> dict[Who, float]:
        """Put all members in order; return the factor of each user."""
        used = self._used = [0.0] * len(self._users)
        for who, path in self._paths:
            own = usage[who]
            for member in path:
                used[member] += own
        self._note_neighbours()
        users = left = len(self._paths)
        found: dict[Who, float] = {}
        for same in self._ranked([_ROOT]):
            found |= dict.fromkeys(same, left / users)
            left -= len(same)
        return found

    def _note_neighbours(self) -> None:
        """Take note of who comes after whom below the same member, and who ties."""
        pairs = [pair for above in self._below for pair in pairwise(sorted(self._levels(above)))]
        self._neighbours = np.array([(one, other) for (_, one), (_, other) in pairs], dtype=np.intp).reshape(-1, 2).T
        self._tied = np.array([one == other for (one, _), (other, _) in pairs], dtype=bool)

    def _ranked(self, accounts: Iterable[int]) -> Iterator[list[Who]]:
        """Yield users in order, those that tie together; accounts that tie are looked at as one."""
        levels = sorted([level for above in accounts for level in self._levels(above)])
        for _, tied in groupby(levels, key=itemgetter(0)):
            members = [member for _, member in tied]
            if users := [who for member in members if (who := self._users[member]) is not None]:
                yield users
            if below := [member for member in members if self._users[member] is None]:
                yield from self._ranked(below)

    def _levels(self, above: int) -> list[tuple[float, int]]:
        """Return what members have used for each share, and the members: the inverse of Slurm's LevelFS, so that
        nothing used is 0."""
        used, weights, below = self._used, self._weights, self._below.get(above, ())
        if above == _ROOT:
            return [(used[member] / weights[member], member) for member in below]
        if not (whole := used[above]):
            return [(0.0, member) for member in below]
        shares = self._shares[above]
        return [(used[member] * shares / whole / weights[member], member) for member in below]


def _path(account: str, above: Mapping[str, str]) -> list[str]:
    """Return an account and those above it, the nearest first."""
    path = []
    while account:
        path.append(account)
        account = above.get(account, "")
    return path

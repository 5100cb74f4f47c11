"""Slurm's Fair Tree: who has used least for their share comes first, account by account, then user by user.

(SchedMD, "Fair Tree Fairshare Algorithm".) Siblings are put in order of share over usage. The users below the first
account rank before all those below the second; a user's factor is its rank over the number of users. Accounts that tie
are looked at as one, with the users of all of them together, each by its part of its own account.

Accounts may stand below accounts, and users have shares where the cluster's tenants say so.

Departures: only accounts and users that have submitted something are in the tree, and accounts above them; a user that
ties with an account beside it comes first.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import NamedTuple

from headway.training.cluster import Tenant

Who = tuple[str, str]
"""An account and one of its users."""


class _Member(NamedTuple):
    """What stands below an account: a user of it, or another account."""

    account: str
    user: str
    is_user: bool


def fair_tree(
    usage: Mapping[Who, float], weights: Mapping[str, int], tenants: Mapping[str, Tenant] | None = None
) -> dict[Who, float]:
    """Return the factor of each user of each account: 1 for the first, down to 1 over their number."""
    return FairTree(usage, weights, tenants or {}).factors(usage)


class FairTree:
    """The tree of these users, for any usage."""

    def __init__(self, users: Iterable[Who], weights: Mapping[str, int], tenants: Mapping[str, Tenant]) -> None:
        self._paths: dict[Who, list[_Member]] = {}
        """Of each user: itself and the accounts above it, the nearest first."""
        self._below: dict[str, dict[_Member, None]] = {}
        self._weights: dict[_Member, int] = {}
        self._used: dict[_Member, float] = {}
        for account, user in users:
            path = self._paths[account, user] = [_Member(account, user, is_user=True)]
            own = dict(tenants[account].users) if account in tenants and tenants[account].users else {}
            self._weights[path[0]] = own.get(user, 1)
            while account:
                self._below.setdefault(account, {})[path[-1]] = None
                path.append(_Member(account, "", is_user=False))
                self._weights[path[-1]] = weights.get(account, 1)
                account = tenants[account].parent if account in tenants else ""
            self._below.setdefault("", {})[path[-1]] = None
        self._shares = {above: sum(self._weights[each] for each in below) for above, below in self._below.items()}

    def factors(self, usage: Mapping[Who, float]) -> dict[Who, float]:
        """Return the factor of each user."""
        used = self._used = dict.fromkeys(self._weights, 0.0)
        for who, path in self._paths.items():
            own = usage[who]
            for member in path:
                used[member] += own
        users = left = len(self._paths)
        found: dict[Who, float] = {}
        for same in self._ranked([""]):
            found |= dict.fromkeys(same, left / users)
            left -= len(same)
        return found

    def _ranked(self, accounts: Iterable[str]) -> Iterator[list[Who]]:
        """Yield users in order, those that tie together; accounts that tie are looked at as one."""
        levels = {member: self._level(member, above) for above in accounts for member in self._below.get(above, ())}
        for tied in _groups(levels):
            if users := [(member.account, member.user) for member in tied if member.is_user]:
                yield users
            if below := [member.account for member in tied if not member.is_user]:
                yield from self._ranked(below)

    def _level(self, member: _Member, above: str) -> float:
        """Return what is used for each share: the inverse of Slurm's LevelFS, so that nothing used is 0."""
        if not above:
            return self._used[member] / self._weights[member]
        whole = self._used[_Member(above, "", is_user=False)]
        return self._used[member] * self._shares[above] / whole / self._weights[member] if whole else 0.0


def _groups(levels: Mapping[_Member, float]) -> list[list[_Member]]:
    """Return members grouped by level, in order of their levels."""
    ordered = sorted(levels, key=lambda key: (levels[key], key))
    return [list(same) for _, same in groupby(ordered, key=levels.__getitem__)]

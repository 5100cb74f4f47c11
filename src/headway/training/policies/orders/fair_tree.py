"""Slurm's Fair Tree: who has used least for their share comes first, account by account, then user by user.

(SchedMD, "Fair Tree Fairshare Algorithm".) Siblings are put in order of share over usage. The users below the first
account rank before all those below the second; a user's factor is its rank over the number of users. Accounts that tie
are looked at as one, with the users of all of them together, each by its part of its own account.

Departures: two levels, accounts and their users, where Slurm's tree may be deeper; users have equal shares; only
accounts and users that have submitted something are in the tree.
"""

from collections import Counter
from collections.abc import Mapping
from itertools import groupby
from typing import TypeVar

Who = tuple[str, str]
"""An account and one of its users."""
Key = TypeVar("Key", str, tuple[str, str])


def fair_tree(usage: Mapping[Who, float], weights: Mapping[str, int]) -> dict[Who, float]:
    """Return the factor of each user of each account: 1 for the first, down to 1 over their number."""
    accounts: dict[str, float] = {}
    members = Counter(account for account, _ in usage)
    for (account, _), used in usage.items():
        accounts[account] = accounts.get(account, 0.0) + used
    # What is used for each share is the inverse of Slurm's LevelFS, so that nothing used is 0 and not infinite.
    order = {name: used / weights.get(name, 1) for name, used in accounts.items()}
    left = len(usage)
    factors: dict[Who, float] = {}
    for tied in _groups(order):
        users = {
            who: used * members[who[0]] / accounts[who[0]] if accounts[who[0]] else 0.0
            for who, used in usage.items()
            if who[0] in tied
        }
        for same in _groups(users):
            factors |= dict.fromkeys(same, left / len(usage))
            left -= len(same)
    return factors


def _groups(levels: Mapping[Key, float]) -> list[list[Key]]:
    """Return keys grouped by level, in order of their levels."""
    ordered = sorted(levels, key=lambda key: (levels[key], key))
    return [list(same) for _, same in groupby(ordered, key=levels.__getitem__)]

"""Arrange associations and shares into the tree of accounts that limits and fair share go by."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from headway.errors import ExperimentError
from headway.jobs.model.cluster import Tenant
from headway.jobs.slurm.output.records import Association, Bound, PartitionRules, Share, SiteRules

_MOST_DEEP = 50
Weights = Mapping[tuple[str, str], int | None]
"""Shares by account and user (empty for those of the account); None for those of the parent."""


class Tree:
    """Accounts of one cluster, what is above each, and the associations in it."""

    def __init__(self, site: SiteRules) -> None:
        self.notes: list[str] = []
        self.associations = self._of_one_cluster(site)
        self._above = self._parents(site.shares)
        self._check()
        self._defined = {(each.account, each.user, each.partition): each for each in self.associations}
        self._partitions: dict[tuple[str, str], set[str]] = {}
        for each in self.associations:
            if each.partition:
                self._partitions.setdefault((each.account, each.user), set()).add(each.partition)
        self._depths = {account: len(self.above(account)) for account in self._above}
        self._deepest = max(self._depths.values(), default=0)

    def _of_one_cluster(self, site: SiteRules) -> tuple[Association, ...]:
        """Return the associations of the site's cluster, each once: the first row of it counts."""
        clusters = list(dict.fromkeys(each.cluster for each in site.associations if each.cluster))
        own = site.settings.get("clustername", "")
        if len(clusters) > 1 and own not in clusters:
            raise ExperimentError(
                f"associations: they are of several clusters ({', '.join(clusters)}): give the site's slurm.conf with "
                "its ClusterName, or print those of one cluster"
            )
        chosen: dict[tuple[str, str, str], Association] = {}
        for each in site.associations:
            if len(clusters) < 2 or each.cluster in ("", own):
                chosen.setdefault((each.account, each.user, each.partition), each)
        return tuple(chosen.values())

    def _parents(self, shares: Sequence[Share]) -> dict[str, str]:
        told = {each.account: each.parent for each in shares if not each.user and each.parent is not None}
        told |= {each.account: each.parent for each in self.associations if not each.user and each.parent is not None}
        named = dict.fromkeys((*(each.account for each in self.associations), *(each.account for each in shares)))
        untold = [account for account in named if account not in told and account != "root"]
        if untold:
            self.notes.append(
                f"{len(untold):,} account{'s have' if len(untold) > 1 else ' has'} no parent in the files "
                f"({', '.join(untold[:3])}{', …' if len(untold) > 3 else ''}): taken as directly under root; "
                "print sacctmgr show assoc tree -P, or sshare -a -l -P, for the tree"
            )
        root = "root" if "root" in named else ""
        return {account: "" if account == root else told.get(account) or root for account in named}

    def _check(self) -> None:
        for account, parent in self._above.items():
            if parent and parent not in self._above:
                raise ExperimentError(f"account {account}: its parent {parent} is not among the accounts")
            seen = [account]
            while parent:
                seen.append(parent)
                if parent == account or len(seen) > _MOST_DEEP:
                    raise ExperimentError(f"account {account} is below itself: {' under '.join(seen)}")
                parent = self._above[parent]

    def above(self, account: str) -> list[str]:
        """Return the accounts above one, the nearest first."""
        found = []
        parent = self._above.get(account, "")
        while parent:
            found.append(parent)
            parent = self._above[parent]
        return found

    def height(self, account: str) -> int:
        """Return how far an account is above the deepest ones: nearer ones come first."""
        return self._deepest - self._depths[account]

    def told(self, each: Association) -> str:
        """Return an association as users name it."""
        return "/".join(part for part in (each.account, each.user, each.partition) if part)

    def where(self, each: Association, partitions: Iterable[PartitionRules]) -> tuple[tuple[str, str], ...]:
        """Return which jobs an association counts; one without partition counts none that has a partition's own."""
        if not each.user:
            return (("account", each.account),)
        who = (("tenant", each.account), ("user", each.user))
        if each.partition:
            return (*who, ("partition", each.partition))
        own = self._partitions.get((each.account, each.user), ())
        return who if not own else (*who, *(("partition", one.name) for one in partitions if one.name not in own))

    def repeats(self, each: Association, bound: Bound) -> bool:
        """Return whether an association only shows the limit of an account above: sacctmgr prints it below too."""
        if each.partition:
            return False
        accounts = [each.account, *self.above(each.account)] if each.user else self.above(each.account)
        for account in accounts:
            above = self._defined.get((account, "", ""))
            for other in above.bounds if above else ():
                if (other.name, other.tres) == (bound.name, bound.tres):
                    return other.most == bound.most
        return False

    def weights(self, shares: Sequence[Share]) -> Weights:
        """Return the shares of accounts and of their users."""
        found: dict[tuple[str, str], int | None] = {(each.account, each.user): each.shares for each in shares}
        return found | {(each.account, each.user): each.shares for each in self.associations if not each.partition}

    def tenants(self, shares: Sequence[Share]) -> tuple[Tenant, ...]:
        """Return the accounts with their shares, and those of their users."""
        weights = self.weights(shares)
        users: dict[str, dict[str, int]] = {account: {} for account in self._above}
        for (account, user), weight in weights.items():
            if user and weight is not None:
                users[account][user] = max(1, weight)
        self.notes.extend(about_shares(weights))
        return tuple(
            Tenant(
                account,
                max(1, weights.get((account, "")) or 1),
                parent=parent,
                users=tuple(users[account].items()),
            )
            for account, parent in self._above.items()
        )


def about_shares(weights: Weights) -> Iterator[str]:
    """Yield which shares are not followed as they are written."""
    told = [("/".join(filter(None, who)), weight) for who, weight in weights.items()]
    if as_parent := [name for name, weight in told if weight is None]:
        yield f"Fairshare=parent of {_some(as_parent)} is not followed: each counts with a share of 1"
    if none := [name for name, weight in told if weight == 0]:
        yield f"account{'s' if len(none) > 1 else ''} {_some(none)}: Fairshare=0 is taken as 1"


def _some(names: Sequence[str]) -> str:
    return f"{', '.join(names[:3])}{' and others' if len(names) > 3 else ''}"

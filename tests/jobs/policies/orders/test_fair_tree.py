"""The Fair Tree: accounts before users, ties together, ranks as factors."""

from hypothesis import given, strategies as st

from headway.jobs.model.cluster import Tenant
from headway.jobs.model.job import Job, workload
from headway.jobs.policies.orders.fair_tree import FairTree, fair_tree
from headway.units import HOUR
from tests.jobs.policies.orders.test_fairness import play


def test_users_of_the_account_that_used_least_come_first_whatever_they_used_themselves() -> None:
    usage = {("a", "x"): 9.0, ("a", "y"): 0.0, ("b", "z"): 8.0}
    assert fair_tree(usage, {}) == {("b", "z"): 1.0, ("a", "y"): 2 / 3, ("a", "x"): 1 / 3}


def test_an_account_with_a_larger_share_may_use_more() -> None:
    usage = {("a", "x"): 30.0, ("b", "y"): 20.0}
    assert fair_tree(usage, {"a": 1, "b": 1})[("b", "y")] == 1.0
    assert fair_tree(usage, {"a": 2, "b": 1})[("a", "x")] == 1.0


def test_who_ties_has_the_same_factor_and_accounts_that_tie_are_one() -> None:
    usage = {("a", "x"): 1.0, ("a", "y"): 3.0, ("b", "x"): 2.0, ("b", "z"): 2.0, ("c", "w"): 0.0}
    assert fair_tree(usage, {}) == {
        ("c", "w"): 1.0,
        ("a", "x"): 0.8,
        ("b", "x"): 0.6,
        ("b", "z"): 0.6,
        ("a", "y"): 0.2,
    }


def test_users_of_accounts_that_tie_are_compared_by_their_part_of_their_own_account() -> None:
    usage = {("a", "only"): 100.0, ("b", "more"): 60.0, ("b", "less"): 40.0}
    assert fair_tree(usage, {}) == {("b", "less"): 1.0, ("a", "only"): 2 / 3, ("b", "more"): 1 / 3}


@given(st.dictionaries(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz")), st.integers(0, 5).map(float)))
def test_factors_are_ranks(usage: dict[tuple[str, str], float]) -> None:
    factors = fair_tree(usage, {"a": 2})
    assert set(factors) == set(usage)
    for who, factor in factors.items():
        behind = sum(other <= factor for other in factors.values())
        assert factor == behind / len(usage), who


def test_the_order_serves_the_user_who_used_less_within_an_account() -> None:
    first = Job(0, submit=0, work=HOUR, user="x", tenant="a")
    again = Job(1, submit=1, work=HOUR, user="x", tenant="a")
    other = Job(2, submit=2, work=HOUR, user="y", tenant="a")
    jobs = workload([first, again, other])
    assert play(jobs, "multifactor(fair_tree=true)").first_starts == [0, 2, 1]
    assert play(jobs, "multifactor").first_starts == [0, 1, 2]


def _tenants(*tenants: Tenant) -> dict[str, Tenant]:
    return {tenant.name: tenant for tenant in tenants}


def test_a_whole_branch_comes_before_another_whatever_stands_below() -> None:
    tree = _tenants(Tenant("uni"), Tenant("lab"), Tenant("bio", parent="uni"), Tenant("chem", parent="uni"))
    usage = {("bio", "a"): 5.0, ("chem", "b"): 0.0, ("lab", "c"): 4.0}
    assert fair_tree(usage, {}, tree) == {("lab", "c"): 1.0, ("chem", "b"): 2 / 3, ("bio", "a"): 1 / 3}


def test_users_may_use_as_their_shares_say_and_stand_beside_accounts_below() -> None:
    tree = _tenants(Tenant("uni", users=(("a", 3), ("b", 1))), Tenant("bio", parent="uni"))
    usage = {("uni", "a"): 3.0, ("uni", "b"): 2.0, ("bio", "c"): 1.5}
    assert fair_tree(usage, {"bio": 1}, tree) == {("uni", "a"): 1.0, ("bio", "c"): 2 / 3, ("uni", "b"): 1 / 3}


_USERS = [(account, user) for account in "abc" for user in "xy"]


@given(st.lists(st.lists(st.sampled_from((0.0, 0.0, 1.0, 2.0, 2.0, 3.5)), min_size=6, max_size=6), max_size=8))
def test_a_tree_that_is_asked_again_answers_as_a_new_one_does(many: list[list[float]]) -> None:
    tree = FairTree(_USERS, {"a": 2}, {})
    for used in many:
        usage = dict(zip(_USERS, used, strict=True))
        assert tree.factors(usage) == fair_tree(usage, {"a": 2}), usage

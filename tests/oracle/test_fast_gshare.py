"""The plans and places of ``fast-gshare`` against slow, literal forms of their rules, on drawn cases."""

from fractions import Fraction
from itertools import product
from random import Random

import pytest

from headway.fleet.model.catalogue import Configuration
from headway.fleet.policies.fast_gshare.planner import Share, in_time, scale_down, scale_up, shares_of
from headway.fleet.policies.fast_gshare.rectangles import Rectangle, best_area_fit, free_rectangles
from headway.units import MILLISECOND, SECOND

CASES = range(200)


def drawn_shares(random: Random) -> list[Share]:
    """Few round times and sizes, so that ties are frequent."""
    grid = list(product((1, 2, 4), (1, 2), (1, 2, 4, 7)))
    cells = {Configuration(*cell): random.randint(1, 12) * 20 * MILLISECOND for cell in random.sample(grid, 8)}
    return list(shares_of(cells, random.choice([(100,), (20, 50, 100)])))


def literal_scale_up(shares: list[Share], budget: int, missing: Fraction) -> list[tuple[Share, int]]:
    """The rule as it is written, by looking at every share again and again."""

    def rate(share: Share) -> Fraction:
        return Fraction(share.configuration.batch * SECOND, share.time)

    def resource(share: Share) -> Fraction:
        return Fraction(share.configuration.slices * share.quota_percent, 100)

    meeting = [share for share in shares if share.time <= budget]
    if not meeting:
        fastest = min(share.time for share in shares)
        meeting = sorted((s for s in shares if s.time == fastest), key=lambda s: (resource(s), s))[:1]
    best = meeting[0]
    for share in meeting:
        mine, its = rate(share) * resource(best), rate(best) * resource(share)
        if mine > its or (mine == its and (resource(share), share) < (resource(best), best)):
            best = share
    planned, rest = [], missing
    while rest >= rate(best):
        planned.append(best)
        rest -= rate(best)
    if rest > 0:
        gap = min(rate(share) - rest for share in meeting if rate(share) > rest)
        nearest = [share for share in meeting if rate(share) - rest == gap]
        planned.append(min(nearest, key=lambda share: (resource(share), share)))
    counts: dict[Share, int] = {}
    for share in planned:
        counts[share] = counts.get(share, 0) + 1
    return sorted(counts.items())


@pytest.mark.parametrize("case", CASES)
def test_pods_are_added_as_the_rule_says(case: int) -> None:
    random = Random(case)
    shares = drawn_shares(random)
    budget = random.randint(0, 300) * MILLISECOND
    missing = Fraction(random.randint(1, 4000), random.choice([1, 3, 10, 60]))
    added: dict[Share, int] = {}
    for share, count in scale_up(in_time(shares, budget), missing):
        added[share] = added.get(share, 0) + count
    assert sorted(added.items()) == literal_scale_up(shares, budget, missing)
    capacity = sum(share.throughput * count for share, count in added.items())
    assert capacity >= missing
    assert capacity - missing < max(share.throughput for share in added)


@pytest.mark.parametrize("case", CASES)
def test_pods_are_removed_as_the_rule_says(case: int) -> None:
    random = Random(case)
    held = {share: random.randint(1, 4) for share in random.sample(drawn_shares(random), 4)}
    surplus, least = Fraction(random.randint(0, 400), 7), random.randint(0, 3)
    left, pods = surplus, sum(held.values())
    removed: dict[Share, int] = {}
    for share in sorted(held, key=lambda s: (s.efficiency, s.resource, s)):
        for _ in range(held[share]):
            if share.throughput <= left and pods > least:
                left, pods = left - share.throughput, pods - 1
                removed[share] = removed.get(share, 0) + 1
    assert scale_down(held, surplus, least) == removed


def literal_free(width: int, height: int, held: list[Rectangle]) -> list[Rectangle]:
    """Every free rectangle of the grid that cannot be grown on any side."""
    taken = {(x, y) for pod in held for x in range(pod.x, pod.x + pod.width) for y in range(pod.y, pod.y + pod.height)}

    def is_free(x: int, y: int, w: int, h: int) -> bool:
        inside = x >= 0 and y >= 0 and x + w <= width and y + h <= height
        return inside and not any((i, j) in taken for i in range(x, x + w) for j in range(y, y + h))

    return [
        Rectangle(x, y, w, h)
        for x, y, w, h in product(range(width), range(height), range(1, width + 1), range(1, height + 1))
        if is_free(x, y, w, h)
        and not any((is_free(x - 1, y, w + 1, h), is_free(x, y - 1, w, h + 1)))
        and not any((is_free(x, y, w + 1, h), is_free(x, y, w, h + 1)))
    ]


@pytest.mark.parametrize("case", CASES)
def test_pods_are_placed_as_the_rule_says(case: int) -> None:
    """Pods come and go; each time all maximal free rectangles are known, and the best one is taken."""
    random = Random(case)
    width, height = 7, random.choice([1, 4])
    held: list[Rectangle] = []
    for _ in range(7):
        if held and random.random() < 0.3:
            held.remove(random.choice(held))
        free = free_rectangles(width, height, held)
        every = literal_free(width, height, held)
        assert free == every
        w, h = random.randint(1, 4), random.randint(1, height)
        found = best_area_fit(free, w, h)
        fitting = [(r.width * r.height - w * h, r.x, r.y) for r in every if r.width >= w and r.height >= h]
        assert (found is None) == (not fitting)
        if found is not None:
            assert (found[0], found[1].x, found[1].y) == min(fitting)
            held.append(found[1])

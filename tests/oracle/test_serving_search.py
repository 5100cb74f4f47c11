"""ESG's search against exhaustive search and a literal transcription; whole graphs against every assignment."""

from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import product

from hypothesis import given, settings, strategies as st

from headway.fleet.model.catalogue import Configuration
from headway.fleet.model.fleet import Prices
from headway.fleet.model.graph import Graph, Task
from headway.fleet.policies.central.fronts import Option, front_of, front_of_graph, options_of, skyband
from headway.fleet.policies.esg.esg_1q import Path, Search, within_batch
from headway.units import MILLISECOND

Stages = Sequence[Sequence[Option]]


def exhaustive(stages: Stages, slack: int, queue: int, ranks: int) -> tuple[Path, ...]:
    """Every path; the cheapest ``ranks`` of those in time, else the fastest one."""
    first = within_batch(stages[0], queue)
    paths = [
        Path(sum(option.cost for option in path), sum(option.time for option in path), path)
        for path in product(first, *stages[1:])
    ]
    found = sorted(path for path in paths if path.time <= slack)[:ranks]
    return tuple(found) or (min(paths, key=lambda path: path.options),)


def transcription(stages: Stages, slack: int, queue: int, ranks: int) -> list[int]:
    """The costs of the K cheapest paths by A* with both blades, as the method is written down; none in time: none."""
    ordered = [sorted(within_batch(stages[0], queue)), *(sorted(options) for options in stages[1:])]
    count = len(ordered)
    t_low, cost_low, cost_fast = [0] * (count + 1), [0] * (count + 1), [0] * (count + 1)
    for i in reversed(range(count)):
        t_low[i] = t_low[i + 1] + ordered[i][0].time
        cost_low[i] = cost_low[i + 1] + min(option.cost for option in ordered[i])
        cost_fast[i] = cost_fast[i + 1] + ordered[i][0].cost
    completed: dict[tuple[int, ...], int] = {}
    """Distinct completed paths: a prefix and its own fastest extension complete to the same one."""

    def bound() -> int:
        return sorted(completed.values())[ranks - 1] if len(completed) >= ranks else 1 << 62

    heap: list[tuple[int, tuple[int, ...], int, int]] = [(cost_low[0], (), 0, 0)]
    found: list[int] = []
    while heap:
        estimate, prefix, cost, time = heappop(heap)
        i = len(prefix)
        if estimate > bound():
            continue
        if i == count:
            found.append(cost)
            continue
        for at, option in enumerate(ordered[i]):
            if time + option.time + t_low[i + 1] > slack:
                break  # time blade
            if cost + option.cost + cost_low[i + 1] > bound():
                continue  # cost blade
            longer = (*prefix, at)
            completed[longer + (0,) * (count - i - 1)] = cost + option.cost + cost_fast[i + 1]
            heappush(heap, (cost + option.cost + cost_low[i + 1], longer, cost + option.cost, time + option.time))
    return sorted(found)[:ranks]


@st.composite
def stage_lists(draw: st.DrawFn, most_options: int = 8) -> Stages:
    """One to three stages; small numbers, so that ties and dominated options abound."""

    def stage() -> list[Option]:
        count = draw(st.integers(1, most_options))
        pairs = st.tuples(st.integers(1, 9), st.integers(1, 9), st.sampled_from([1, 1, 2, 4]))
        return [
            Option(time, cost, Configuration(batch, 1 + index, 1))
            for index, (time, cost, batch) in enumerate(draw(st.lists(pairs, min_size=count, max_size=count)))
        ]

    return [stage() for _ in range(draw(st.integers(1, 3)))]


@given(stages=stage_lists(), slack=st.integers(0, 30), queue=st.sampled_from([1, 2, 3, 4, 9]), ranks=st.integers(1, 6))
@settings(max_examples=400)
def test_the_k_choices_are_those_of_exhaustive_search(stages: Stages, slack: int, queue: int, ranks: int) -> None:
    assert Search(stages, ranks).paths(slack, queue) == exhaustive(stages, slack, queue, ranks)


@given(stages=stage_lists(), slack=st.integers(0, 30), queue=st.sampled_from([1, 2, 4]), ranks=st.integers(1, 6))
@settings(max_examples=200)
def test_the_literal_search_finds_the_same_costs(stages: Stages, slack: int, queue: int, ranks: int) -> None:
    literal = transcription(stages, slack, queue, ranks)
    found = Search(stages, ranks).paths(slack, queue)
    if literal:
        assert [path.cost for path in found] == literal
    else:
        assert [path.time > slack for path in found] == [True]


@given(stages=stage_lists(), slack=st.integers(0, 30), queue=st.sampled_from([1, 2, 4]))
@settings(max_examples=100)
def test_later_batches_may_be_bound_like_the_first(stages: Stages, slack: int, queue: int) -> None:
    bound = [within_batch(options, queue) for options in stages]
    most = max(option.configuration.batch for option in bound[0])
    bound = [bound[0], *(within_batch(options, most) for options in stages[1:])]
    assert Search(stages, 3, together=True).paths(slack, queue) == exhaustive(bound, slack, queue, 3)


def law(base_ms: float, *, cpus: int, slices: int, bend: float = 0.7) -> tuple[Option, ...]:
    """Options as a real profile has them."""
    cells = {
        Configuration(b, c, s): round(
            base_ms * MILLISECOND * (0.25 + 0.75 * b**0.85) * (0.25 / c**0.6 + 0.75 / s**bend)
        )
        for b in (1, 2, 4, 8)
        for c in range(1, cpus + 1)
        for s in range(1, slices + 1)
    }
    return options_of(cells, Prices())


def test_on_profiles_of_a_plausible_shape_all_three_agree() -> None:
    stages = [law(86, cpus=3, slices=4), law(293, cpus=3, slices=4, bend=0.5), law(147, cpus=2, slices=4, bend=0.9)]
    least = 526 * MILLISECOND
    for tenths in (3, 5, 8, 10, 12, 20):
        for queue in (1, 3, 8):
            slack = least * tenths // 10
            found = Search(stages, 5).paths(slack, queue)
            assert found == exhaustive(stages, slack, queue, 5)
            assert [path.cost for path in found] == (transcription(stages, slack, queue, 5) or [found[0].cost])


def test_dropping_all_dominated_options_would_lose_ranks() -> None:
    options = [Option(5, 10, Configuration(1, 1, 1)), Option(6, 11, Configuration(1, 2, 1))]
    assert len(skyband(options, 1)) == 1
    assert [path.cost for path in Search([options], 2).paths(10, 1)] == [10, 11]


@given(stages=stage_lists(), slack=st.integers(0, 30), ranks=st.integers(1, 4))
@settings(max_examples=100)
def test_a_skyband_loses_none_of_the_k_best(stages: Stages, slack: int, ranks: int) -> None:
    kept = [skyband(options, ranks) for options in stages]
    assert exhaustive(kept, slack, 9, ranks) == exhaustive(stages, slack, 9, ranks)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Any graph of up to five tasks."""
    count = draw(st.integers(1, 5))
    pairs = [(a, b) for b in range(count) for a in range(b)]
    edges = tuple(pair for pair in pairs if draw(st.booleans()))
    return Graph("g", tuple(Task(f"t{i}", i) for i in range(count)), edges)


@given(graph=graphs(), drawn=st.data())
@settings(max_examples=200)
def test_the_front_of_a_whole_graph_is_that_of_every_assignment(graph: Graph, drawn: st.DataObject) -> None:
    pairs = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=3)
    options = [
        [Option(time, cost, Configuration(1, 1 + index, 1)) for index, (time, cost) in enumerate(drawn.draw(pairs))]
        for _ in graph.tasks
    ]
    best: dict[int, int] = {}
    for assignment in product(*options):
        time = graph.critical_path([option.time for option in assignment])
        best[time] = min(best.get(time, 1 << 60), sum(option.cost for option in assignment))
    kept = skyband(Option(time, cost, Configuration(1, 1, 1)) for time, cost in best.items())
    front = front_of_graph(graph, {task: front_of(choices, task) for task, choices in enumerate(options)})
    assert list(zip(front.times.tolist(), front.costs.tolist(), strict=True)) == [(o.time, o.cost) for o in kept]
    hasty = front_of_graph(graph, {task: front_of(choices, task) for task, choices in enumerate(options)}, effort=2)
    assert hasty.fastest == front.fastest
    assert all(cost >= best for cost, best in zip(hasty.costs, front.costs_within(hasty.times), strict=True))
    for point, (time, cost) in enumerate(zip(hasty.times, hasty.costs, strict=True)):
        picks = hasty.picks(point)
        assert sum(option.cost for option in picks.values()) <= cost
        assert graph.critical_path([picks[task].time for task in range(len(graph.tasks))]) <= time
    for point in range(len(front)):
        picks = front.picks(point)
        assert sorted(picks) == list(range(len(graph.tasks)))  # type: ignore[type-var]
        assert sum(option.cost for option in picks.values()) == front.costs[point]
        assert graph.critical_path([picks[task].time for task in range(len(graph.tasks))]) <= front.times[point]

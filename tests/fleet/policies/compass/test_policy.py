"""``compass``: its plan against the paper's words, its second look, its options, and whose rows it reads."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings, strategies as st

from headway.errors import ExperimentError
from headway.fleet.model.actions import PlaceRequest
from headway.fleet.model.catalogue import Catalogue, Model
from headway.fleet.model.events import RequestArrived
from headway.fleet.model.fleet import Fleet
from headway.fleet.model.graph import Graph, Task
from headway.fleet.model.request import Request
from headway.fleet.model.rows import Kind
from headway.fleet.policies.compass.planner import QUEUED, Planner
from headway.fleet.policies.compass.policy import Compass
from headway.fleet.policies.registry import build
from headway.fleet.state.requeststate import RequestState
from headway.fleet.state.state import ServingState
from headway.fleet.state.workerstate import Row
from headway.units import MILLISECOND, SECOND
from tests.fleet.worlds import MB, World, chain, drive, function, graphs, workers, worlds

MS = MILLISECOND
IDLE = Row(True, 0, 0, 0, 0, 0, 100 * MB, 4, 1, 0)


# --- the plan, as the paper has it ------------------------------------------------------------------------------------


def words(
    now: int, graph: Graph, ingress: int, rows: Sequence[Row], state: ServingState, *, load: bool, cache: bool
) -> dict[int, int]:
    """The plan, written down as the paper says it, without any care for speed."""
    catalogue, fleet = state.catalogue, state.fleet

    def size(model: int) -> int:
        return catalogue.models[model].size_bytes

    def run(t: int) -> int:
        return state.latency.base[0][graph.tasks[t].function]

    def tdcc(bytes_sent: int) -> int:
        return fleet.copy_time(0, 1, bytes_sent)

    def tdhg(bytes_sent: int) -> int:
        return fleet.fetch_time(bytes_sent)

    def tdgg(bytes_sent: int) -> int:
        return tdhg(bytes_sent) + tdcc(bytes_sent) + tdhg(bytes_sent)

    def rank(t: int) -> int:
        rest = [tdgg(graph.tasks[t].output_bytes) + rank(s) for s in graph.successors[t]]
        return run(t) + (max(rest) if rest else 0)

    def input_of(t: int) -> int:
        before = graph.predecessors[t]
        return sum(graph.tasks[p].output_bytes for p in before) if before else graph.tasks[t].input_bytes

    eat = {w: now + (row.queued if load else 0) for w, row in enumerate(rows)}
    free = {w: row.free_bytes for w, row in enumerate(rows)}
    where: dict[int, int] = {}
    finish: dict[int, int] = {}
    for t in sorted(graph.order, key=lambda t: (-rank(t), graph.order.index(t))):
        starts, fetched = {}, {}
        for w, row in enumerate(rows):
            at = now + (tdcc(graph.tasks[t].input_bytes) if not graph.predecessors[t] and w != ingress else 0)
            for p in graph.predecessors[t]:
                at = max(at, finish[p] + (tdcc(graph.tasks[p].output_bytes) if w != where[p] else 0))
            missing = [m for m in set(catalogue.functions[graph.tasks[t].function].models) if not row.resident >> m & 1]
            m = sum(tdhg(size(model)) * (2 if free[w] < size(model) else 1) for model in missing)
            starts[w] = max(eat[w], at) + (m if cache else 0)
            fetched[w] = sum(size(model) for model in missing)
        where[t] = min(starts, key=lambda w: (starts[w], w))
        finish[t] = starts[where[t]] + tdgg(input_of(t)) + run(t)
        eat[where[t]] = finish[t]
        free[where[t]] -= fetched[where[t]]
    return where


@st.composite
def questions(draw: st.DrawFn) -> tuple[ServingState, list[Row], RequestState, int]:
    """A graph, equal workers, what each says of itself, and where the request came in."""
    sizes = [draw(st.sampled_from([0, 20, 50, 90])) * MB for _ in range(draw(st.integers(1, 4)))]
    models = tuple(Model(f"m{i}", size) for i, size in enumerate(sizes))
    functions = tuple(
        function(
            f"f{i}",
            draw(st.sampled_from([0.001, 1, 30, 400])),
            *draw(st.lists(st.integers(0, len(models) - 1), max_size=2, unique=True)),
        )
        for i in range(draw(st.integers(1, 4)))
    )
    graph = draw(graphs(len(functions), "g"))
    fleet = workers(draw(st.integers(2, 5)), 200 * MB)
    state = World(Catalogue(models, functions, (graph,)), fleet, ()).state()
    rows = []
    for _ in fleet.workers:
        resident = draw(st.integers(0, (1 << len(models)) - 1))
        free = draw(st.sampled_from([0, 30, 60, 100])) * MB
        rows.append(IDLE._replace(queued=draw(st.integers(0, 600)) * MS, resident=resident, free_bytes=free))
    ingress = draw(st.integers(0, len(fleet.workers) - 1))
    return state, rows, RequestState(Request(0, 0, 0, ingress), graph), draw(st.integers(0, 3)) * SECOND


@given(question=questions(), load=st.booleans(), cache=st.booleans())
@settings(max_examples=150, deadline=None)
def test_the_plan_is_that_of_the_paper(
    question: tuple[ServingState, list[Row], RequestState, int], load: bool, cache: bool
) -> None:
    state, rows, rs, now = question
    planner = Planner(QUEUED, load=load, cache=cache)
    planner.bind(state, [tuple(range(len(rows)))] * len(state.catalogue.functions))
    plan = planner.plan(now, planner.view(now, rows), rs, rs.request.ingress)
    said = words(now, rs.graph, rs.request.ingress, rows, state, load=load, cache=cache)
    assert dict(enumerate(plan)) == said


# --- by hand ----------------------------------------------------------------------------------------------------------

MODELS = (Model("a", 40 * MB), Model("b", 40 * MB))
FUNCTIONS = (function("f", 100, 0), function("g", 50, 1), function("h", 10))
FORK = Graph(
    "fork",
    (Task("f", 0, 0, 1000), Task("g", 1, 0, 1000), Task("h", 2, 0, 1000), Task("join", 2)),
    ((0, 1), (0, 2), (1, 3), (2, 3)),
)
CATALOGUE = Catalogue(MODELS, FUNCTIONS, (FORK, chain("gh", 1, 2)))


def _bound(policy: Compass, fleet: Fleet | None = None) -> ServingState:
    state = World(CATALOGUE, fleet or workers(3), ()).state()
    policy.bind(state)
    return state


def _placed(*where: int) -> RequestState:
    rs = RequestState(Request(0, 0, 0, 0), FORK)
    rs.worker = list(where)
    return rs


def _rows(*queued_ms: int, resident: Sequence[int] = (3, 3, 3)) -> list[Row]:
    return [
        IDLE._replace(queued=ms * MS, resident=there, free_bytes=20 * MB)
        for ms, there in zip(queued_ms, resident, strict=True)
    ]


def test_a_task_is_sent_elsewhere_only_beyond_the_patience_of_its_own_run_time() -> None:
    policy = Compass(estimate="queued")
    _bound(policy)
    rs = _placed(0, 1, 0, 0)  # g, of 50 ms, is planned on worker 1; its input lies on worker 0
    assert policy.adjusted(0, _rows(60, 75, 0), rs, 1, 0) == 1
    assert policy.adjusted(0, _rows(60, 76, 0), rs, 1, 0) == 2
    assert policy.adjusted(0, _rows(0, 76, 0), rs, 1, 0) == 0  # nothing to send


def test_fetching_counts_when_a_task_is_sent_elsewhere_twice_where_room_must_be_made() -> None:
    policy = Compass(estimate="queued")
    state = _bound(policy)
    fetch = state.fleet.fetch_time(40 * MB) / MS  # 3.8 ms
    rs = _placed(0, 1, 0, 0)
    assert policy.adjusted(0, _rows(80, 80, 75, resident=(3, 3, 1)), rs, 1, 0) == 0  # 75 + 2 · 3.8 > 80
    assert policy.adjusted(0, _rows(80, 80, 70, resident=(3, 3, 1)), rs, 1, 0) == 2
    assert 3 < fetch < 4


def test_its_own_time_is_not_what_a_task_waits_for() -> None:
    policy = Compass(estimate="reserved")
    _bound(policy)
    rs = _placed(0, 1, 0, 0)
    rows = [row._replace(reserved=100 * MS if worker == 1 else 0) for worker, row in enumerate(_rows(0, 0, 0))]
    assert policy.adjusted(0, rows, rs, 1, 0) == 1  # 100 ms are reserved, 50 of them for itself: no more than 75


_CHANGES: tuple[dict[str, int], ...] = ({}, {"wanted": 3}, {"busy_until": 0})


@pytest.mark.parametrize(("estimate", "wait"), [("queued", 20), ("running", 20 + 30), ("reserved", 20 + 30 + 7)])
def test_what_counts_as_taken(estimate: str, wait: int) -> None:
    planner = Compass(estimate=estimate).planner
    state = World(CATALOGUE, workers(3), ()).state()
    planner.bind(state, [(0, 1, 2)] * 3)
    row = IDLE._replace(queued=20 * MS, reserved=7 * MS, busy_until=SECOND + 30 * MS, resident=1, wanted=1)
    assert planner.taken_until(SECOND, row) == SECOND + wait * MS
    missing = row._replace(wanted=3)
    fetch = 0 if estimate == "queued" else state.fleet.fetch_time(40 * MB)
    assert planner.taken_until(SECOND, missing) == SECOND + wait * MS + fetch
    view = planner.view(SECOND, [row, missing, row._replace(busy_until=0)])
    assert view.taken_until == [planner.taken_until(SECOND, row._replace(**more)) for more in _CHANGES]
    assert view.up is None
    assert view.resident == ([1, 1, 1] if estimate == "queued" else [1, 3, 1])
    assert view.free == [100 * MB, (100 if estimate == "queued" else 60) * MB, 100 * MB]


def test_authors_count_the_task_that_starts_as_queued_where_it_starts() -> None:
    policy = build("compass", authors=True)
    assert isinstance(policy, Compass)
    _bound(policy)
    rs = _placed(0, 0, 0, 0)
    assert policy.adjusted(0, _rows(0, 0, 0), rs, 1, 0) == 1  # f, of 100 ms, starts on worker 0: more than 75
    assert Compass(estimate="queued").adjust_at == "end"


# --- whole runs -------------------------------------------------------------------------------------------------------


def _crowd(**more: int) -> World:
    requests = tuple(Request(i, i % 2, i * 20 * MS, i % 3) for i in range(30))
    return World(CATALOGUE, workers(3, 90 * MB), requests, push_interval=10 * MS, **more)


def test_adjust_off_moves_nothing_and_on_moves_no_joins() -> None:
    assert not drive("compass(adjust=off)", _crowd()).rows(Kind.MOVE)
    moved = drive("compass", _crowd()).rows(Kind.MOVE)
    assert moved
    for row in moved:
        graph = CATALOGUE.graphs[row.subject % 2]
        assert len(graph.predecessors[row.detail]) == 1


@given(world=worlds(), authors=st.booleans())
@settings(max_examples=15, deadline=None)
def test_joins_stay_where_they_were_planned(world: World, authors: bool) -> None:
    run = drive(build("compass", authors=authors), world)
    graph_of = {request.id: world.catalogue.graphs[request.graph] for request in world.requests}
    assert all(len(graph_of[row.subject].predecessors[row.detail]) == 1 for row in run.rows(Kind.MOVE))


def test_without_the_load_term_everybody_goes_where_the_models_are() -> None:
    graph = chain("f", 0)
    catalogue = Catalogue(MODELS, FUNCTIONS, (graph,))
    requests = (Request(0, 0, 0, 1), *(Request(i, 0, SECOND + i, i % 3) for i in range(1, 7)))
    world = World(catalogue, workers(3), requests)
    blind = {row.place for row in drive("compass(load=off)", world).rows(Kind.PLACE)}
    seeing = {row.place for row in drive("compass", world).rows(Kind.PLACE)}
    assert blind == {1}
    assert seeing == {0, 1, 2}


def test_without_the_cache_term_a_request_stays_where_it_came_in() -> None:
    graph = chain("f", 0)
    catalogue = Catalogue((Model("a", 90 * MB), MODELS[1]), FUNCTIONS, (graph,))
    requests = tuple(Request(i, 0, i * SECOND, i % 3) for i in range(6))
    world = World(catalogue, workers(3), requests)
    assert [row.place for row in drive("compass(cache=off)", world).rows(Kind.PLACE)] == [0, 1, 2, 0, 1, 2]
    assert {row.place for row in drive("compass", world).rows(Kind.PLACE)} == {0}


def test_without_the_way_from_the_ingress_the_first_of_equal_workers_is_taken() -> None:
    world = World(Catalogue(MODELS, FUNCTIONS, (chain("h", 2),)), workers(3), (Request(0, 0, 0, 2),))
    assert [row.place for row in drive("compass(ingress=off)", world).rows(Kind.PLACE)] == [0]
    assert [row.place for row in drive("compass", world).rows(Kind.PLACE)] == [2]


def test_a_plan_reads_nothing_that_was_not_pushed() -> None:
    plans = []
    for busy in (False, True):
        world = World(CATALOGUE, workers(3), (), push_interval=SECOND)
        state = world.state()
        policy = Compass()
        policy.bind(state)
        state.apply(5, RequestArrived(Request(0, 0, 5, 1)))
        state.to_come = 2
        if busy:  # within the interval: worker 1 knows of it, worker 0 does not
            state.commit(5, PlaceRequest(0, (1, 1, 1, 1)))
        else:
            state.commit(5, PlaceRequest(0, (2, 2, 2, 2)))
        state.apply(6, RequestArrived(Request(1, 0, 6, 0)))
        plans.append([action for action in policy.decide(6, state) if isinstance(action, PlaceRequest)])
    assert plans[0] == plans[1]
    assert [plan.request for plan in plans[0]] == [1]


def test_what_a_worker_itself_holds_it_knows_at_once() -> None:
    plans = []
    for busy in (False, True):
        state = World(CATALOGUE, workers(2), (), push_interval=SECOND).state()
        policy = Compass(estimate="reserved")
        policy.bind(state)
        if busy:
            state.apply(5, RequestArrived(Request(0, 0, 5, 0)))
            state.commit(5, PlaceRequest(0, (0, 0, 0, 0)))
        state.apply(6, RequestArrived(Request(1, 0, 6, 0)))
        plans.append(next(action for action in policy.decide(6, state) if isinstance(action, PlaceRequest)))
    assert plans[0].workers[0] == 0
    assert plans[1].workers[0] == 1


@pytest.mark.parametrize("name", ["compass", "heft", "jit", "hash"])
@pytest.mark.parametrize("authors", [False, True])
def test_with_nobody_up_requests_wait_for_the_first_that_returns(name: str, authors: bool) -> None:
    outages = ((0, MS, 3 * SECOND), (1, MS, 2 * SECOND), (2, MS, 4 * SECOND))
    requests = (Request(0, 0, 0, 0), Request(1, 0, 500 * MS, 2), Request(2, 1, 700 * MS, 0))
    run = drive(build(name, authors=authors), World(CATALOGUE, workers(3), requests, outages))
    assert sorted(row.subject for row in run.rows(Kind.DONE)) == [0, 1, 2]
    again = min(row.time for row in run.rows(Kind.RUN) if row.time > MS)
    assert 0 <= again - (2 * SECOND + MS) < MS


@pytest.mark.parametrize(
    ("spec", "rule"),
    [
        ("compass(estimate=fresh)", "is none of queued, running, reserved"),
        ("compass(evict=lru)", "is neither lookahead nor fifo"),
        ("compass(prefetch=-1)", "is negative"),
        ("compass(patience=-1)", "is negative"),
        ("compass(adjust_at=noon)", "is neither end nor start"),
        ("jit(start=here)", "is neither open nor hash"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(spec: str, rule: str) -> None:
    with pytest.raises(ExperimentError, match=rule):
        build(spec)


def test_a_plan_made_again_leaves_what_is_placed() -> None:
    world = World(CATALOGUE, workers(3), (Request(0, 0, 0, 0),), ((1, 150 * MS, SECOND),))
    state = world.state()
    policy = Compass()
    policy.bind(state)
    state.apply(0, RequestArrived(world.requests[0]))
    state.commit(0, PlaceRequest(0, (0, 2, -1, 0)))
    rs = state.requests[0]
    plan = policy.plan(0, state, rs, 0)
    assert (plan[0], plan[1], plan[3]) == (0, 2, 0)
    assert plan[2] in (0, 1, 2)

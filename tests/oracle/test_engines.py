"""Engines against a literal one that computes every iteration by itself, one token at a time."""

from hypothesis import example, given, settings, strategies as st

from headway.fleet.audit.audit import audit
from headway.fleet.model.generation import Generation
from headway.fleet.model.iterations import Decode
from headway.fleet.model.request import Request
from headway.fleet.model.rows import Kind
from headway.units import SECOND
from tests.fleet.generating import KV, TABLE, Literal, LiteralEngine, asked, generation, kinds, world_of
from tests.fleet.worlds import drive


def asking(arrival: int, prompt: int, output: int, *, number: int = 0) -> Request:
    """A request of the graph that only generates."""
    return Request(number, 0, arrival, 0, prompt_tokens=prompt, output_tokens=output)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Generation, tuple]:
    kind = draw(kinds())
    return kind, draw(asked(kind.cache_tokens))


FIRST_BOUNDARY = 1_000_000
"""When the first iteration of the first request below ends."""


@given(case=cases())
@example(case=(generation(), (asking(0, 4, 20), asking(3_000_000, 4, 5, number=1))))  # amid a step of 19 iterations
@example(case=(generation(), (asking(0, 4, 20), asking(FIRST_BOUNDARY, 4, 5, number=1))))  # as an iteration ends
@example(case=(generation(16), (asking(0, 4, 9), asking(1, 4, 9, number=1))))  # the cache is full until the first ends
@settings(max_examples=150, deadline=None)
def test_first_and_last_tokens_come_when_a_literal_engine_gives_them(case: tuple[Generation, tuple]) -> None:
    kind, requests = case
    literal = LiteralEngine(kind, [Literal.of(each) for each in requests])
    expected = literal.play()
    run = drive("hash", world_of(kind, requests))
    first = {row.subject: row.time for row in run.rows(Kind.FIRST_TOKEN)}
    ended = {row.subject: row.time for row in run.rows(Kind.DONE)}
    assert first == {each.number: each.first for each in expected}
    assert ended == {each.number: each.end for each in expected}
    loaded = {row.lease: row.detail for row in run.rows(Kind.LOADED)}
    assert {row.subject: loaded[row.lease] for row in run.rows(Kind.TASK)} == {
        each.number: each.cached for each in expected
    }
    assert not audit(run.world.catalogue, run.world.fleet, requests, run.tape)
    assert run.state.workers[0].cached.get(0, 0) == 0
    assert literal.most_tokens * KV <= kind.cache_bytes


@given(
    rows=st.integers(1, 9), total=st.integers(9, 400), longest=st.integers(1, 90), ended=st.integers(0, 90),
    growth=st.integers(1, 9), count=st.integers(1, 40),
)  # fmt: skip
def test_many_iterations_take_what_they_take_one_by_one(
    rows: int, total: int, longest: int, ended: int, growth: int, count: int
) -> None:
    growth = min(growth, rows)
    together = TABLE.decode_times(Decode(rows, total, longest), count, growth, ended)
    single = [
        int(TABLE.decode_times(Decode(rows, total + growth * at, longest + at), 1, growth, ended)[0])
        for at in range(count)
    ]
    assert together.tolist() == single
    assert all(0 < time < SECOND for time in single)

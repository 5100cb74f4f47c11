"""Engines against a literal one that computes every iteration by itself, one token at a time."""

from hypothesis import given, settings, strategies as st

from headway.serving.audit import audit
from headway.serving.generation import Generation
from headway.serving.iterations import Decode
from headway.serving.rows import Kind
from headway.units import SECOND
from tests.serving.generating import KV, TABLE, Literal, LiteralEngine, asked, kinds, world_of
from tests.serving.worlds import drive


@st.composite
def cases(draw: st.DrawFn) -> tuple[Generation, tuple]:
    kind = draw(kinds())
    return kind, draw(asked(kind.cache_tokens))


@given(case=cases())
@settings(max_examples=150, deadline=None)
def test_first_and_last_tokens_come_when_a_literal_engine_gives_them(case: tuple[Generation, tuple]) -> None:
    kind, requests = case
    literal = LiteralEngine(
        kind,
        [
            Literal(each.id, each.arrival, each.prompt_tokens, each.output_tokens, shared=shared, group=each.prefix_group)
            for each in requests
            for shared in [each.prefix_tokens]
        ],
    )
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

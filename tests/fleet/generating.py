"""Small worlds in which functions generate, and a literal engine that computes one iteration after the other."""

from dataclasses import dataclass, field

from hypothesis import strategies as st

from headway.fleet.model.catalogue import Catalogue, Configuration, Function, Model, Profile
from headway.fleet.model.fleet import Fleet, Gpu, Worker
from headway.fleet.model.generation import BATCHINGS, CONTINUOUS, REQUEST, Generation
from headway.fleet.model.graph import Graph, Task
from headway.fleet.model.iterations import NO_ROWS, Cells, Decode, IterationTable
from headway.fleet.model.request import Request
from headway.units import MILLISECOND
from tests.fleet.worlds import MB, World, function

KV = 1000
TABLE = IterationTable(
    Cells(
        {1: {8: 1.0, 64: 1.4}, 4: {8: 1.3, 64: 2.1}},
        {4: {0: 0.9}, 16: {0: 1.7, 32: 2.0}},
        {(1, 8, 4): 1.6, (4, 8, 4): 2.0, (4, 64, 16): 3.9},
        host_ms=0.1,
        row_sizes=(1, 2, 4),
        mixed_row_sizes=(2, 4),
        token_sizes=(4, 8, 16),
        undivided_rows=3,
        longest_ms=(2.0, 5.0),
    )
)


def generation(cache_tokens: int = 60, **options: object) -> Generation:
    """An engine with a small cache."""
    return Generation(
        TABLE, KV, cache_tokens * KV, 6, 5, **{"max_batch": 4, "chunk": 8, "prefill_tokens": 12} | options
    )


def world_of(
    kind: Generation,
    requests: tuple[Request, ...],
    workers: int = 1,
    holds: tuple[int, int] = (0, 0),
    **options: object,
) -> World:
    """A pipeline of a plain function, one that generates, and for its other graph the latter alone; all are warm."""
    cell = {"": {Configuration(1, *holds): kind.alone()}}
    answer = Function("answer", (0,), Profile(cell), generate=kind)
    graphs = (
        Graph("alone", (Task("answer", 0),), ()),
        Graph("behind", (Task("look", 1), Task("answer", 0)), ((0, 1),)),
    )
    model = Model("decoder", 50 * MB + kind.cache_bytes, kind.cache_bytes)
    catalogue = Catalogue((model,), (answer, function("look", 2)), graphs)
    gpu = Gpu("T4", 60 * MB, 8)
    fleet = Fleet(tuple(Worker(f"w{i}", gpu, cpus=8, host=i) for i in range(workers)), warm=True)
    return World(catalogue, fleet, requests, **options)


@st.composite
def asked(draw: st.DrawFn, cache_tokens: int, graphs: int = 1, workers: int = 1) -> tuple[Request, ...]:
    """Requests that fit into the cache, close together."""
    made, now = [], 0
    for number in range(draw(st.integers(1, 9))):
        now += draw(st.sampled_from([0, 1, 300_000, MILLISECOND, 7 * MILLISECOND, 40 * MILLISECOND]))
        prompt = draw(st.integers(1, min(40, cache_tokens - 1)))
        output = draw(st.integers(1, min(30, cache_tokens - prompt)))
        at = draw(st.integers(0, workers - 1))
        shared = min(draw(st.sampled_from([0, 3, 9])), prompt - 1)
        group = draw(st.integers(0, 1)) if shared else 0
        graph = draw(st.integers(0, graphs - 1))
        made.append(
            Request(
                number,
                graph,
                now,
                at,
                prompt_tokens=prompt,
                output_tokens=output,
                prefix_tokens=shared,
                prefix_group=group,
            )
        )
    return tuple(made)


@st.composite
def kinds(draw: st.DrawFn) -> Generation:
    """Engines of every way of batching, with little room."""
    return generation(
        draw(st.sampled_from([8, 30, 60, 90, 300])),
        max_batch=draw(st.integers(1, 6)),
        chunk=draw(st.integers(2, 16)),
        prefill_tokens=draw(st.integers(3, 20)),
        max_prompts=draw(st.integers(1, 3)),
        batching=draw(st.sampled_from(BATCHINGS)),
        keep_prefix=draw(st.booleans()),
    )


@st.composite
def generating_worlds(draw: st.DrawFn, *, outages: bool = False, least_slices: int = 0) -> World:
    """Requests of both graphs on one or two workers."""
    holds = draw(st.sampled_from([(0, 0), (1, 1), (1, 0), (0, 2)]))
    kind, workers = draw(kinds()), draw(st.integers(1, 2))
    requests = draw(asked(kind.cache_tokens, 2, workers))
    script = tuple((at, draw(st.integers(1, 90)) * MILLISECOND, 5 * MILLISECOND) for at in range(workers))
    holds = (holds[0], max(holds[1], least_slices))
    return world_of(kind, requests, workers, holds, outages=script if outages else ())


@dataclass
class Kept:
    """A prefix that is kept."""

    group: int
    tokens: int
    ready: bool = False


@dataclass
class Literal:
    """A request in the literal engine."""

    number: int
    arrival: int
    prompt: int
    output: int
    prefilled: int = 0
    tokens: int = 0
    first: int = -1
    end: int = -1
    shared: int = 0
    group: int = 0
    cached: int = 0
    kept: "Kept | None" = None

    @classmethod
    def of(cls, each: Request) -> "Literal":
        """One of a request."""
        tokens = (each.prompt_tokens, each.output_tokens)
        return cls(each.id, each.arrival, *tokens, shared=each.prefix_tokens, group=each.prefix_group)

    @property
    def context(self) -> int:
        """Tokens in the cache before its next row."""
        return self.prompt + self.tokens - 1

    @property
    def whole(self) -> bool:
        """Whether it has all its tokens."""
        return self.tokens == self.output


@dataclass
class LiteralEngine:
    """An engine that computes every iteration by itself."""

    kind: Generation
    coming: list[Literal]
    now: int = 0
    waiting: list[Literal] = field(default_factory=list)
    inside: list[Literal] = field(default_factory=list)
    most_tokens: int = 0
    kept: list[Kept] = field(default_factory=list)
    """The least recently used first."""

    def play(self) -> list[Literal]:
        """Compute until all are returned; return them in their order."""
        everyone = list(self.coming)
        while self.coming or self.waiting or self.inside:
            if not self.waiting and not self.inside:
                self.now = max(self.now, self.coming[0].arrival)
            while self.coming and self.coming[0].arrival <= self.now:
                self.waiting.append(self.coming.pop(0))
            self.iterate()
        return everyone

    def iterate(self) -> None:
        """One iteration: choose rows and parts of prompts, let the time pass, hand out tokens."""
        kind, together = self.kind, self.kind.batching == REQUEST
        running = [each for each in self.inside if each.prefilled == each.prompt]
        budget = kind.chunk - len(running) if kind.batching == CONTINUOUS else kind.prefill_tokens
        if together and not self.inside:
            while self.admit():
                pass
        parts: list[tuple[Literal, int]] = []
        while budget > 0 and len(parts) < kind.max_prompts:
            begun = [each for each in self.inside if each.prefilled < each.prompt]
            if len(parts) == len(begun) and (together or not self.admit()):
                break
            begun = [each for each in self.inside if each.prefilled < each.prompt]
            each = begun[len(parts)]
            parts.append((each, min(budget, each.prompt - each.prefilled)))
            budget -= parts[-1][1]
        rows = running if kind.batching == CONTINUOUS or not parts else []
        self.now += self.takes(rows, parts)
        for each in rows:
            each.tokens += not each.whole
        for each, new in parts:
            each.prefilled += new
            if each.prefilled == each.prompt:
                each.tokens, each.first = 1, self.now
                if each.kept is not None:
                    each.kept.ready = True
        if not together or all(each.whole for each in self.inside):
            for each in self.inside:
                if each.whole:
                    each.end = self.now
            self.inside = [each for each in self.inside if not each.whole]

    def admit(self) -> bool:
        """Let the first in, if there is room for its prompt and its output."""
        if not self.waiting or len(self.inside) >= self.kind.max_batch:
            return False
        first = self.waiting[0]
        known = [each for each in self.kept if each.group == first.group and first.shared]
        hit = known[0] if known and known[0].ready else None
        if hit and not self.fits(first.prompt + first.output - min(hit.tokens, first.shared), hit):
            hit = None
        cached = min(hit.tokens, first.shared) if hit else 0
        need = first.prompt + first.output - cached
        if not self.fits(need, hit):
            return False
        idle = self.idle(hit)
        while self.taken() + need > self.kind.cache_tokens:
            self.kept.remove(idle.pop(0))
        first.cached = first.prefilled = cached
        if hit:
            self.kept.remove(hit)
            self.kept.append(hit)
        elif first.shared and not any(each.group == first.group for each in self.kept) and self.kind.keep_prefix:
            hit = Kept(first.group, first.shared)
            self.kept.append(hit)
        first.kept = hit
        self.inside.append(self.waiting.pop(0))
        self.most_tokens = max(self.most_tokens, self.taken())
        return True

    def idle(self, hit: Kept | None) -> list[Kept]:
        """Prefixes that may leave."""
        return [each for each in self.kept if each is not hit and all(user.kept is not each for user in self.inside)]

    def fits(self, need: int, hit: Kept | None) -> bool:
        """Whether so many tokens fit once all idle prefixes but one have left."""
        return self.taken() - sum(each.tokens for each in self.idle(hit)) + need <= self.kind.cache_tokens

    def taken(self) -> int:
        """Tokens in the cache: each prefix once, whoever uses it."""
        own = [each.prompt + each.output - self.of_prefix(each) for each in self.inside]
        return sum(own) + sum(each.tokens for each in self.kept)

    def of_prefix(self, each: Literal) -> int:
        """Tokens of a request that are those of a prefix."""
        brought = each.kept is not None and not each.cached
        return each.shared if brought else each.cached

    def takes(self, rows: list[Literal], parts: list[tuple[Literal, int]]) -> int:
        """The nanoseconds of one iteration."""
        contexts = [min(each.context, each.prompt + each.output - 1) for each in rows]
        decode = Decode(len(rows), sum(contexts), max(contexts)) if rows else NO_ROWS
        if not parts:
            return int(self.kind.table.decode_times(decode, 1, len(rows))[0])
        new = sum(count for _, count in parts)
        return self.kind.table.time(decode, new, sum(each.prefilled * count for each, count in parts) / new)

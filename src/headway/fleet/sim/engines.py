"""Engines that generate tokens: what a continuous-batching server does, iteration after iteration, in virtual time.

While the same requests run and no prompt is to be computed, all iterations up to the next end are one step: their times
are summed, exactly, and a request that joins meanwhile cuts the step at the end of the iteration that it finds.
"""

from collections import deque
from collections.abc import Set
from heapq import heappop, heappush

import numpy as np

from headway.fleet.model.events import BatchFinished, BatchLoaded, Event, FirstToken
from headway.fleet.model.generation import CONTINUOUS, REQUEST, Generation
from headway.fleet.model.iterations import NO_ROWS, Decode, IntArray
from headway.fleet.model.request import Request
from headway.fleet.state.state import ServingState
from headway.fleet.state.workerstate import Batch

Outcome = tuple[int, Event]
"""When something happens, and what."""


class Prefix:
    """A prefix, or a block of one, in the cache that several requests share."""

    __slots__ = ("ready", "tokens", "users")

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self.users = 1
        self.ready = False
        """Whether the request that brought it has its prompt computed."""


class Sequence:
    """A request in an engine. ``key`` is its prompt less the engine's steps when it had its first token."""

    __slots__ = ("cached", "held", "kept", "key", "lease", "output", "prefilled", "prompt", "shares")

    def __init__(self, lease: int, request: Request) -> None:
        self.lease = lease
        self.prompt = request.prompt_tokens
        self.output = request.output_tokens
        self.shares = [(request.prefix_group, request.prefix_tokens)] if request.prefix_tokens else []
        """What it shares with others, from the beginning of its prompt on: keys, and the tokens of each."""
        if request.blocks:
            self.shares = request.block_tokens()
        self.prefilled = 0
        self.key = 0
        self.cached = 0
        """Tokens of its prompt that were in the cache."""
        self.held = 0
        """Tokens that it holds in the cache besides what is kept for others."""
        self.kept: list[Prefix] = []
        """What it found in the cache, and what it is the first to compute."""

    def last_step(self) -> int:
        """Return the engine's steps when it has its last token."""
        return self.prompt - self.key + self.output - 1


class Engine:
    """One engine: requests that wait, whose prompts are computed, and that run; and the step that it is at."""

    def __init__(self, worker: int, kind: Generation) -> None:
        self.worker = worker
        self.kind = kind
        self.waiting: deque[Sequence] = deque()
        self.begun: list[Sequence] = []
        """Admitted; their prompts are not computed yet."""
        self.running: list[Sequence] = []
        self.steps = 0
        """Iterations with decode rows so far."""
        self.loads = 0
        """How often its weights had come when it was last used."""
        self.used_tokens = 0
        self.prefixes: dict[int, Prefix] = {}
        """Prefixes in the cache by group or block, the least recently used first."""
        self.at = 0
        """When the step in progress began, or the last one ended."""
        self.ends: IntArray | None = None
        """When each iteration of the step in progress ends; None: there is none."""
        self.parts: list[tuple[Sequence, int]] = []
        """Prompts, and how many tokens of each the step computes."""
        self.version = 0
        """Counts steps and cuts: a tick of another version is out of date."""

    # --- the step ---------------------------------------------------------------------------------------------

    def begin(self) -> list[Sequence]:
        """Begin the next step at ``at``, if there is anything to compute; return the requests that it admits."""
        kind, waited = self.kind, len(self.waiting)
        line = list(self.waiting)
        decodes = True
        if kind.batching == CONTINUOUS:
            self.parts = self._parts(kind.chunk - len(self.running))
        elif kind.batching == REQUEST:
            if not self.begun and not self.running:
                while self._admit():
                    pass
            self.parts = self._parts(kind.prefill_tokens, admits=False)
            decodes = not self.parts
        else:
            self.parts = self._parts(kind.prefill_tokens)
            decodes = not self.parts
        self.version += 1
        if self.parts or self.running:
            self.ends = self.at + np.cumsum(self._times(decodes))
        return line[: waited - len(self.waiting)]

    def cut(self, now: int) -> int:
        """End the step with the iteration that is in progress; return when."""
        assert self.ends is not None
        self.ends = self.ends[: int(np.searchsorted(self.ends, now)) + 1]
        self.version += 1
        return int(self.ends[-1])

    def end(self) -> tuple[list[Sequence], list[Sequence]]:
        """End the step; return the requests that had their first token, and those that are returned."""
        assert self.ends is not None
        self.at = int(self.ends[-1])
        if not self.parts or self.kind.batching == CONTINUOUS:
            self.steps += len(self.ends) if self.running else 0
        self.ends = None
        firsts = []
        for sequence, tokens in self.parts:
            sequence.prefilled += tokens
            if sequence.prefilled == sequence.prompt:
                sequence.key = sequence.prompt - self.steps
                for prefix in sequence.kept:
                    prefix.ready = True
                firsts.append(sequence)
        if firsts:
            self.begun = [each for each in self.begun if each.prefilled < each.prompt]
            self.running += firsts
        return firsts, self._returned()

    def _returned(self) -> list[Sequence]:
        steps, whole = self.steps, self.kind.batching == REQUEST
        ended = [each for each in self.running if each.last_step() <= steps]
        if whole and (self.begun or len(ended) < len(self.running)):
            return []
        if ended:
            self.running = [each for each in self.running if each.last_step() > steps]
            self.used_tokens -= sum(each.held for each in ended)
            for each in ended:
                for prefix in each.kept:
                    prefix.users -= 1
        return ended

    # --- what an iteration computes ---------------------------------------------------------------------------

    def _admit(self) -> bool:
        """Give the first that waits its rows of the cache; return whether it could."""
        if not self.waiting or len(self.begun) + len(self.running) >= self.kind.max_batch:
            return False
        first = self.waiting[0]
        found = self._found(first)
        cached = min(sum(min(self.prefixes[key].tokens, tokens) for key, tokens in found), first.prompt - 1)
        need = first.prompt + first.output
        if not self._make_room(need - cached, {key for key, _ in found}):
            if not found or not self._make_room(need, set()):
                return False
            found, cached = [], 0  # a long prefix of which it needs little made way
        first.cached = first.prefilled = cached
        first.held = need - cached
        self.used_tokens += first.held
        new = first.shares[len(found) :] if self.kind.keep_prefix else []
        for key, tokens in reversed(new):  # what is deeper leaves first: without the beginning it is of no use
            if key not in self.prefixes:
                first.kept.append(self.prefixes.setdefault(key, Prefix(tokens)))
                first.held -= tokens
        for key, _ in reversed(found):
            prefix = self.prefixes[key] = self.prefixes.pop(key)
            prefix.users += 1
            first.kept.append(prefix)
        self.begun.append(self.waiting.popleft())
        return True

    def _found(self, sequence: Sequence) -> list[tuple[int, int]]:
        """Return what a request shares with others and is computed, up to the first that is not."""
        ready = [key in self.prefixes and self.prefixes[key].ready for key, _ in sequence.shares]
        return sequence.shares[: ready.index(False) if False in ready else len(ready)]

    def _make_room(self, need: int, keep: Set[int]) -> bool:
        """Let prefixes go that no request uses, the least recently used first; return whether so many tokens fit."""
        over = self.used_tokens + need - self.kind.cache_tokens
        if over <= 0:
            return True
        idle = [group for group, each in self.prefixes.items() if not each.users and group not in keep]
        if sum(self.prefixes[group].tokens for group in idle) < over:
            return False
        for group in idle:
            if over <= 0:
                break
            gone = self.prefixes.pop(group).tokens
            self.used_tokens -= gone
            over -= gone
        return True

    def forget(self) -> None:
        """Drop all prefixes: the weights were evicted meanwhile, and the cache with them."""
        self.used_tokens -= sum(each.tokens for each in self.prefixes.values())
        self.prefixes.clear()

    def _parts(self, tokens: int, *, admits: bool = True) -> list[tuple[Sequence, int]]:
        """Return parts of prompts, in order, of so many tokens in all."""
        found: list[tuple[Sequence, int]] = []
        while tokens > 0 and len(found) < self.kind.max_prompts:
            if len(found) == len(self.begun) and not (admits and self._admit()):
                break
            sequence = self.begun[len(found)]
            found.append((sequence, min(tokens, sequence.prompt - sequence.prefilled)))
            tokens -= found[-1][1]
        return found

    def _times(self, decodes: bool) -> IntArray:
        """Return the nanoseconds of the iterations of the next step."""
        steps, table = self.steps, self.kind.table
        if not self.parts:
            live = [each for each in self.running if each.last_step() > steps]
            ended = [each.prompt + each.output - 1 for each in self.running if each.last_step() <= steps]
            keys = [each.key for each in live]
            total = sum(keys) + len(keys) * steps + sum(ended)
            rows = Decode(len(self.running), total, max(keys) + steps)
            count = min(each.last_step() for each in live) - steps
            return table.decode_times(rows, count, len(live), max(ended, default=0))
        rows = NO_ROWS
        if decodes and self.running:
            keys = [each.key for each in self.running]
            rows = Decode(len(keys), sum(keys) + len(keys) * steps, max(keys) + steps)
        new = sum(tokens for _, tokens in self.parts)
        before = sum(sequence.prefilled * tokens for sequence, tokens in self.parts) / new
        return np.array([table.time(rows, new, before)], dtype=np.int64)


class Engines:
    """All engines of a fleet, and when the next of them does something."""

    def __init__(self, state: ServingState) -> None:
        self._state = state
        self._engines: dict[tuple[int, int], Engine] = {}
        self._ticks: list[tuple[int, int, int, Engine, Sequence | None]] = []
        """(time, number, version, engine, who joins then); without anyone the step ends."""
        self._number = 0
        self._idle: dict[int, Engine] = {}
        """Engines whose last step ended, by their identity: they begin the next once the instant is decided."""

    def run(self, now: int, batch: Batch, worker: int, request: Request) -> None:
        """Let a task join its engine when its inputs and weights are there."""
        generate = self._state.catalogue.functions[batch.function].generate
        assert generate is not None
        key = (worker, batch.function)
        if (engine := self._engines.get(key)) is None:
            engine = self._engines[key] = Engine(worker, generate)
        if (loads := self._state.workers[worker].memory.loads[batch.models[0]]) != engine.loads:
            engine.loads = loads
            engine.forget()
        sequence = Sequence(batch.lease, request)
        if batch.start > now:
            self._tick(batch.start, engine, sequence)
        else:
            self._join(now, engine, sequence)

    def fail(self, worker: int) -> None:
        """Forget the engines of a worker that failed."""
        for key in [key for key in self._engines if key[0] == worker]:
            engine = self._engines.pop(key)
            engine.version = -1
            self._idle.pop(id(engine), None)

    def step(self, limit: int) -> list[Outcome] | None:
        """Do what comes next, up to ``limit``, the next instant; return what it causes, None where nothing comes.

        An engine begins its next step only after the instant at which the last one ended is decided.
        """
        if (engine := next((each for each in self._idle.values() if each.at < limit), None)) is not None:
            del self._idle[id(engine)]
            admitted = engine.begin()
            if engine.ends is not None:
                self._tick(int(engine.ends[-1]), engine, None)
            return [(engine.at + 1, BatchLoaded(engine.worker, each.lease, each.cached)) for each in admitted]
        if not self._ticks or self._ticks[0][0] > limit:
            return None
        now, _, version, engine, sequence = heappop(self._ticks)
        if engine.version == -1 or (sequence is None and version != engine.version):
            return []
        if sequence is not None:
            self._join(now, engine, sequence)
            return []
        firsts, returned = engine.end()
        self._idle[id(engine)] = engine
        events: list[Outcome] = [(now, FirstToken(engine.worker, each.lease)) for each in firsts]
        return events + [(now, BatchFinished(engine.worker, each.lease)) for each in returned]

    def _join(self, now: int, engine: Engine, sequence: Sequence) -> None:
        engine.waiting.append(sequence)
        if engine.ends is None:
            engine.at = max(engine.at, now)
            self._idle[id(engine)] = engine
        elif len(engine.ends) > 1 and len(engine.waiting) == 1 and engine.kind.batching != REQUEST:
            self._tick(engine.cut(now), engine, None)

    def _tick(self, time: int, engine: Engine, sequence: Sequence | None) -> None:
        self._number += 1
        heappush(self._ticks, (time, self._number, engine.version, engine, sequence))

"""A small server of a language model: requests arrive as in a trace and share iterations, on a real decoder.

Four ways of batching:
``chunked``  every iteration has a row for each running request; the rest of its tokens are parts of prompts, in order;
``prefill``  prompts come first, in iterations of their own; running requests get a token when no prompt can be begun;
``static``   a batch is filled, computed to its longest output and returned whole; meanwhile others wait;
``tight``    as ``chunked``, with less cache.
A request is admitted in order of arrival, when the cache has room for its prompt and its whole output: rows are never
taken back.
"""

import gc
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from bench.gpu_decoder_model import MOST_PREFILLS, Decoder, Ints, Iteration, Prefill, has_graphs
from bench.gpu_decoder_rows import said

PREFILL_TOKENS = 4096
"""Tokens of an iteration that computes nothing but prompts."""
SHORT_CONTEXTS = (1024, 2048)
"""Small decode batches have graphs of their own for these: attention splits a context by the longest it may be."""


@dataclass(eq=False)
class Request:
    """One request: what it asks, where its rows are, and when it began, had its first token and ended."""

    number: int
    arrival: float
    prompt: int
    output: int
    place: int = -1
    prefilled: int = 0
    tokens: list[int] = field(default_factory=list)
    start: float = -1.0
    first: float = -1.0
    end: float = -1.0
    returned: float = -1.0

    @property
    def context(self) -> int:
        """Return how many of its tokens are in the cache before its next decode row."""
        return self.prompt + len(self.tokens) - 1


class Rows:
    """The free rows of the cache, as holes in order; row 0 is nobody's."""

    def __init__(self, count: int) -> None:
        self.holes = [(1, count - 1)]
        self.taken = 0

    def take(self, count: int) -> int:
        """Return the first row of the first hole that is large enough; -1 where there is none."""
        for number, (start, size) in enumerate(self.holes):
            if size >= count:
                self.holes[number : number + 1] = [(start + count, size - count)] if size > count else []
                self.taken += count
                return start
        return -1

    def free(self, start: int, count: int) -> None:
        """Give rows back; holes that touch become one."""
        self.taken -= count
        merged: list[tuple[int, int]] = []
        for first, size in sorted([*self.holes, (start, count)]):
            if merged and sum(merged[-1]) == first:
                merged[-1] = (merged[-1][0], merged[-1][1] + size)
            else:
                merged.append((first, size))
        self.holes = merged


# --- captured iterations ------------------------------------------------------------------------------------------


class Engine:
    """The decoder with its iterations, captured in a few sizes; an iteration runs in the next larger one."""

    def __init__(self, decoder: Decoder, chunk: int, running: int, longest: int) -> None:
        self.decoder, self.longest = decoder, longest
        steps = (0, 1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 64, 80, 96, 112, 128, 160, 192, 224)
        self.decodes = [*(step for step in steps if step < running), running]
        self.beside = [step for step in self.decodes if step in (4, 8, 16, 32, 48, 64, 96, 128, 192, running)]
        parts = (0, 32, 64, 128, 192, 256, 320, 384, 448, 512, 768, 1024, 1280, 1536, 1792)
        self.chunks = [*(part for part in parts if part < chunk), chunk]
        most = max(PREFILL_TOKENS, chunk)
        self.prompts = [*self.chunks, *(size for size in range(256, most, 256) if size > chunk)]
        self.prompts += [most] if most > chunk else []
        self._made: dict[tuple[int, int, int], Iteration] = {}
        self._graphs = has_graphs(decoder)
        self._pool = torch.cuda.graph_pool_handle() if decoder.cuda else None
        draw = np.random.default_rng(0)
        self._words: Ints = draw.integers(0, decoder.shape.vocabulary, 4 * longest).astype(np.int32)

    def sizes(self) -> Iterator[tuple[int, int, int]]:
        """Yield decode rows, prefill tokens and longest context of every iteration that may be needed."""
        for decode in self.decodes[1:]:
            yield from (self.size(decode, 0, longest) for longest in (*SHORT_CONTEXTS, self.longest))
        for prefill in self.prompts[1:]:
            yield self.size(0, prefill, self.longest)
        for decode in self.beside:
            yield from (self.size(decode, prefill, self.longest) for prefill in self.chunks[1:])

    def size(self, decode: int, prefill: int, longest: int) -> tuple[int, int, int]:
        """Return the size that an iteration runs in."""
        kept = next((each for each in SHORT_CONTEXTS if longest <= each), self.longest)
        fits = next(each for each in (self.beside if decode and prefill else self.decodes) if each >= decode)
        among = self.chunks if decode else self.prompts
        return fits, next(each for each in among if each >= prefill), self.longest if prefill or fits > 24 else kept

    def capture(self) -> None:
        """Capture all sizes before anything is timed, the largest first."""
        wanted = sorted(set(self.sizes()), key=lambda size: (-size[1], -size[0], -size[2]))
        for number, size in enumerate(wanted):
            self._iteration(size)
            if number % 40 == 0:
                said(f"captured {number + 1} of {len(wanted)} sizes")

    def _iteration(self, size: tuple[int, int, int]) -> Iteration:
        if size not in self._made:
            self._made[size] = Iteration(self.decoder, *size, captured=self._graphs, pool=self._pool)
        return self._made[size]

    def words(self, request: Request, count: int) -> Ints:
        """Return the next tokens of a prompt: drawn ones, always the same for a request."""
        at = (request.number * 37) % (2 * self.longest) + request.prefilled
        return self._words[at : at + count]

    def run(self, decodes: Sequence[Request], prefills: Sequence[tuple[Request, int]]) -> tuple[list[int], float]:
        """Compute one iteration; return the next token of each decode row and prefill, and the GPU's seconds."""
        contexts = np.array([each.context for each in decodes], np.int32)
        starts = np.array([each.place for each in decodes], np.int32)
        tokens = np.array([each.tokens[-1] for each in decodes], np.int32)
        parts = [Prefill(self.words(each, new), each.place, each.prefilled) for each, new in prefills]
        size = self.size(len(decodes), sum(new for _, new in prefills), int(contexts.max(initial=0)) + 1)
        iteration = self._iteration(size)
        self.padded = size[:2]
        began = time.perf_counter()
        iteration.batch.fill(tokens, starts, contexts, parts)
        if self.decoder.cuda:
            first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            first.record()
        out = iteration.run()
        if self.decoder.cuda:
            last.record()
        found = out.tolist()
        took = first.elapsed_time(last) / 1e3 if self.decoder.cuda else time.perf_counter() - began
        return found[: len(decodes)] + found[size[0] : size[0] + len(prefills)], took


# --- the server ---------------------------------------------------------------------------------------------------


class Server:
    """Requests that wait, whose prompts are computed, and that run; one batching, one run."""

    def __init__(self, engine: Engine, batching: str, chunk: int, running: int, cache_tokens: int) -> None:
        self.engine, self.batching, self.chunk, self.most = engine, batching, chunk, running
        self.rows = Rows(cache_tokens)
        self.waiting: deque[Request] = deque()
        self.begun: list[Request] = []
        self.running: list[Request] = []
        self.group: list[Request] = []

    def idle(self) -> bool:
        """Return whether there is nothing to compute."""
        return not (self.waiting or self.begun or self.running)

    def admit(self) -> bool:
        """Give the first that waits its rows; return whether it could."""
        if not self.waiting or len(self.begun) + len(self.running) >= self.most:
            return False
        first = self.waiting[0]
        first.place = self.rows.take(first.prompt + first.output)
        if first.place < 0:
            return False
        self.begun.append(self.waiting.popleft())
        return True

    def plan(self) -> tuple[list[Request], list[tuple[Request, int]]]:
        """Return the decode rows and the parts of prompts of the next iteration."""
        if self.batching == "static":
            if not self.group:
                while self.admit():
                    pass
                self.group = list(self.begun)
            prefills = self.parts(PREFILL_TOKENS, admits=False)
            return ([], prefills) if prefills else (self.group, [])
        if self.batching == "prefill":
            prefills = self.parts(PREFILL_TOKENS)
            return ([], prefills) if prefills else (self.running, [])
        return self.running, self.parts(self.chunk - len(self.running))

    def parts(self, tokens: int, admits: bool = True) -> list[tuple[Request, int]]:
        """Return parts of prompts, in order of arrival, of so many tokens in all."""
        found: list[tuple[Request, int]] = []
        while tokens > 0 and len(found) < MOST_PREFILLS:
            if len(found) == len(self.begun) and not (admits and self.admit()):
                break
            request = self.begun[len(found)]
            found.append((request, min(tokens, request.prompt - request.prefilled)))
            tokens -= found[-1][1]
        return found

    def step(self, clock: "Clock") -> dict[str, object]:
        """Compute one iteration and tell what it was."""
        decodes, prefills = self.plan()
        if not decodes and not prefills:
            first = self.waiting[0]
            raise SystemExit(f"request {first.number}: {first.prompt + first.output} tokens never fit the cache")
        new = sum(count for _, count in prefills)
        began = clock.now()
        before = {
            "prefill_tokens": new,
            "prefill_requests": len(prefills),
            "prefill_context": round(sum(each.prefilled * count for each, count in prefills) / max(new, 1), 1),
            "decode_batch": len(decodes),
            "mean_context": round(sum(each.context for each in decodes) / max(len(decodes), 1), 1),
            "waiting": len(self.waiting),
            "reserved_tokens": self.rows.taken,
        }
        found, gpu = self.engine.run(decodes, prefills)
        ended = clock.now()
        self.finish(decodes, prefills, found, began, ended)
        padded = self.engine.padded
        times = {"start_s": round(began, 6), "duration_s": round(ended - began, 6), "gpu_s": round(gpu, 6)}
        return {**times, **before, "padded_decode": padded[0], "padded_prefill": padded[1]}

    def finish(
        self,
        decodes: list[Request],
        prefills: list[tuple[Request, int]],
        found: list[int],
        began: float,
        ended: float,
    ) -> None:
        """Hand out the tokens; requests that have all of theirs leave, of a static batch all at once."""
        for request, token in zip(decodes, found, strict=False):
            if len(request.tokens) < request.output:  # in a static batch rows go on when they are done
                request.tokens.append(token)
                if len(request.tokens) == request.output:
                    request.end = ended
        for (request, count), token in zip(prefills, found[len(decodes) :], strict=True):
            request.start = began if request.prefilled == 0 else request.start
            request.prefilled += count
            if request.prefilled == request.prompt:
                request.tokens.append(token)
                request.first = ended
                if request.output == 1:
                    request.end = ended
        now_running = [each for each, _ in prefills if each.prefilled == each.prompt]
        self.begun = [each for each in self.begun if each.prefilled < each.prompt]
        self.running = self.running + now_running
        if self.batching == "static" and (self.begun or any(each.end < 0 for each in self.running)):
            return
        for request in self.running:
            if request.end >= 0:
                request.returned = ended
                self.rows.free(request.place, request.prompt + request.output)
        self.running = [each for each in self.running if each.end < 0]
        self.group = []


class Clock:
    """Seconds since a run began."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    def now(self) -> float:
        """Return the seconds since the beginning."""
        return time.perf_counter() - self._began


def played(server: Server, requests: Sequence[Request], limit: float) -> list[dict[str, object]]:
    """Serve requests as they arrive, until all are done or so many seconds are over; return the iterations."""
    coming = deque(requests)
    found: list[dict[str, object]] = []
    gc.collect()
    gc.disable()  # a collection amid an iteration would be measured
    try:
        clock = Clock()
        while (now := clock.now()) < limit:
            while coming and coming[0].arrival <= now:
                server.waiting.append(coming.popleft())
            if not server.idle():
                found.append(server.step(clock))
            elif coming:
                time.sleep(max(0.0, min(coming[0].arrival - clock.now(), 0.05)))
            else:
                break
    finally:
        gc.enable()
    return found

"""How a function generates: its iterations, its key-value cache, and how its engine batches requests.

On a worker there is one engine for each generating function. A task that a policy starts there waits in the engine's
line, in order, until the cache has room for its prompt and its whole output: rows of the cache are never taken back
(docs/background/decisions/0034). The policy sees expected numbers of tokens, the executor the request's own.
"""

from dataclasses import dataclass

import numpy as np

from headway.fleet.model.iterations import NO_ROWS, Decode, FloatArray, IterationTable

CONTINUOUS, PREFILL_FIRST, REQUEST = "continuous", "prefill-first", "request"
BATCHINGS = (CONTINUOUS, PREFILL_FIRST, REQUEST)
_PARTS = 8
"""Of an answer, at which contexts of a full batch are sampled."""


@dataclass(frozen=True, slots=True)
class Generation:
    """What an engine of a generating function is like."""

    table: IterationTable
    kv_bytes_per_token: int
    cache_bytes: int
    """GPU memory that each engine reserves for keys and values, beside the weights and as long as they are there."""
    expected_prompt: int
    """Prompt tokens of a request as policies expect them."""
    expected_output: int
    max_batch: int = 256
    """The most requests that share an iteration."""
    batching: str = CONTINUOUS
    """``continuous``: each iteration has a row for every running request and fills up to ``chunk`` tokens with parts of
    prompts; ``prefill-first``: prompts come in iterations of their own, before any further token; ``request``: a batch
    is computed to its longest output and returned whole, while others wait."""
    chunk: int = 512
    """Tokens of a continuous iteration, decode rows included."""
    prefill_tokens: int = 4096
    """Tokens of an iteration of prompts alone."""
    max_prompts: int = 16
    """The most prompts of which an iteration computes a part."""
    keep_prefix: bool = False
    """Whether the keys and values of a shared prefix stay in the cache, the least recently used ones leaving first."""
    sampled: tuple[tuple[int, int], ...] = ()
    """Prompt and output tokens of requests like those that come; empty: as expected. For ``saturated`` alone."""

    @property
    def cache_tokens(self) -> int:
        """Return how many tokens the cache holds."""
        return self.cache_bytes // self.kv_bytes_per_token

    def alone(self, prompt: int = 0, output: int = 0) -> int:
        """Return the nanoseconds of a request that has the engine to itself; without tokens, of the expected one."""
        prompt, output = prompt or self.expected_prompt, output or self.expected_output
        most = self.chunk if self.batching == CONTINUOUS else self.prefill_tokens
        time = 0
        for done in range(0, prompt, most):
            time += self.table.time(NO_ROWS, min(most, prompt - done), done)
        if output > 1:
            time += int(self.table.decode_times(Decode(1, prompt, prompt), output - 1, 1).sum())
        return time

    def among(self, members: int) -> int:
        """Return the expected nanoseconds of a request among so many in the engine, itself included.

        Each iteration has a row for every member, and prompts come as often as answers end. More members than an
        iteration has tokens for wait in line, so that the time grows with their number.
        """
        if members <= 1:
            return self.alone()
        prompt, output = self.expected_prompt, self.expected_output
        rows = min(members, self.max_batch, max(1, self.cache_tokens // (prompt + output)))
        if self.batching == CONTINUOUS:
            rows = min(rows, max(1, self.chunk * output // (prompt + output)))
        context = prompt + output // 2
        decode = Decode(rows, rows * context, context)
        if self.batching == CONTINUOUS:
            time = self.table.time(decode, max(1, rows * prompt // output), prompt / 2) * output
        else:
            most = min(prompt, self.prefill_tokens)
            prefill = self.table.time(NO_ROWS, most, 0) * max(1, prompt // most)
            time = rows * prefill + int(self.table.decode_times(decode, 1, rows)[0]) * output
        return max(self.alone(), time * members // rows)

    def saturated(self, places: int) -> int:
        """Return the expected nanoseconds that the engine takes for each request when its batch is full.

        Rows are bound by ``max_batch``, by the ``places`` that its worker has for requests, by the cache, and in
        continuous batching by the tokens that prompts leave.
        """
        prompt, output = self.expected_prompt, self.expected_output
        rows = max(1, min(self.max_batch, places, self.cache_tokens // (prompt + output)))
        if self.batching == CONTINUOUS:
            rows = max(1, min(rows, self.chunk * output // (prompt + output)))
        drawn = np.array(self.sampled or ((prompt, output),), dtype=np.float64)
        prompts, outputs = drawn.T
        decode = _rows(prompts, outputs, rows)
        before = float((prompts**2).sum() / prompts.sum() / 2)
        if self.batching == CONTINUOUS:
            return self.table.time(decode, max(1, rows * prompt // output), before) * output // rows
        most = min(prompt, self.prefill_tokens)
        prefill = self.table.time(NO_ROWS, most, before if prompt > most else 0) * max(1, prompt // most)
        return prefill + int(self.table.decode_times(decode, 1, rows)[0]) * output // rows


def _rows(prompts: FloatArray, outputs: FloatArray, rows: int) -> Decode:
    """Return the decode rows of a full batch of requests like some: their contexts in the mean, and the longest.

    A request is in the batch for as many iterations as it has output tokens, so long outputs are seen more often.
    """
    parts = (np.arange(_PARTS) + 0.5) / _PARTS
    contexts = (prompts[:, None] + outputs[:, None] * parts).ravel()
    order = np.argsort(contexts, kind="stable")
    contexts, seen = contexts[order], np.repeat(outputs, _PARTS)[order] / (_PARTS * outputs.sum())
    all_below = np.minimum(np.cumsum(seen), 1.0) ** rows
    longest = float(contexts @ np.diff(all_below, prepend=0.0))
    return Decode(rows, round(rows * float(contexts @ seen)), round(longest))

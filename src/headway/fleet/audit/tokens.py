"""Token part of the serving audit: the key-value cache of each engine, and the first and last token of each request."""

from collections.abc import Iterator

from headway.fleet.audit.records import BatchRecord, Violation, WorkerRecord
from headway.fleet.model.catalogue import Function
from headway.fleet.model.request import Request


def begin(batch: BatchRecord, kind: Function, request: Request | None) -> None:
    """Note the cache that a batch of a generating function will hold."""
    if kind.generate is not None and request is not None:
        batch.output_tokens = request.output_tokens
        batch.cache_bytes = kind.generate.kv_bytes_per_token * (request.prompt_tokens + request.output_tokens)


def admitted(worker: WorkerRecord, batch: BatchRecord, request: Request | None, cached: int) -> Iterator[Violation]:
    """Yield a violation where the batches of an engine hold more keys and values than its cache has room for.

    ``cached`` tokens of the prompt were in the cache: requests that share them must have computed them there since
    the weights came.
    """
    kind = worker.catalogue.functions[batch.function]
    if kind.generate is None:
        if cached:
            yield "cache", f"{cached} tokens are said to be in the cache, function {kind.name} has none"
        return
    if cached and request is not None:
        known = _computed(worker, batch.function, request) if kind.generate.keep_prefix else 0
        if cached > min(known, request.prompt_tokens - 1):
            yield "cache", f"{cached} tokens of its prompt are said to be in the cache, where {known} can be"
        batch.cache_bytes -= cached * kind.generate.kv_bytes_per_token
    beside = [other for other in worker.batches.values() if other.function == batch.function and other.loaded >= 0]
    held, room = sum(other.cache_bytes for other in beside), kind.generate.cache_bytes
    if held > room:
        yield "cache", f"{held} bytes of keys and values are held, the cache of {kind.name} has {room}"
    if len(beside) > kind.generate.max_batch:
        yield "cache", f"{len(beside)} requests share an iteration of {kind.name}, at most {kind.generate.max_batch}"


def first_token(
    worker: WorkerRecord, batch: BatchRecord, request: Request | None, row: list[int]
) -> Iterator[Violation]:
    """Note the first token of a batch; yield the rules that it breaks."""
    kind = worker.catalogue.functions[batch.function]
    if kind.generate is None:
        yield "token", f"function {kind.name} does not generate"
    if [(row[2], row[5])] != list(batch.tasks):
        yield "token", f"the first token of task {row[5]} of request {row[2]}, it has the tasks {batch.tasks}"
    if batch.loaded < 0:
        yield "token", "its first token comes before it computes"
    if batch.first_token >= 0:
        yield "token", "it has its first token twice"
    batch.first_token = row[0]
    for key, tokens in _shares(request) if request is not None else ():
        at = (batch.function, key)
        worker.prefixes[at] = max(worker.prefixes.get(at, 0), tokens)


def _shares(request: Request) -> list[tuple[int, int]]:
    """Return what a request shares with others: keys of blocks or of its group, and their tokens."""
    return request.block_tokens() if request.blocks else [(request.prefix_group, request.prefix_tokens)]


def _computed(worker: WorkerRecord, function: int, request: Request) -> int:
    """Return how many tokens at the beginning of a prompt were computed for others, up to the first that were not."""
    total = 0
    for key, tokens in _shares(request):
        known = min(worker.prefixes.get((function, key), 0), tokens)
        total += known
        if known < tokens:
            break
    return total


def ended(kind: Function, batch: BatchRecord, now: int) -> Iterator[Violation]:
    """Yield a violation where a batch that generates ends without its tokens, or with all of them at once."""
    if kind.generate is None:
        return
    if batch.first_token < 0:
        yield "token", "it ends and never had its first token"
    elif batch.output_tokens > 1 and now <= batch.first_token:
        yield "token", f"it has all its {batch.output_tokens} tokens at once"

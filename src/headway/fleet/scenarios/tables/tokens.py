"""Tables about language models in a scenario: how a function generates, its iterations, tokens and their deadlines."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, isfinite, log
from statistics import NormalDist
from typing import Any

from msgspec import Struct, field

from headway.errors import ExperimentError, ProfileError, unknown_name
from headway.fleet.model.generation import BATCHINGS, CONTINUOUS, Generation
from headway.fleet.model.iterations import Cells, IterationTable
from headway.fleet.scenarios.tables.profile import MOST_MS, Rows, Size, size
from headway.jobs.tables.cluster import within
from headway.jobs.tables.settings import Span, span

MOST_TOKENS = 10_000_000
MOST_BATCH = 65_536
Tokens = str | int
_DRAWN = re.compile(r"\s*(?:(uniform|lognormal|exponential)\s*:)?\s*([0-9.eE+]+)\s*(?:,\s*([0-9.eE+]+))?\s*")
_TAKES = {"": 1, "exponential": 1, "uniform": 2, "lognormal": 2}


class GenerateTable(Struct, kw_only=True, forbid_unknown_fields=True):
    """How a function generates tokens."""

    table: str | dict[str, Any]
    """Times of iterations: a shipped table by its name, a file beside the scenario, or the table itself."""
    cache: Size
    """GPU memory for keys and values, beside the weights."""
    prompt: int
    """Prompt tokens of a request as policies expect them."""
    output: int
    kv_bytes_per_token: Size = ""
    """The table's unless given."""
    max_batch: int = 256
    batching: str = CONTINUOUS
    chunk: int = 512
    prefill_tokens: int = 4096
    max_prompts: int = 16
    keep_prefix: bool = False
    """Whether shared prefixes stay in the cache."""
    cpus: int = 0
    """What a request holds of its worker while it is in the engine; 0: nothing."""
    slices: int = 0


class DecoderTable(Struct, kw_only=True, forbid_unknown_fields=True):
    """Measured iterations of a decoder; milliseconds are the last number of each row."""

    decode: Rows
    """Decode rows, their context, milliseconds."""
    prefill: Rows
    """Prefill tokens, tokens before them, milliseconds."""
    mixed: Rows = field(default_factory=list)
    """Decode rows, their context, prefill tokens, milliseconds."""
    kv_bytes_per_token: Size = ""
    host_ms: float = 0.0
    row_sizes: list[int] = field(default_factory=list)
    mixed_row_sizes: list[int] = field(default_factory=list)
    token_sizes: list[int] = field(default_factory=list)
    undivided_rows: int = 1
    longest_ms: tuple[float, float] = (0.0, 0.0)
    gpu: str = ""
    """For a reader, as the two below."""
    model: str = ""
    source: str = ""


class SloTable(Struct, kw_only=True, forbid_unknown_fields=True):
    """Deadlines of a graph: for the whole answer, its first token, and each further token."""

    latency: str = ""
    ttft: Span = ""
    tpot: Span = ""


class PrefixTable(Struct, kw_only=True, forbid_unknown_fields=True):
    """A beginning that prompts share: so many tokens, the same for all requests of a group, drawn evenly."""

    tokens: int
    groups: int = 1


def check_prefix(table: PrefixTable, where: str) -> tuple[int, int]:
    """Return the tokens and the groups of a shared prefix, checked."""
    within(f"{where}: prefix tokens", table.tokens, 1, MOST_TOKENS)
    within(f"{where}: prefix groups", table.groups, 1, MOST_TOKENS)
    return table.tokens, table.groups


@dataclass(frozen=True, slots=True)
class Drawn:
    """Numbers of tokens: ``uniform`` between two bounds, ``lognormal`` with a median and the standard deviation of the
    logarithm, ``exponential`` with a mean, or always the same."""

    kind: str
    first: float
    second: float = 0.0

    def mean(self) -> int:
        """Return the mean, as a whole number of tokens."""
        if self.kind == "uniform":
            mean = (self.first + self.second) / 2
        else:
            mean = self.first * exp(self.second**2 / 2)  # the second number is 0 but of a lognormal one
        return max(1, round(min(mean, MOST_TOKENS)))

    def spread(self, count: int) -> list[int]:
        """Return so many numbers that are equally likely: quantiles, evenly spaced."""
        at = [(place + 0.5) / count for place in range(count)]
        if self.kind == "uniform":
            values = [self.first + (self.second - self.first) * share for share in at]
        elif self.kind == "lognormal":
            values = [self.first * exp(self.second * NormalDist().inv_cdf(share)) for share in at]
        elif self.kind == "exponential":
            values = [-self.first * log(1 - share) for share in at]
        else:
            values = [self.first]
        return [max(1, round(min(value, MOST_TOKENS))) for value in values]


def parse_tokens(text: Tokens, what: str) -> Drawn | None:
    """Parse numbers of tokens; None where nothing is given."""
    if str(text).strip() == "":
        return None
    matched = _DRAWN.fullmatch(str(text))
    values = [float(value) for value in matched.groups()[1:] if value] if matched and _numbers(matched) else []
    kind = (matched[1] or "") if matched else ""
    if len(values) != _TAKES[kind]:
        raise ExperimentError(
            f"{what} {text!r} is not understood: write 512, uniform:100,900, lognormal:400,0.9 or exponential:200"
        )
    low = values[0]
    if not 1 <= low <= MOST_TOKENS or (kind == "uniform" and not low <= values[1] <= MOST_TOKENS):
        raise ExperimentError(f"{what} {text!r}: must be 1 to {MOST_TOKENS:,} tokens, the first bound not the larger")
    if kind == "lognormal" and not 0 <= values[1] <= 10:
        raise ExperimentError(f"{what} {text!r}: the standard deviation of the logarithm must lie in 0 to 10")
    return Drawn(kind, *values)


def _numbers(matched: re.Match[str]) -> bool:
    try:
        return all(isfinite(float(value)) for value in matched.groups()[1:] if value)
    except ValueError:
        return False


def deadline_of(given: Span, what: str) -> int:
    """Return a deadline of tokens in nanoseconds; 0 where none is given."""
    return span(given, what, least=1) if given != "" else 0


def generation_of(table: GenerateTable, decoder: DecoderTable, where: str) -> Generation:
    """Return how a function generates, every number checked."""
    if table.batching not in BATCHINGS:
        raise ExperimentError(f"{where}: {unknown_name('batching', table.batching, BATCHINGS)}")
    for key, most in (("prompt", MOST_TOKENS), ("output", MOST_TOKENS), ("max_batch", MOST_BATCH)):
        within(f"{where}: {key}", getattr(table, key), 1, most)
    for key in ("chunk", "prefill_tokens", "max_prompts"):
        within(f"{where}: {key}", getattr(table, key), 1, MOST_TOKENS)
    for key in ("cpus", "slices"):
        within(f"{where}: {key}", getattr(table, key), 0, MOST_BATCH)
    given = table.kv_bytes_per_token if table.kv_bytes_per_token != "" else decoder.kv_bytes_per_token
    per_token = size(given, f"{where}: kv_bytes_per_token", least=1)
    if per_token is None:
        raise ExperimentError(f"{where}: kv_bytes_per_token is missing: neither it nor its table says it")
    cache = size(table.cache, f"{where}: cache", least=1)
    if cache is None:
        raise ExperimentError(f"{where}: cache is empty: say how much GPU memory keys and values get")
    if (needs := table.prompt + table.output) * per_token > cache:
        raise ExperimentError(
            f"{where}: the cache holds {cache // per_token:,} tokens, a request of {table.prompt:,} + {table.output:,} "
            f"needs {needs:,}; enlarge cache"
        )
    return Generation(
        iterations_of(decoder, where),
        per_token,
        cache,
        table.prompt,
        table.output,
        table.max_batch,
        table.batching,
        table.chunk,
        table.prefill_tokens,
        table.max_prompts,
        table.keep_prefix,
    )


def iterations_of(table: DecoderTable, where: str) -> IterationTable:
    """Return the times of iterations, every cell checked."""
    decode: dict[int, dict[int, float]] = {}
    prefill: dict[int, dict[int, float]] = {}
    mixed: dict[tuple[int, int, int], float] = {}
    for (rows, context), ms in _cells(table.decode, "decode", 2, where):
        decode.setdefault(rows, {})[context] = ms
    for (tokens, before), ms in _cells(table.prefill, "prefill", 2, where):
        prefill.setdefault(tokens, {})[before] = ms
    for (rows, context, tokens), ms in _cells(table.mixed, "mixed", 3, where):
        mixed[rows, context, tokens] = ms
    if not decode or not any(0 in line for line in prefill.values()):
        raise ProfileError(f"{where}: its table needs rows of decode, and of prefill with 0 tokens before")
    numbers = (table.host_ms, *table.longest_ms)
    if not all(isfinite(value) and 0 <= value <= MOST_MS for value in numbers):
        raise ProfileError(f"{where}: host_ms and longest_ms must be milliseconds, at least 0")
    sizes = (table.row_sizes, table.mixed_row_sizes, table.token_sizes)
    if any(value < 1 for values in sizes for value in values):
        raise ProfileError(f"{where}: sizes that rows and tokens are padded to must be at least 1")
    cells = Cells(
        decode,
        prefill,
        mixed,
        table.host_ms,
        row_sizes=tuple(sorted(table.row_sizes)),
        mixed_row_sizes=tuple(sorted(table.mixed_row_sizes)),
        token_sizes=tuple(sorted(table.token_sizes)),
        undivided_rows=table.undivided_rows,
        longest_ms=table.longest_ms,
    )
    return IterationTable(cells)


def _cells(rows: Rows, name: str, axes: int, where: str) -> list[tuple[tuple[int, ...], float]]:
    found: dict[tuple[int, ...], float] = {}
    for number, row in enumerate(rows, start=1):
        if len(row) != axes + 1 or not _sound(row):
            raise ProfileError(
                f"{where}: row {number} of {name} is {row}: write {axes} whole numbers and milliseconds above 0"
            )
        key = tuple(int(value) for value in row[:-1])
        if key in found:
            raise ProfileError(f"{where}: row {number} of {name}, {list(key)}, is there twice")
        found[key] = float(row[-1])
    return list(found.items())


def _sound(row: Sequence[float]) -> bool:
    first, *others, ms = row
    whole = all(isfinite(value) and value == int(value) and 0 <= value <= MOST_TOKENS for value in (first, *others))
    return whole and first >= 1 and isfinite(ms) and 0 < ms <= MOST_MS

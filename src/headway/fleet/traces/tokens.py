"""Draw prompt and output tokens of requests that generate, or take them from a trace."""

from math import log

import numpy as np
import numpy.typing as npt

from headway.fleet.scenarios.file import Built
from headway.fleet.scenarios.tables.settings import ServingExperiment
from headway.fleet.scenarios.tables.tokens import MOST_TOKENS, Drawn, parse_tokens
from headway.fleet.traces.trace import RequestTrace
from headway.streams import stream

IntArray = npt.NDArray[np.int64]


def drawn(
    experiment: ServingExperiment, built: Built, graphs: IntArray, trace: RequestTrace | None
) -> tuple[IntArray, ...]:
    """Return prompt tokens, output tokens, tokens of a shared prefix and its group of each request.

    ``graphs`` says which graph each calls. The experiment's numbers come first, then the trace's, then the scenario's,
    then what functions expect.
    """
    prompts, outputs = (
        _column(experiment, built, graphs, name, of_trace)
        for name, of_trace in (
            ("prompt", None if trace is None or not trace.input_tokens.any() else trace.input_tokens),
            ("output", None if trace is None or not trace.output_tokens.any() else trace.output_tokens),
        )
    )
    return prompts, outputs, *_prefixes(experiment, built, graphs, prompts)


def blocks_of(experiment: ServingExperiment, built: Built, trace: RequestTrace) -> tuple[tuple[int, ...], ...]:
    """Return the blocks of each prompt of a trace; empty where no function keeps them, or prompts are not its own."""
    kinds = [function.generate for function in built.catalogue.functions]
    keeps = any(kind is not None and kind.keep_prefix for kind in kinds)
    own = parse_tokens(experiment.workload.prompt_tokens, "prompt_tokens") is None
    return trace.hash_ids if keeps and own else ()


def _prefixes(
    experiment: ServingExperiment, built: Built, graphs: IntArray, prompts: IntArray
) -> tuple[IntArray, IntArray]:
    """Return the tokens of each prompt that its group shares, and the group; groups of graphs are numbered through.

    At least one token of a prompt is its own.
    """
    given = [built.workload.prefixes.get(graph.name, (0, 1)) for graph in built.catalogue.graphs]
    shared, groups = np.array(given, dtype=np.int64).T
    first = np.cumsum(groups) - groups
    draws = stream(experiment.run.seed, "serving.prefixes").random(len(graphs))
    drawn_groups = (draws * groups[graphs]).astype(np.int64)
    tokens = np.minimum(shared[graphs], np.maximum(prompts - 1, 0))
    return tokens, np.where(tokens > 0, first[graphs] + np.minimum(drawn_groups, groups[graphs] - 1), 0)


def _column(
    experiment: ServingExperiment, built: Built, graphs: IntArray, name: str, of_trace: IntArray | None
) -> IntArray:
    key, count, seed = f"{name}_tokens", len(graphs), experiment.run.seed
    if (given := parse_tokens(getattr(experiment.workload, key), key)) is not None:
        return _drawn(seed, count, name, given)
    if of_trace is not None:
        return of_trace[:count]
    if (given := parse_tokens(getattr(built.workload, key), key)) is not None:
        return _drawn(seed, count, name, given)
    expected = np.array([_expected(built, at, name) for at in range(len(built.catalogue.graphs))], dtype=np.int64)
    return expected[graphs]


def _expected(built: Built, graph: int, name: str) -> int:
    """Return the tokens that the first generating task of a graph expects; 0 where none generates."""
    kinds = [built.catalogue.functions[at].generate for at in built.catalogue.graphs[graph].functions]
    return next((getattr(kind, f"expected_{name}") for kind in kinds if kind is not None), 0)


def _drawn(seed: int, count: int, name: str, given: Drawn) -> IntArray:
    draws = stream(seed, f"serving.{name}_tokens")
    if given.kind == "uniform":
        values = draws.uniform(given.first, given.second, count)
    elif given.kind == "lognormal":
        values = draws.lognormal(log(given.first), given.second, count)
    elif given.kind == "exponential":
        values = given.first * draws.standard_exponential(count)
    else:
        values = np.full(count, given.first)
    return np.clip(np.rint(values), 1, MOST_TOKENS).astype(np.int64)

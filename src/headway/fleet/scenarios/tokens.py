"""Tokens of a run: deadlines that its experiment sets, and the numbers that limits and loads are reckoned with."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from headway.errors import ExperimentError
from headway.fleet.model.catalogue import Function
from headway.fleet.model.request import Request
from headway.fleet.scenarios.build import Built
from headway.fleet.scenarios.tables.settings import PROCESSES, ServingExperiment, split_arrivals, split_slo
from headway.fleet.scenarios.tables.tokens import parse_tokens

TokenPairs = Sequence[tuple[int, int]]
"""Prompt and output tokens of requests."""
_KEYS = ("prompt_tokens", "output_tokens")
_QUANTILES = 32
_MOST_PAIRS = 2000


class _Numbers(NamedTuple):
    """What is known of prompts, or of outputs: their mean, and numbers that are equally likely."""

    mean: int
    values: Sequence[int]


def with_run_tokens(experiment: ServingExperiment, built: Built, recorded: TokenPairs = ()) -> Built:
    """Return the scenario with functions that expect the tokens of the run's requests, their spread included.

    ``recorded``: those of its requests, which count where they are a trace's. As for the requests themselves, the
    experiment's numbers come first, then the trace's, then the scenario's, then what functions expect. This is for
    limits of the fleet; policies do not see it.
    """
    catalogue = built.catalogue
    if not generates(built):
        return built
    pairs = _thinned(recorded) if is_recorded(experiment, built) else ()
    functions = tuple(_expecting(function, experiment, built, pairs) for function in catalogue.functions)
    return replace(built, catalogue=replace(catalogue, functions=functions))


def with_token_deadlines(experiment: ServingExperiment, built: Built) -> Built:
    """Return the scenario with the deadlines of tokens that the experiment sets for all graphs that generate."""
    _, first, each = split_slo(experiment.workload.slo)
    if not first and not each:
        return built
    if not generates(built):
        raise ExperimentError(
            f"slo {experiment.workload.slo!r}: no function of the scenario generates, so nothing has tokens; "
            f"give a deadline of the whole answer"
        )
    functions = built.catalogue.functions
    graphs = tuple(
        replace(graph, ttft=first or graph.ttft, tpot=each or graph.tpot)
        if any(functions[at].generate is not None for at in graph.functions)
        else graph
        for graph in built.catalogue.graphs
    )
    return replace(built, catalogue=replace(built.catalogue, graphs=graphs))


def generates(built: Built) -> bool:
    """Return whether a function of the scenario generates."""
    return any(function.generate is not None for function in built.catalogue.functions)


def is_recorded(experiment: ServingExperiment, built: Built) -> bool:
    """Return whether the requests of a run are those of a trace."""
    return split_arrivals(experiment.workload.arrivals or built.workload.arrivals)[0] not in PROCESSES


def tokens_of(requests: Sequence[Request]) -> TokenPairs:
    """Return the prompt and output tokens of requests."""
    return [(each.prompt_tokens, each.output_tokens) for each in requests]


def _expecting(function: Function, experiment: ServingExperiment, built: Built, recorded: TokenPairs) -> Function:
    if (kind := function.generate) is None:
        return function
    expected = (kind.expected_prompt, kind.expected_output)
    columns = list(zip(*recorded, strict=True)) or [(), ()]
    prompts, outputs = (_numbers(experiment, built, *each) for each in zip(_KEYS, columns, expected, strict=True))
    if prompts.values is columns[0] and outputs.values is columns[1]:
        sampled = tuple(recorded)  # long prompts may go with short outputs
    else:
        sampled = tuple((prompt, output) for prompt in prompts.values for output in outputs.values)
    made = replace(kind, expected_prompt=prompts.mean, expected_output=outputs.mean, sampled=sampled)
    return replace(function, generate=made)


def _numbers(experiment: ServingExperiment, built: Built, key: str, recorded: Sequence[int], own: int) -> _Numbers:
    given = parse_tokens(getattr(experiment.workload, key), key)
    if given is None and any(recorded):
        return _Numbers(max(1, round(sum(recorded) / len(recorded))), recorded)
    given = given or parse_tokens(getattr(built.workload, key), key)
    return _Numbers(own, [own]) if given is None else _Numbers(given.mean(), given.spread(_QUANTILES))


def _thinned(recorded: TokenPairs) -> TokenPairs:
    """Return some of the tokens of a long trace, evenly spaced."""
    return recorded[:: max(1, len(recorded) // _MOST_PAIRS)]

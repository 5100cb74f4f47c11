"""Tokens of a run: deadlines that its experiment sets, and the means that limits and loads are reckoned with."""

from collections.abc import Sequence
from dataclasses import replace

from headway.errors import ExperimentError
from headway.formats.serving.settings import PROCESSES, ServingExperiment, split_arrivals, split_slo
from headway.formats.serving.tokens import parse_tokens
from headway.scenarios.build import Built
from headway.serving.catalogue import Function
from headway.serving.request import Request

NO_MEANS = (0.0, 0.0)


def with_mean_tokens(experiment: ServingExperiment, built: Built, recorded: tuple[float, float] = NO_MEANS) -> Built:
    """Return the scenario with functions that expect the mean prompt and output of the run's requests.

    ``recorded``: the means of its requests, which count where they are a trace's, 0 where it has none. As for the
    requests themselves, the experiment's numbers come first, then the trace's, then the scenario's, then what functions
    expect. Policies do not see these means.
    """
    catalogue = built.catalogue
    if not generates(built):
        return built
    recorded = recorded if is_recorded(experiment, built) else NO_MEANS
    prompt, output = (
        _mean(experiment, built, key, of_trace)
        for key, of_trace in zip(("prompt_tokens", "output_tokens"), recorded, strict=True)
    )
    functions = tuple(_expecting(function, prompt, output) for function in catalogue.functions)
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


def recorded_means(requests: Sequence[Request]) -> tuple[float, float]:
    """Return the mean prompt and output tokens of requests; 0 where there are none."""
    count = max(1, len(requests))
    return sum(each.prompt_tokens for each in requests) / count, sum(each.output_tokens for each in requests) / count


def _mean(experiment: ServingExperiment, built: Built, key: str, of_trace: float) -> int | None:
    """Return the mean of a number of tokens; None where each function's own holds."""
    given = parse_tokens(getattr(experiment.workload, key), key)
    if given is None and of_trace:
        return max(1, round(of_trace))
    given = given or parse_tokens(getattr(built.workload, key), key)
    return given and given.mean()


def _expecting(function: Function, prompt: int | None, output: int | None) -> Function:
    if (kind := function.generate) is None:
        return function
    means = (prompt or kind.expected_prompt, output or kind.expected_output)
    return replace(function, generate=replace(kind, expected_prompt=means[0], expected_output=means[1]))

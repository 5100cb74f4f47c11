"""Generating functions of a scenario: their tables of iterations, by name or from a file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headway.errors import ExperimentError, ProfileError, unknown_name
from headway.fleet.model.catalogue import Catalogue, Configuration, Function, Model
from headway.fleet.model.generation import Generation
from headway.fleet.model.request import Request
from headway.fleet.scenarios.tables.scenario import FunctionTable, GraphTable
from headway.fleet.scenarios.tables.tokens import DecoderTable, GenerateTable, SloTable, deadline_of, generation_of
from headway.formats import toml
from headway.units import counted

FOLDER = Path(__file__).with_name("shipped") / "decoders"


def shipped() -> list[str]:
    """Return the names of the tables that come with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def table_files(document: toml.Document, folder: Path) -> list[Path]:
    """Return the files of tables that the functions of a scenario name."""
    named = [table for _, table in _tables(document) if isinstance(table, str) and table not in shipped()]
    return [path for name in named if (path := folder / Path(name).expanduser()).is_file()]


def with_tables(document: toml.Document, folder: Path) -> toml.Document:
    """Return a scenario's document with the tables that are files in it, so that it can be read without them."""
    for function, table in _tables(document):
        if isinstance(table, str) and table not in shipped():
            path = folder / Path(table).expanduser()
            if path.suffix != ".toml" and not path.exists():
                known = unknown_name("table of iterations", table, shipped())
                raise ProfileError(f"function {function}: {known}; a file ends in .toml")
            generate = {**document["functions"][function]["generate"], "table": toml.read(path, "table")}
            functions = {**document["functions"]}
            functions[function] = {**functions[function], "generate": generate}
            document = {**document, "functions": functions}
    return document


def _tables(document: toml.Document) -> list[tuple[str, Any]]:
    functions = document.get("functions", {})
    entries = functions.items() if isinstance(functions, dict) else ()
    generating = [(name, entry.get("generate")) for name, entry in entries if isinstance(entry, dict)]
    return [(name, generate.get("table")) for name, generate in generating if isinstance(generate, dict)]


def generation(function: FunctionTable, where: str) -> Generation | None:
    """Return how a function generates; None where it does not."""
    if function.generate is None:
        return None
    if function.ms is not None or function.cells:
        raise ProfileError(f"{where}: generates, so its times are those of its table: leave out ms and cells")
    if not function.models:
        raise ExperimentError(f"{where}: generates, so it needs a model: name its weights in models")
    at = f"{where}, generate"
    table = function.generate.table
    document = toml.read(FOLDER / f"{table}.toml", "table") if isinstance(table, str) else table
    return generation_of(function.generate, toml.typed(document, DecoderTable, f"{at}, table"), at)


def cells_of(table: GenerateTable, kind: Generation) -> dict[Configuration, int]:
    """Return the one configuration of a task that generates: it shares an engine, which forms batches itself."""
    return {Configuration(1, table.cpus, table.slices): kind.alone()}


def with_caches(models: Sequence[Model], functions: Sequence[Function]) -> list[Model]:
    """Return the models, each with the caches of the generating functions of which it is the first model."""
    caches = [0] * len(models)
    for function in functions:
        if function.generate is not None:
            caches[function.models[0]] += function.generate.cache_bytes
    return [Model(model.name, model.size_bytes + cache, cache) for model, cache in zip(models, caches, strict=True)]


def slo_of(graph: GraphTable) -> SloTable:
    """Return the deadlines of a graph; text is that of the whole answer."""
    return SloTable(latency=graph.slo) if isinstance(graph.slo, str) else graph.slo


def token_deadlines(graph: GraphTable, where: str) -> tuple[int, int]:
    """Return the deadlines of the first token and of each further one, in nanoseconds; 0 for none."""
    slo = slo_of(graph)
    return deadline_of(slo.ttft, f"{where}: slo ttft"), deadline_of(slo.tpot, f"{where}: slo tpot")


def check_contexts(catalogue: Catalogue, requests: Sequence[Request]) -> None:
    """Raise for a request that no engine could ever hold, or that has no tokens where a task of it generates."""
    rooms = [_least_room([catalogue.functions[at] for at in graph.functions]) for graph in catalogue.graphs]
    for request in requests if any(rooms) else ():
        if (room := rooms[request.graph]) is None:
            continue
        prompt, output = request.prompt_tokens, request.output_tokens
        if prompt < 1 or output < 1:
            raise ExperimentError(
                f"request {request.id}: {prompt:,} prompt and {counted(output, 'output token')}: a request of graph "
                f"{catalogue.graphs[request.graph].name}, which generates, needs at least 1 of each"
            )
        _check_room(f"request {request.id}", prompt, output, room)


def check_expected_contexts(catalogue: Catalogue) -> None:
    """Raise for a function whose engine could not hold the mean request that is expected of it."""
    for function in catalogue.functions:
        if (kind := function.generate) is not None:
            room = (kind.cache_tokens, function.name)
            _check_room("requests of the mean length", kind.expected_prompt, kind.expected_output, room)


def _check_room(who: str, prompt: int, output: int, room: tuple[int, str]) -> None:
    if prompt + output > room[0]:
        raise ExperimentError(
            f"{who}: {prompt:,} + {output:,} tokens never fit into the cache of {room[1]}, which "
            f"holds {room[0]:,}; enlarge generate.cache, or leave such requests out"
        )


def _least_room(functions: Sequence[Function]) -> tuple[int, str] | None:
    """Return the tokens of the smallest cache of some functions, and whose it is; None where none generates."""
    rooms = [(each.generate.cache_tokens, each.name) for each in functions if each.generate is not None]
    return min(rooms, default=None)

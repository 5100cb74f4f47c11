"""What functions on one GPU cost each other, from a table of pairs: put into a scenario that an experiment names.

Functions are looked up by their names. What a scenario says itself in ``[[interference]]`` comes before the table.
"""

from dataclasses import replace
from fnmatch import fnmatchcase

from headway.errors import ExperimentError
from headway.formats import pairs as pair_file
from headway.formats.serving.settings import ServingExperiment
from headway.kernels.interference import PairTable, expanded
from headway.scenarios.build import Built
from headway.units import REFERENCE_SPEED_PPM

_HALF = REFERENCE_SPEED_PPM // 2
"""Of the SMs, where nobody says how many slices a batch gets: two side by side."""
_MOST_NAMED = 3


def with_pairs(experiment: ServingExperiment, built: Built) -> Built:
    """Return the scenario with the slow-downs of the table that the experiment names; as it is where it names none."""
    asked = experiment.serving
    if not asked.interference:
        if asked.programs:
            raise ExperimentError("serving.programs needs a table of pairs: give serving.interference")
        return built
    table = pair_file.load(asked.interference, asked.programs)
    names = [_name(table, function.name) for function in built.catalogue.functions]
    gpus = {worker.gpu for worker in built.fleet.workers}
    shares = {slices * REFERENCE_SPEED_PPM // gpu.slices for gpu in gpus for slices in range(1, gpu.slices + 1)}
    found, unknown = expanded(table, names, {*shares, _HALF})
    own = built.interference
    whole = {(mine, other): slower for (mine, other, share), slower in found.items() if share == _HALF}
    by_share = {key: slower for key, slower in found.items() if key[:2] not in own and key[2] in shares}
    return replace(
        built, interference=whole | dict(own), by_share=by_share, notes=(*built.notes, *_notes(table, unknown))
    )


def _name(table: PairTable, name: str) -> str:
    """Return a function's name; where each graph has functions of its own, without that of the graph."""
    given = table.knows(name) or any(fnmatchcase(name, pattern) for pattern in table.names)
    return name if given else name.rpartition("/")[2]


def _notes(table: PairTable, unknown: list[tuple[str, str]]) -> list[str]:
    if not unknown:
        return []
    named = ", ".join(f"{name} beside {other}" for name, other in unknown[:_MOST_NAMED])
    more = ", …" if len(unknown) > _MOST_NAMED else ""
    factor = table.default_ppm / REFERENCE_SPEED_PPM
    return [f"{len(unknown):,} pairs are not in the interference table ({named}{more}): {factor:.3g}× as long"]

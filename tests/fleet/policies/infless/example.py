"""The worked example for INFless, on one node of 16 CPUs and 7 slices."""

from headway.fleet.model.catalogue import Catalogue, Configuration, Function, Profile
from headway.fleet.policies.infless.planner import Cell, Planned, Slot, choose
from headway.units import MILLISECOND
from tests.fleet.policies.worked_example import A, B, C
from tests.fleet.worlds import chain

MS = MILLISECOND
SLOS = [600 * MS * mean // 334 for mean in (108, 152, 74)]
NODE = (16, 7)


def cells(table: dict[tuple[int, int, int], int]) -> list[Cell]:
    """The configurations of a table, largest first."""
    return [Cell(Configuration(*sizes), ms * MS) for sizes, ms in sorted(table.items(), reverse=True)]


def function(name: str, table: dict[tuple[int, int, int], int]) -> Function:
    """A function with the times of a table."""
    return Function(name, (), Profile({"": {cell.configuration: cell.time for cell in cells(table)}}))


CATALOGUE = Catalogue((), (function("A", A), function("B", B), function("C", C)), (chain("abc", 0, 1, 2),))


def plan(table: dict[tuple[int, int, int], int], slo: int, rate: float, metric: str) -> list[Planned]:
    """The instances that are started for a rate on one empty node."""
    cpus, slices = NODE
    chosen: list[Planned] = []
    while rate > 0:
        slot = Slot(0, *NODE, cpus, slices, cells(table))
        planned = choose([slot], lambda worker, configuration: True, slo, rate, metric=metric)
        if planned is None:
            break
        chosen.append(planned)
        rate -= planned.rates.up
        cpus -= planned.cell.configuration.cpus
        slices -= planned.cell.configuration.slices
    return chosen

"""Read Alibaba's openb v2023 node lists, ``sn,cpu_milli,memory_mib,gpu,model``, as a cluster.

GPU types keep their published names, which are those of the pods' ``gpu_spec``. CPUs are counted in whole ones.
"""

import csv

from headway.errors import ExperimentError
from headway.jobs.traces.clusters.records import Described, NodeRecord

COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_MIB = 2**20
_MILLI = 1000
_LARGEST = 10**15
"""Beyond this a number is a slip of the file."""


def describes(text: str) -> bool:
    """Return whether the first line is the header of a node list."""
    header = text.partition("\n")[0]
    return {name.strip() for name in header.split(",")} >= set(COLUMNS)


def cluster(text: str, where: str) -> Described:
    """Return the nodes of a list."""
    rows = csv.reader(text.splitlines())
    header = [name.strip() for name in next(rows)]
    at = {name: header.index(name) for name in COLUMNS}
    nodes: dict[str, NodeRecord] = {}
    for row in rows:
        if not any(cell.strip() for cell in row):
            continue
        place = f"{where}: line {rows.line_num}"
        if len(row) < len(header):
            raise ExperimentError(f"{place}: has {len(row)} fields, the header {len(header)}")
        node = _node({name: row[position].strip() for name, position in at.items()}, place)
        if node.name in nodes:
            raise ExperimentError(f"{place}: sn {node.name!r} occurs twice: names must be unique")
        nodes[node.name] = node
    if not nodes:
        raise ExperimentError(f"{where}: there is a header but no node")
    return Described(nodes=tuple(nodes.values()))


def _node(cells: dict[str, str], place: str) -> NodeRecord:
    if not cells["sn"]:
        raise ExperimentError(f"{place}: sn is empty: a node needs a name")
    cpus = _whole(cells, "cpu_milli", place) // _MILLI
    memory = _whole(cells, "memory_mib", place) * _MIB
    gpus = _whole(cells, "gpu", place)
    for column, value in (("cpu_milli", cpus), ("memory_mib", memory)):
        if not value:
            raise ExperimentError(f"{place}: {column} {cells[column]!r} is less than one whole")
    return NodeRecord(cells["sn"], gpus, cells["model"] or "gpu", cpus, memory)


def _whole(cells: dict[str, str], column: str, place: str) -> int:
    text = cells[column]
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value <= _LARGEST or value != int(value):
        raise ExperimentError(f"{place}: {column} {text!r} must be a whole number, 0 or more")
    return int(value)

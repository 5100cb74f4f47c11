"""Write a run in fifteen lines, to paste into a mail: what was played, what came out, the past, the verdict."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headway.jobs.metrics.groups import GROUPS, TITLES
from headway.jobs.show.page.measured import Scene
from headway.show.formatting import clipped, listed, percent
from headway.show.time_unit import in_unit, time_unit
from headway.units import counted

Row = Mapping[str, Any]
MOST_LINES = 15
_MOST_NAMED = 4
Unit = tuple[str, int]
_FAR_SHORTER = 0.1
"""A mean below so much of a unit would have a digit or two."""
_GROUPS = ("qos", "partition", "gpu_type", "user")


def lines(row: Row, scene: Scene) -> list[str]:
    """Return at most fifteen lines."""
    if not row:
        return ["no results: the run was killed before its end; headway report shows what is there"]
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in _lines(row, scene)][:MOST_LINES]


def _lines(row: Row, scene: Scene) -> Iterator[str]:
    past = row.get("recorded")
    yield f"run: {row.get('variant') or clipped(str(row['policy']), 90)}"
    trace = scene.experiment.trace.path.rpartition("/")[2] or "drawn jobs"
    when = f", {row['begins'].replace('T', ' ')} to {row['ends'].replace('T', ' ')}" if row.get("begins") else ""
    yield f"trace: {trace}{when}"
    yield f"cluster: {_cluster(scene)}"
    states = [f"{row[key]:,.0f} {key}" for key in ("finished", "failed", "cancelled", "unfinished") if row[key]]
    ended = listed(states) if states else "none ended"
    yield f"jobs: {row['measured_jobs']:,.0f} measured of {row['jobs']:,.0f}: {ended}"
    units = _units(row, past)
    for name, stem in (("time to completion", "jct"), ("wait", "wait")):
        unit = units[stem]
        yield f"{name}: {_times(row, stem, unit)}" + ("" if past is None else f"; recorded {_times(past, stem, unit)}")
    use = f"GPU use while jobs arrive: {percent(row.get('gpu_utilisation_while_arriving'))}"
    yield use + (f"; recorded {percent(past['gpu_utilisation_while_arriving'])}" if past else "")
    yield (
        f"preemptions {row['preemptions']:,.0f}, moves {row['migrations']:,.0f}, GPU-hours {row['gpu_hours']:,.0f}, "
        f"lost {row['lost_gpu_hours']:,.1f}"
    )
    yield from _spent(row)
    for group in _GROUPS:
        if len(row.get(GROUPS[group]) or ()) > 1:
            yield _by_group(row, group, past, units["wait"])
    if judged := row.get("verdict"):
        yield f"verdict: {judged['text']}"
    if caveats := row.get("caveats"):
        yield f"{counted(len(caveats), 'caveat')}, first: {clipped(caveats[0], 140)} (headway report shows all)"


def _cluster(scene: Scene) -> str:
    kinds = Counter[str]()
    for node in scene.cluster.nodes:
        kinds[node.gpu_type if node.gpus else "nodes without GPUs"] += node.gpus or 1
    parts = [f"{count:,} {kind}" for kind, count in kinds.items()]
    return f"{counted(len(scene.cluster.nodes), 'node')}, {', '.join(parts)}"


def _units(row: Row, past: Row | None) -> dict[str, Unit]:
    """Return the unit of all times; waits have a smaller one, the same on all lines, where they are far shorter."""
    longest = {
        stem: max(each[f"{stem}_mean_s"] or 0 for each in (row, past) if each is not None) for stem in ("jct", "wait")
    }
    unit = time_unit(longest["jct"])
    far_shorter = longest["wait"] < _FAR_SHORTER * unit[1]
    return {"jct": unit, "wait": time_unit(longest["wait"]) if far_shorter else unit}


def _times(row: Row, stem: str, unit: Unit) -> str:
    mean, median, late = (in_unit(row[f"{stem}_{part}_s"], *unit) for part in ("mean", "p50", "p99"))
    return f"mean {mean}, median {median}, p99 {late}"


def _spent(row: Row) -> Iterator[str]:
    parts = [f"cost {row['cost']:,.2f}"] if row.get("cost") is not None else []
    parts += [f"energy {row['energy_kwh']:,.1f} kWh"] if row.get("energy_kwh") is not None else []
    if parts:
        yield f"GPUs that were held: {', '.join(parts)}"


def _by_group(row: Row, group: str, past: Row | None, unit: Unit) -> str:
    """Return the mean waits of those with most GPU time."""
    members: Sequence[Row] = sorted(row[GROUPS[group]], key=lambda each: -each["gpu_hours"])[:_MOST_NAMED]
    was = {each[group]: each["wait_mean_s"] for each in (past or {}).get(GROUPS[group], ())}
    told = []
    for each in members:
        name = str(each[group]) or "(any)"
        recorded = f" (recorded {in_unit(was[name], *unit)})" if name in was else ""
        told.append(f"{clipped(name, 20)} {in_unit(each['wait_mean_s'], *unit)}{recorded}")
    more = len(row[GROUPS[group]]) - len(members)
    return f"mean wait by {TITLES.get(group, group)}: {', '.join(told)}{f', and {more} more' if more else ''}"

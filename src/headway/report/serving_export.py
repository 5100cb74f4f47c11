"""A fleet's run as tables for notebooks: requests, tasks and batches, as Parquet or CSV."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import polars as pl

from headway.core.tape import Tape
from headway.report.export import Written, beside
from headway.report.serving_story import stays_of
from headway.serving.catalogue import Catalogue
from headway.serving.fleet import Fleet
from headway.serving.request import Request
from headway.serving.rows import Kind
from headway.units import SECOND

TABLES = ("requests", "tasks", "batches")


def write_tables(
    catalogue: Catalogue, fleet: Fleet, requests: Sequence[Request], tape: Tape, folder: Path, kind: str
) -> list[Written]:
    """All tables into a folder, as ``parquet`` or ``csv``; files of other names there are left alone."""
    made = []
    with ExitStack() as stack:
        for name, table in tables(catalogue, fleet, requests, tape):
            path = folder / f"{name}.{kind}"
            partial = stack.enter_context(beside(path))
            table.write_parquet(partial) if kind == "parquet" else table.write_csv(partial)
            made.append((path, len(table)))
    return [Written(path, rows, path.stat().st_size) for path, rows in made]


def tables(
    catalogue: Catalogue, fleet: Fleet, requests: Sequence[Request], tape: Tape
) -> Iterator[tuple[str, pl.DataFrame]]:
    """Each table by name; times are seconds since the run began."""
    graphs = [graph.name for graph in catalogue.graphs]
    workers = [worker.name for worker in fleet.workers]
    ended = {row[2]: row[0] for row in tape.of(Kind.DONE).tolist()}
    dropped = {row[2] for row in tape.of(Kind.DROP).tolist()}
    yield (
        "requests",
        pl.DataFrame(
            {
                "request": [each.id for each in requests],
                "graph": [graphs[each.graph] for each in requests],
                "tenant": [each.tenant for each in requests],
                "ingress": [workers[each.ingress] for each in requests],
                "arrival_s": [each.arrival / SECOND for each in requests],
                "deadline_s": [each.deadline / SECOND if each.deadline else None for each in requests],
                "answered_s": [ended[each.id] / SECOND if each.id in ended else None for each in requests],
                "dropped": [each.id in dropped for each in requests],
            },
            schema_overrides={"deadline_s": pl.Float64, "answered_s": pl.Float64},
        ),
    )
    stays = stays_of(tape)
    graph_of = {each.id: catalogue.graphs[each.graph] for each in requests}
    rows = tape.of(Kind.TASK).tolist()
    yield (
        "tasks",
        pl.DataFrame(
            {
                "request": [row[2] for row in rows],
                "task": [graph_of[row[2]].tasks[row[5]].name for row in rows],
                "batch": [row[3] for row in rows],
                "worker": [workers[row[4]] for row in rows],
                "begin_s": [row[0] / SECOND for row in rows],
                "end_s": [stays[row[3]].end / SECOND if stays[row[3]].end >= 0 else None for row in rows],
            },
            schema_overrides={"end_s": pl.Float64},
        ),
    )
    batches = list(stays.values())
    yield (
        "batches",
        pl.DataFrame(
            {
                "batch": [each.lease for each in batches],
                "worker": [workers[each.worker] for each in batches],
                "function": [catalogue.functions[each.function].name for each in batches],
                "tasks": [each.tasks for each in batches],
                "cpus": [each.cpus for each in batches],
                "slices": [each.slices for each in batches],
                "begin_s": [each.begin / SECOND for each in batches],
                "start_s": [each.start / SECOND for each in batches],
                "end_s": [each.end / SECOND if each.end >= 0 else None for each in batches],
                "load_s": [sum(time for _, time in each.loads) / SECOND for each in batches],
                "cold_start_s": [each.cold / SECOND for each in batches],
            },
            schema_overrides={"end_s": pl.Float64},
        ),
    )

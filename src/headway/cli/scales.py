"""Make the commands of every scale: ``headway jobs``, ``fleet`` and ``gpu``, each with simulate, compare and sweep."""

import os
import sys
from dataclasses import replace
from inspect import Parameter
from math import inf
from pathlib import Path
from typing import Any

import typer

from headway import api
from headway.cli import console
from headway.cli.options import JSON, Given, argument, command, option, setting
from headway.cli.results import check_outputs, outputs_of, show, show_result
from headway.core.tasks import Pool
from headway.errors import ExperimentError, unknown_name
from headway.formats import toml
from headway.runs.domain import Domain
from headway.runs.settings import common_flags
from headway.runs.settings.flags import Flag, split_policies, split_values
from headway.runs.stopping import status
from headway.runs.sweep.cells import Axes, outstanding
from headway.runs.sweep.pool import LocalPool
from headway.runs.sweep.ray_pool import RayPool
from headway.runs.sweep.sweep import Sweep, compared_key, grid_of, sweep as run_grid
from headway.show.terminal import width_of

ENGINES = ("local", "ray")
MOST_FAILURES_TOLD = 5
RUN = common_flags.RUN
REPORT = option("report", str | None, "Make a page of it.", metavar="FILE.html")
PICTURE = option("picture", str | None, "Draw it as bars.", panel=RUN, metavar="FILE.svg")
BY = option("by", list[str] | None, "Tables: tenant, partition, qos, user, gpu-type, …", panel=RUN, metavar="TABLE")
SET = option("set", list[str] | None, "Any key of an experiment file.", panel=RUN, metavar="KEY=VALUE")
LABEL = option("label", list[str] | None, "Call it so; several in turn.", panel=RUN, metavar="NAME")
PROCESSES = option(
    "processes", int, "Runs at a time: 1 if left out.", default=1, panel=RUN, min=1, max=256, show_default=False
)


def group_of(scale: Domain) -> typer.Typer:
    """Return the commands of a scale: simulate, compare and sweep."""
    group = typer.Typer(
        name=scale.name,
        help=scale.about,
        no_args_is_help=True,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    work = [_work(flag) for flag in scale.work]
    settings = [setting(flag) for flag in scale.flags]
    first = [setting(common_flags.SEEDS), setting(common_flags.OUT), REPORT]
    sure = setting(common_flags.CONFIDENCE)
    usual = f"{common_flags.POLICY.help} Else {scale.tables().policy.name}."
    policy = setting(replace(common_flags.POLICY, help=usual))
    last = [setting(common_flags.SEED), JSON, *([BY] if "by" in scale.extras else []), LABEL, SET]

    @command(group, "simulate", [*work, policy, *settings, *first, sure, *last], _help(scale, "simulate"))
    def simulate(given: Given) -> None:
        outputs = outputs_of(given)
        check_outputs(outputs, scale.view, given["out"])
        labels = given["label"] or ()
        show_result(api.simulate_all(_given_work(scale, given), keep=bool(outputs.report), labels=labels), outputs)

    policies = option("policies", str, f"Policies: {scale.example_policies}.", default=Parameter.empty)
    compared = [*work, policies, *settings, *first, setting(common_flags.BASELINE), sure, *last]
    pictured = [PICTURE] if "picture" in scale.extras else []

    @command(group, "compare", [*compared, *pictured, PROCESSES], _help(scale, "compare"))
    def compare(given: Given) -> None:
        outputs = outputs_of(given, several=True)
        check_outputs(outputs, scale.view, given["out"])
        names = split_policies(given["policies"], scale.example_policies)
        asked, keep, labels = _given_work(scale, given), bool(outputs.report), given["label"] or ()
        show_result(api.compare(asked, names, processes=given["processes"], keep=keep, labels=labels), outputs)

    _add_sweep(group, scale, work)
    return group


def _help(scale: Domain, verb: str) -> str:
    what = {
        "simulate": "Play one policy.",
        "compare": "Play several policies over the same work, side by side.",
        "sweep": "Run every combination of policies, seeds or any other keys; what is done is not done again.",
    }[verb]
    return f"{what}\n\nheadway {scale.name} {verb} {scale.examples[verb]}"


def _work(flag: Flag) -> Parameter:
    kind = list[str] | None if flag.kind is list else str | None
    return argument(flag.name, kind, flag.help, flag.metavar, None)


def _given_work(scale: Domain, given: Given) -> api.Work:
    """Return what was asked for as work with settings."""
    flags = (*scale.work, *scale.flags, *common_flags.ALL)
    settings = {flag.name: given[flag.name] for flag in flags if flag.name in given}
    return api.work(scale.name, set=given["set"], **settings)


# --- sweep ----------------------------------------------------------------------------------------------------------


def _add_sweep(group: typer.Typer, scale: Domain, work: list[Parameter]) -> None:
    varied = {flag.key for flag in scale.axes}
    parameters = [
        *work,
        option("policies", str | None, f"Policies: {scale.example_policies}.", panel="Grid"),
        *(option(flag.name, str | None, flag.help, panel="Grid") for flag in scale.axes),
        option("vary", list[str] | None, f"Any key: {scale.example_axis}.", panel="Grid", metavar="KEY=V1,V2"),
        option(
            "grid", str | None, "An experiment as TOML, with a table named sweep.", panel="Grid", metavar="FILE.toml"
        ),
        option("out", str, "Its folder.", "--out", "-o", default=Parameter.empty),
        *(setting(flag) for flag in scale.flags if flag.key not in varied),
        *(setting(flag) for flag in (common_flags.SEED, *common_flags.MEASURED)),
        JSON,
        SET,
        option("processes", int | None, "Cells at a time: all cores if left out.", min=1, max=1024, panel=RUN),
        option("engine", str, "local, or ray: over the machines of a Ray cluster.", default="local", panel=RUN),
        option("address", str | None, "Of the Ray cluster: auto or host:port.", panel=RUN),
        option("keep_runs", bool, "Keep the tape of every cell, under runs/.", default=False, panel=RUN),
        option("retry", bool, "Run cells that failed once more.", default=False, panel=RUN),
    ]

    @command(group, "sweep", parameters, _help(scale, "sweep"))
    def sweep(given: Given) -> None:
        if given["engine"] not in ENGINES:
            raise ExperimentError(unknown_name("--engine", given["engine"], ENGINES))
        axes = {"out", *(flag.name for flag in scale.axes), *(flag.name for flag in scale.flags if flag.choices)}
        document = _given_work(scale, {name: each for name, each in given.items() if name not in axes}).document
        _run_sweep(scale, document, _axes(scale, given), given)


def _axes(scale: Domain, given: Given) -> Axes:
    """Return what the flags vary."""
    axes: Axes = {}
    for name in ("policies", *(flag.name for flag in scale.axes)):
        if given[name] is not None and not given[name].strip():
            raise ExperimentError(f"--{name} is empty: give it a value, or leave it out")
    if given["policies"] is not None:
        axes["policy.name"] = list(split_policies(given["policies"], scale.example_policies))
    for flag in scale.axes:
        if given[flag.name] is not None:
            axes[flag.key] = _numbers(given[flag.name], flag)
    for flag in scale.flags:
        if flag.choices is not None and given[flag.name]:
            axes |= flag.choices(given[flag.name])
    for text in given["vary"] or ():
        key, equals, values = text.partition("=")
        if not equals or not key.strip() or not values.strip():
            raise ExperimentError(f"--vary {text!r} is not understood: write it like {scale.example_axis}")
        axes[key.strip()] = split_values(values, "--vary")
    return axes


def _numbers(text: str, flag: Flag) -> list[Any]:
    """Return numbers between commas, all above 0."""
    values = split_values(text, flag.option)
    for value in values:
        good = isinstance(value, int | float if flag.kind is float else int) and not isinstance(value, bool)
        if not good or not 0 < value < inf:
            example = "0.8,0.9" if flag.kind is float else "40,80"
            raise ExperimentError(
                f"{flag.option} {value!r} is not a number above 0: write it like {flag.option} {example}"
            )
    return values


def _run_sweep(scale: Domain, document: toml.Document, axes: Axes, given: Given) -> None:
    """Run what is left to do of a grid and show what came out; one that was stopped ends with 130 or 143."""
    folder, keep = Path(given["out"]), given["keep_runs"]
    pool = _pool(given["engine"], given["address"], given["processes"], keep)
    grid = grid_of(document, axes, folder, given["grid"])
    grid_run = run_grid(*grid, folder, pool, keep=keep, retry=given["retry"], note=console.note)
    if grid_run.stopped:
        left = len(outstanding(grid_run.cells, grid_run.store, keep=keep))
        again = f"headway {scale.name} sweep -o {folder}{' --keep-runs' if keep else ''}"
        console.note(f"stopped with {left:,} of {len(grid_run.cells):,} cells to do: {again} goes on")
        sys.exit(status())
    _show_sweep(scale, grid_run, given["as_json"])
    if grid_run.failed:
        raise typer.Exit(1)


def _pool(engine: str, address: str | None, processes: int | None, keep: bool) -> Pool:
    if engine == "local" and address is not None:
        raise ExperimentError(f"--address {address}: needs --engine ray")
    if engine == "ray" and keep:
        raise ExperimentError("--keep-runs: needs --engine local, for the tapes of a Ray cluster lie on its machines")
    cores = processes or len(os.sched_getaffinity(0))
    return LocalPool(cores) if engine == "local" else RayPool(address or "", cores, console.note)


def _show_sweep(scale: Domain, sweep: Sweep, as_json: bool) -> None:
    rows, failed = sweep.rows, sweep.failed
    if as_json:
        console.print_json(rows)
    elif rows:
        table = scale.view.pivot(rows, compared_key(sweep.cells))
        show(rows, scale.view) if table is None else console.out(width_of(table)).print(table)
    for cell, error in failed[:MOST_FAILURES_TOLD]:
        console.note(f"failed: {cell.name}: {error}")
    if failed:
        cells = len({cell.digest for cell in sweep.cells})
        again = "; --retry runs them once more" if sweep.may_pass else ""
        console.note(
            f"{len(failed):,} of {cells:,} cells {'failed' if again else 'cannot be played as they are'}{again}"
        )
    for line in scale.view.sweep_remarks(rows):
        console.note(f"note: {line}")
    console.note(f"results: {sweep.store.folder / 'results.parquet'}, {sweep.store.folder / 'results.csv'}")

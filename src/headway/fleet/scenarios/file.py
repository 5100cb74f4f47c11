"""Load a scenario from its file: the catalogue, the fleet, and the default workload.

A scenario is a shipped one, by name, or a user's file: TOML; an application, Python with graphs of its own models; or
Python with a function ``scenario(experiment)`` that returns the same tables as a dictionary, or a ``Built``.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from headway.errors import ExperimentError, ProfileError, unknown_name
from headway.fleet.scenarios.app import app_of, document as document_of_app, is_app, module_of, profile_beside
from headway.fleet.scenarios.build import (
    LAW,
    PAPER,
    Builder,
    Built as Built,
    WorkloadDefaults as WorkloadDefaults,
)
from headway.fleet.scenarios.fitting import check_memory
from headway.fleet.scenarios.generating import table_files, with_tables
from headway.fleet.scenarios.tables import profile as serving_profile
from headway.fleet.scenarios.tables.scenario import ScenarioTable, check_prices, with_memory
from headway.fleet.scenarios.tables.settings import ServingExperiment
from headway.fleet.scenarios.tokens import with_token_deadlines
from headway.formats import toml
from headway.plugins import check_trusted, loading
from headway.profiling import pairs as pair_file
from headway.profiling.interference import PairTable, expanded
from headway.units import REFERENCE_SPEED_PPM

FOLDER = Path(__file__).with_name("shipped")
SHIPPED = ("chat", "compass", "compass-slo", "esg", "esg-store", "pipelines")
MEASURED = "measured"
NAMED_PROFILES = (LAW, MEASURED, PAPER)
PYTHON = ".py"
_HALF = REFERENCE_SPEED_PPM // 2
"""Assumed share of the SMs where the slices of a batch are not known: two batches side by side."""
_MOST_NAMED = 3


def load(experiment: ServingExperiment) -> Built:
    """Return the scenario that an experiment names, in its setting, at its fidelity, with its number of workers."""
    document = _read_scenario(experiment)
    if isinstance(document, Built):
        _check_built_keys(experiment)
        check_prices(document.fleet, f"scenario {experiment.serving.scenario}")
        built = replace(document, fleet=with_memory(document.fleet, experiment.serving))
        check_memory(document.catalogue.models, document.catalogue.functions, built.fleet)
    else:
        where = f"scenario {experiment.serving.scenario}"
        table = toml.typed(document, ScenarioTable, where)
        _check_measured(experiment, table, where)
        profiles = [serving_profile.read(path) for path in _profile_paths(experiment, table)]
        built = Builder(experiment, table, profiles, where).build()
    if experiment.serving.start == "warm":
        built = replace(built, fleet=replace(built.fleet, warm=True))
    return _with_pairs(experiment, with_token_deadlines(experiment, built))


def profile_paths(experiment: ServingExperiment) -> tuple[Path, ...]:
    """Return the profile files that an experiment reads; none where its scenario holds all times itself."""
    document = _read_scenario(experiment)
    if isinstance(document, Built):
        return ()
    return _profile_paths(experiment, toml.typed(document, ScenarioTable, f"scenario {experiment.serving.scenario}"))


def profile_file(experiment: ServingExperiment) -> Path | None:
    """Return the profile file that an experiment or its scenario asks for by path; None where there is none."""
    document = _read_scenario(experiment)
    asked = "" if isinstance(document, Built) else experiment.serving.profile or document.get("profile", "")
    return Path(asked).expanduser() if asked and asked not in NAMED_PROFILES else None


def written(experiment: ServingExperiment) -> str | None:
    """Return the scenario as one TOML text, its base included, so that it can be read without running code.

    None for a Python file that returns a ``Built``.
    """
    document = _read_scenario(experiment)
    if isinstance(document, Built):
        return None
    text = toml.write({key: value for key, value in document.items() if key != "base"})
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:  # a value from a Python file that TOML cannot hold
        return None
    return text


# --- the file ---------------------------------------------------------------------------------------------------


def path_of(name: str) -> Path:
    """Return where a scenario is: a shipped one by its name, any other by its path."""
    check_trusted(name, "scenario")
    if name in SHIPPED:
        return FOLDER / f"{name}.toml"
    path = Path(name).expanduser()
    if path.suffix not in (".toml", PYTHON) and not path.exists():
        raise ExperimentError(f"{unknown_name('scenario', name, SHIPPED)}; a file ends in .toml or .py")
    return path


def files_of(name: str) -> list[Path]:
    """Return the files that a scenario is read from: its own, its bases, and the profiles that it names."""
    path = path_of(name)
    if name in SHIPPED:
        return [path]
    if path.suffix == PYTHON:
        return [path, *(beside for beside in [profile_beside(path)] if beside.is_file())]
    document, files = _document(path), [path]
    while isinstance(base := toml.read(files[-1], "scenario").get("base"), str) and base:
        files.append(_base_path(base, files[-1]))
    measured = document.get("measured", [])
    named = [measured] if isinstance(measured, str) else measured if isinstance(measured, list) else []
    beside = [_beside(path.parent, profile_name) for profile_name in named if isinstance(profile_name, str)]
    asked = [Path(document["profile"]).expanduser()] if isinstance(document.get("profile"), str) else []
    tables = table_files(document, path.parent)
    return [*files, *(profile for profile in (*beside, *asked) if profile.is_file()), *tables]


def _read_scenario(experiment: ServingExperiment) -> toml.Document | Built:
    path = path_of(experiment.serving.scenario)
    if path.suffix != PYTHON:
        _refuse_shares(experiment, f"scenario {path}")
    made = _document(path) if path.suffix != PYTHON else _called(path, experiment)
    if isinstance(made, Built):
        return made
    return with_tables(made if path.suffix != PYTHON else _on_base(made, path, ()), path.parent)


def _document(path: Path, above: tuple[Path, ...] = ()) -> toml.Document:
    """Return a file's document, merged into that of its base if it has one."""
    return _on_base(toml.read(path, "scenario"), path, above)


def _on_base(document: toml.Document, path: Path, above: tuple[Path, ...]) -> toml.Document:
    base = document.get("base", "")
    if not isinstance(base, str) or not base:
        return document
    if path in above:
        raise ExperimentError(f"scenario {path}: is its own base")
    beneath = _base_path(base, path)
    if beneath.suffix == PYTHON:
        raise ExperimentError(f"scenario {path}: its base {base} is not a TOML file")
    return _merged(_document(beneath, (*above, path)), document)


def _base_path(base: str, above: Path) -> Path:
    """Return where the base of a scenario is: beside it, or a shipped one."""
    beneath = path_of(base)
    return beneath if base in SHIPPED or beneath.is_absolute() else above.parent / beneath


def _merged(beneath: Mapping[str, Any], above: Mapping[str, Any]) -> toml.Document:
    """Return two documents merged: tables key by key, any other value from ``above``."""
    whole = dict(beneath)
    for key, value in above.items():
        old = whole.get(key)
        whole[key] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return whole


def _called(path: Path, experiment: ServingExperiment) -> toml.Document | Built:
    where = f"scenario {path}"
    module = module_of(path, where)
    if is_app(module):
        measured = profile_beside(path)
        return document_of_app(app_of(module, path), measured if measured.is_file() else None, experiment.serving)
    _refuse_shares(experiment, where)
    with loading(where):
        made = module.scenario(experiment) if hasattr(module, "scenario") else None
    if not isinstance(made, dict | Built):
        rule = "needs a function scenario(experiment) that returns a dictionary or a Built"
        raise ExperimentError(f"{where}: {rule}, or graphs: reading = hw.graph(…)")
    return made


def _refuse_shares(experiment: ServingExperiment, where: str) -> None:
    """Raise for keys that say what the workers of an application are, where there is none."""
    for key in ("slices", "devices", "shared_cpus"):
        if given := getattr(experiment.serving, key):
            raise ExperimentError(f"{key} {given}: is of an application; {where} says itself what its workers are")


def _check_built_keys(experiment: ServingExperiment) -> None:
    """Raise for keys that have no effect on a ``Built`` from a Python file."""
    for key in ("setting", "profile"):
        if given := getattr(experiment.serving, key):
            raise ExperimentError(f"{key} {given!r}: {experiment.serving.scenario} makes its catalogue itself")


# --- profiles ---------------------------------------------------------------------------------------------------


def _profile_paths(experiment: ServingExperiment, table: ScenarioTable) -> tuple[Path, ...]:
    asked = experiment.serving.profile or table.profile or LAW
    if asked == LAW:
        return ()
    if asked not in (MEASURED, PAPER):
        path = Path(asked).expanduser()
        if path.suffix != ".toml" and not path.exists():
            raise ProfileError(f"{unknown_name('profile', asked, NAMED_PROFILES)}; a profile file ends in .toml")
        return (path,)
    named = [table.measured] if isinstance(table.measured, str) else table.measured
    if not named:
        raise ProfileError(f"scenario {experiment.serving.scenario}: no measured profile belongs to it; name a file")
    beside = path_of(experiment.serving.scenario).parent
    return tuple(_beside(beside, name) for name in named)


def _check_measured(experiment: ServingExperiment, table: ScenarioTable, where: str) -> None:
    """Raise for a measured profile, used in this run or not, that has none of the scenario's functions."""
    beside = path_of(experiment.serving.scenario).parent
    for name in [table.measured] if isinstance(table.measured, str) else table.measured:
        path = _beside(beside, name)
        if path.is_file() and not (found := serving_profile.read(path).functions).keys() & table.functions.keys():
            raise ProfileError(f"{where}: measured profile {name} has none of its functions, but {', '.join(found)}")


def _beside(folder: Path, name: str) -> Path:
    """Return the path of a profile: in the scenario's folder, else among the shipped ones."""
    path = folder / Path(name).expanduser()
    return path if path.exists() or not (FOLDER / name).exists() else FOLDER / name


# --- what functions on one GPU cost each other ------------------------------------------------------------------


def _with_pairs(experiment: ServingExperiment, built: Built) -> Built:
    """Return the scenario with the slow-downs of the table that the experiment names; unchanged without one."""
    asked = experiment.serving
    if not asked.interference:
        if asked.programs:
            raise ExperimentError("serving.programs needs a table of pairs: give serving.interference")
        return built
    table = pair_file.load(asked.interference, asked.programs)
    names = [_program_of(table, function.name) for function in built.catalogue.functions]
    gpus = {worker.gpu for worker in built.fleet.workers}
    shares = {slices * REFERENCE_SPEED_PPM // gpu.whole for gpu in gpus for slices in range(1, gpu.slices + 1)}
    times = [function.profile.times.values() for function in built.catalogue.functions]
    on_gpu = [at for at, tables in enumerate(times) if any(cell.slices for cells in tables for cell in cells)]
    found, unknown = expanded(table, [names[index] for index in on_gpu], {*shares, _HALF})
    slowdowns = {(on_gpu[a], on_gpu[b], share): slower for (a, b, share), slower in found.items()}
    scenario_own = built.interference
    by_pair = {(function, other): slower for (function, other, share), slower in slowdowns.items() if share == _HALF}
    by_share = {key: slower for key, slower in slowdowns.items() if key[:2] not in scenario_own and key[2] in shares}
    return replace(
        built,
        interference=by_pair | dict(scenario_own),
        by_share=by_share,
        notes=(*built.notes, *_unknown_pairs(table, unknown)),
    )


def _program_of(table: PairTable, name: str) -> str:
    """Return a function's name, without that of its graph where the table does not know it."""
    given = table.knows(name) or any(fnmatchcase(name, pattern) for pattern in table.names)
    return name if given else name.rpartition("/")[2]


def _unknown_pairs(table: PairTable, unknown: list[tuple[str, str]]) -> list[str]:
    if not unknown:
        return []
    named = ", ".join(f"{name} beside {other}" for name, other in unknown[:_MOST_NAMED])
    more = ", …" if len(unknown) > _MOST_NAMED else ""
    factor = table.default_ppm / REFERENCE_SPEED_PPM
    return [f"{len(unknown):,} pairs are not in the interference table ({named}{more}): {factor:.3g}× as long"]

"""Inputs by number: below 1000 the fixed ones, from there on drawn, each from its number alone."""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from headway.formats.toml_text import write
from headway.runs.registry import domain
from tests.fuzz import mutate
from tests.fuzz.fixed import FIXED
from tests.fuzz.flags import COMMANDS, ON, PARTS
from tests.fuzz.folders import killed, questions, runs, schemas, swept
from tests.fuzz.play import Input
from tests.fuzz.samples import (
    CLUSTER,
    CLUSTERS,
    DIVIDED,
    DOCUMENTS,
    EXPERIMENT,
    KEYS,
    OWN_ORDER,
    PAIRS,
    PROFILE,
    PROGRAM,
    SAMPLES,
    SCENARIO,
    SERVED,
    SHARED,
    SITE,
    SWEEPS,
    TRACE,
    TRACES,
)

FIRST_DRAWN = 1000


class Maker:
    """Makes inputs over the runs in a folder."""

    def __init__(self, runs: Path) -> None:
        self.runs = runs

    def __call__(self, number: int, folder: Path) -> Input:
        """The input of this number; its files lie in the folder."""
        if number < FIRST_DRAWN:
            return FIXED[number](folder, self.runs)
        draw = Random(number)
        (folder / "jobs.csv").write_text(TRACE)
        (folder / "mine.toml").write_text(write(SCENARIO))
        return draw.choices(FAMILIES, weights=WEIGHTS)[0](draw, folder, self.runs)


# --- traces and clusters ------------------------------------------------------------------------------------------


def traces(draw: Random, folder: Path, _: Path) -> Input:
    """A damaged trace, and any command that reads one."""
    name = draw.choice((*TRACES, *DOCUMENTS, "philly.csv.gz"))
    path = folder / f"given{Path(name).suffix}"
    whole = (SAMPLES / name).read_bytes()
    if name in TRACES and draw.random() < 0.6:
        path.write_text(mutate.table(draw, whole.decode(), TRACES[name]), newline="")
    elif name in DOCUMENTS and draw.random() < 0.6 and not name.endswith("jsonl"):
        given = json.loads(whole)
        path.write_text(json.dumps(mutate.document(draw, given) if isinstance(given, dict) else given[:1]))
    elif name.endswith(".gz") or draw.random() < 0.3:
        path.write_bytes(mutate.flipped(draw, whole))
    else:
        path.write_text(mutate.text(draw, whole.decode()), newline="")
    return Input(_reads(draw, path.name))


def _reads(draw: Random, name: str) -> tuple[str, ...]:
    map_ = ("--map", draw.choice(("submit=submit,work=run,gpus=n", "gpus=gpus", mutate.word(draw))))
    more = (*(map_ if draw.random() < 0.1 else ()), *(("--strict",) if draw.random() < 0.2 else ()))
    match draw.randint(0, 7):
        case 0:
            return ("trace", "inspect", name, *draw.choice(((), ("--json",))), *more)
        case 1:
            return ("trace", "convert", name, draw.choice(("out.csv", "out.parquet", "out.csv.gz")), *more)
        case 2:
            return ("trace", "slice", name, "out.csv", "--from", "0s", "--to", draw.choice(("1h", "30d")), *more)
        case 3:
            return ("trace", "scale", name, "out.csv", "--load", "1.3", *more)
        case 4:
            return ("jobs", "backtest", name, *ON, "--policies", "fifo", "--skip-infeasible", *more)
        case 5:
            return ("jobs", "compare", name, *ON, "--policies", "fifo,srtf", "--skip-infeasible", "--json", *more)
        case _:
            skips = ("--skip-infeasible",) if draw.random() < 0.8 else ()
            return ("jobs", "simulate", name, *ON, "--policy", draw.choice(("fifo", "srtf+easy")), *skips, *more)


def clusters(draw: Random, folder: Path, _: Path) -> Input:
    """A damaged description of a cluster."""
    if draw.random() < 0.4:
        path = folder / "given.toml"
        path.write_text(_toml(draw, CLUSTER))
    else:
        name = draw.choice(CLUSTERS)
        path, whole = folder / f"given{Path(name).suffix}", (SAMPLES / name).read_bytes()
        if name.endswith(".json") and draw.random() < 0.7:
            path.write_text(json.dumps(mutate.document(draw, json.loads(whole))))
        elif draw.random() < 0.2:
            path.write_bytes(mutate.flipped(draw, whole))
        else:
            path.write_text(mutate.text(draw, whole.decode()), newline="")
    return Input(("jobs", "simulate", "jobs.csv", "--cluster", path.name, "--skip-infeasible", "--json"))


# --- documents ----------------------------------------------------------------------------------------------------


def _toml(draw: Random, whole: dict[str, Any]) -> str:
    """A damaged document as TOML: of its keys and values, or of its text."""
    if draw.random() < 0.25:
        return mutate.text(draw, write(whole))
    try:
        return write(mutate.document(draw, whole))
    except Exception:  # noqa: BLE001 - what cannot be written at all is damaged as text
        return mutate.text(draw, write(whole))


def experiments(draw: Random, folder: Path, _: Path) -> Input:
    """A damaged experiment; often one that does not say what is scheduled, or says something else."""
    whole = draw.choice((EXPERIMENT, EXPERIMENT, DIVIDED, SERVED, SHARED))
    if draw.random() < 0.15:
        scale = draw.choice(
            [*mutate.VALUES, *(name for name in SWEEPS if name != whole["scale"]), "Jobs", "gpus", None]
        )
        other = {key: value for key, value in whole.items() if key != "scale"}
        (folder / "given.toml").write_text(write(other if scale is None else {**other, "scale": scale}))
        return Input(("run", "given.toml"), "it does not say of which scale it is")
    (folder / "given.toml").write_text(_toml(draw, whole))
    more = draw.choice(((), ("--json",), ("--set", f"run.seed={mutate.word(draw)}"), ("--by", "tenant")))
    return Input(("run", "given.toml", *more))


SWEPT_BY: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "jobs": (
        ("jobs.csv", "--gpus-per-node", "4"),
        {"--policies": "fifo", "--nodes": "2", "--loads": "1,2", "--vary": "costs.migration=1s"},
    ),
    "fleet": (
        ("mine.toml", "--requests", "15"),
        {"--policies": "hash", "--workers": "2", "--rates": "1,2", "--vary": "workload.slo=1s"},
    ),
    "gpu": (
        ("resnet50", "bert", "--seconds", "0.01"),
        {"--policies": "mps", "--vary": "gpu.think=1ms", "--baseline": "mps"},
    ),
}
"""What is swept at each scale, and flags with sound values."""


def sweeps(draw: Random, folder: Path, _: Path) -> Input:
    """A damaged grid, or one from flags."""
    scale = draw.choice(("jobs", *SWEEPS))
    always = ("--out", "swept", "--processes", "1", *draw.choice(((), ("--json",))))
    if draw.random() < 0.5:
        (folder / "given.toml").write_text(_toml(draw, SWEEPS[scale]))
        return Input((scale, "sweep", "--grid", "given.toml", *always))
    what, sound = SWEPT_BY[scale]
    flag = draw.choice(list(sound))
    value = draw.choice((mutate.word(draw), f"{sound[flag]},{mutate.word(draw)}", f"{sound[flag]},{sound[flag]}"))
    given = {"--policies": sound["--policies"], flag: value}
    words = [word for pair in given.items() for word in pair]
    return Input((scale, "sweep", *what, *words, *always))


def scenarios(draw: Random, folder: Path, _: Path) -> Input:
    """A damaged scenario of requests, simulated, compared or planned."""
    (folder / "mine.toml").write_text(_toml(draw, SCENARIO))
    policy = draw.choice(("headway", "compass", "hash", "esg", "jit", "heft"))
    match draw.randint(0, 5):
        case 0:
            return Input(("fleet", "plan", "mine.toml", "--slo", "1s", "--rate", "2", "--requests", "100", "--json"))
        case 1:
            return Input(("fleet", "compare", "mine.toml", "--policies", f"{policy},hash"))
        case _:
            return Input(("fleet", "simulate", "mine.toml", "--policy", policy, "--json"))


def profiles(draw: Random, folder: Path, _: Path) -> Input:
    """A damaged profile of a program."""
    (folder / "res18.toml").write_text(mutate.text(draw, PROFILE), newline="")
    if draw.random() < 0.5:
        return Input(("profile", "show", "res18.toml", *draw.choice(((), ("--json",)))))
    (folder / "given.toml").write_text(write(DIVIDED))
    return Input(("run", "given.toml", "--set", 'speed.profiles=["res18.toml"]'))


def others(draw: Random, folder: Path, _: Path) -> Input:
    """A damaged file of another kind: a site's parameters, requests that arrive, kernels, a table of interference."""
    match draw.randint(0, 4):
        case 0:
            (folder / "slurm.conf").write_text(mutate.text(draw, SITE), newline="")
            return Input(("jobs", "backtest", "jobs.csv", *ON, "--config", "slurm.conf"))
        case 1:
            (folder / "slurm.conf").write_text(mutate.text(draw, SITE), newline="")
            return Input(("jobs", "simulate", "jobs.csv", *ON, "--policy", "slurm:slurm.conf"))
        case 2:
            name = draw.choice(("azure-llm.csv", "azure-llm-2024.csv", "mooncake.jsonl", "requests.csv"))
            path = folder / f"given{Path(name).suffix}"
            path.write_text(mutate.text(draw, (SAMPLES / name).read_text()), newline="")
            return Input(("fleet", "simulate", "mine.toml", "--arrivals", path.name, "--json"))
        case 3:
            (folder / "given.parquet").write_bytes(mutate.flipped(draw, PROGRAM))
            if draw.random() < 0.5:
                return Input(("gpu", "predict", "given.parquet", "bert", "--seconds", "0.01"))
            policy = draw.choice(("headway", "mps", "fikit"))
            above, below = draw.choice((("given.parquet", "bert"), ("vit", "given.parquet")))
            return Input(("gpu", "simulate", above, below, "--seconds", "0.01", "--policy", policy))
        case _:
            table = {"pairs": json.loads(PAIRS)[:4] if PAIRS.lstrip().startswith("[") else json.loads(PAIRS)}
            (folder / "pairs.json").write_text(json.dumps(mutate.document(draw, table)))
            return Input(("jobs", "simulate", "jobs.csv", *ON, "--set", "cluster.interference=pairs.json", "--json"))


# --- policies and flags -------------------------------------------------------------------------------------------


def policies(draw: Random, folder: Path, _: Path) -> Input:
    """A policy that is put together at random, or a user's own."""
    if draw.random() < 0.3:
        damaged = draw.random() < 0.3  # only where no number could become one that Python itself takes for ever over
        whole = OWN_ORDER.format(key="js.id" if damaged else draw.choice(KEYS))
        (folder / "mine.py").write_text(mutate.text(draw, whole) if damaged else whole)
        return Input(("jobs", "simulate", "jobs.csv", *ON, "--policy", "./mine.py:Mine"))
    name = draw.choice(("+", "+", ",", "")).join(draw.choices(PARTS, k=draw.randint(1, 4)))
    if draw.random() < 0.3:
        name = name.replace(draw.choice("aeiou1("), mutate.word(draw), 1)
    command, flag = draw.choice((("simulate", "--policy"), ("compare", "--policies")))
    return Input(("jobs", command, "jobs.csv", *ON, flag, name))


def flags(draw: Random, _: Path, __: Path) -> Input:
    """Flags with values that are not meant, or sound ones that do not go together."""
    words, table = draw.choice(COMMANDS)
    given = list(words)
    for flag in draw.sample(list(table), k=min(len(table), draw.randint(1, 3))):
        values = table[flag]
        if values:
            given += [flag, draw.choice(values) if draw.random() < 0.35 else mutate.typed(draw)]
        else:
            given.append(flag)
    if draw.random() < 0.05:
        given.append(mutate.typed(draw))
    return Input(tuple(given))


COMMAND_OF = {
    "jobs": ("jobs", "simulate", "jobs.csv", *ON),
    "fleet": ("fleet", "simulate", "mine.toml"),
    "gpu": ("gpu", "simulate", "resnet50", "bert", "--seconds", "0.01"),
}
TOML = (
    "1979-05-27",
    "07:32:00",
    "[1, [2]]",
    "{x = 1}",
    "[{}]",
    "9" * 5000,
    '"""',
    "'",
    "[" * 2000,
    "[]",
    '["jobs.csv"]',
)
"""Values that only --set and --vary can have."""


def settings(draw: Random, _: Path, __: Path) -> Input:
    """Any key of an experiment by ``--set``, whatever its type."""
    scale = draw.choice(list(COMMAND_OF))
    keys = _keys(domain(scale).tables)
    given = []
    for _again in range(draw.randint(1, 2)):
        key = draw.choice(keys)
        if draw.random() < 0.1:
            key = draw.choice((f"{key}.x", key.rpartition(".")[0], f".{key}", f"{key}.", key.upper(), ""))
        value = draw.choice(TOML) if draw.random() < 0.3 else mutate.word(draw)
        given += ["--set", f"{key}={value}"]
    return Input((*COMMAND_OF[scale], *given))


def _keys(table: Any, prefix: str = "") -> list[str]:
    """The keys of typed tables, those of tables within too."""
    found = []
    for field in msgspec.structs.fields(table):
        found.append(f"{prefix}{field.encode_name}")
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            found += _keys(field.type, f"{found[-1]}.")
    return found


FAMILIES: tuple[Callable[[Random, Path, Path], Input], ...] = (
    *(traces, clusters, experiments, sweeps, scenarios, profiles, others, policies, flags, settings),
    *(runs, schemas, killed, swept, questions),
)
WEIGHTS = (17, 8, 14, 8, 11, 3, 9, 9, 17, 8, 14, 3, 3, 3, 10)

"""Inputs by number: below 1000 the fixed ones, from there on drawn, each from its number alone."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq

from headway.formats.toml_text import write
from tests.fuzz import mutate
from tests.fuzz.fixed import FIXED
from tests.fuzz.flags import COMMANDS, ON, PARTS
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
    SITE,
    SWEEP,
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
            return ("backtest", "--trace", name, *ON, "--policies", "fifo", "--skip-infeasible", *more)
        case 5:
            return ("compare", "--trace", name, *ON, "--policies", "fifo,srtf", "--skip-infeasible", "--json", *more)
        case _:
            skips = ("--skip-infeasible",) if draw.random() < 0.8 else ()
            return ("simulate", "--trace", name, *ON, "--policy", draw.choice(("fifo", "srtf+easy")), *skips, *more)


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
    return Input(("simulate", "--trace", "jobs.csv", "--cluster", path.name, "--skip-infeasible", "--json"))


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
    """A damaged experiment."""
    whole = draw.choice((EXPERIMENT, EXPERIMENT, DIVIDED, SERVED))
    (folder / "given.toml").write_text(_toml(draw, whole))
    more = draw.choice(((), ("--json",), ("--set", f"run.seed={mutate.word(draw)}"), ("--by", "tenant")))
    return Input(("run", "given.toml", *more))


def sweeps(draw: Random, folder: Path, _: Path) -> Input:
    """A damaged grid, or one from flags."""
    always = ("--out", "swept", "--processes", "1")
    if draw.random() < 0.6:
        (folder / "given.toml").write_text(_toml(draw, SWEEP))
        return Input(("sweep", "given.toml", *always))
    flag, sound = draw.choice(
        (("--loads", "1,2"), ("--nodes", "2"), ("--policies", "fifo"), ("--vary", "costs.migration=1s"))
    )
    value = draw.choice((mutate.word(draw), f"{sound},{mutate.word(draw)}", f"{sound},{sound}"))
    given = {"--policies": "fifo", flag: value}
    words = [word for pair in given.items() for word in pair]
    return Input(("sweep", "--trace", "jobs.csv", "--gpus-per-node", "4", *words, *always))


def scenarios(draw: Random, folder: Path, _: Path) -> Input:
    """A damaged scenario of requests, simulated, compared or planned."""
    (folder / "mine.toml").write_text(_toml(draw, SCENARIO))
    policy = draw.choice(("headway", "compass", "hash", "esg", "jit", "heft"))
    match draw.randint(0, 5):
        case 0:
            return Input(("plan", "mine.toml", "--slo", "1s", "--rate", "2", "--requests", "100", "--json"))
        case 1:
            return Input(("compare", "--scenario", "mine.toml", "--policies", f"{policy},hash"))
        case _:
            return Input(("simulate", "--scenario", "mine.toml", "--policy", policy, "--json"))


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
            return Input(("backtest", "--trace", "jobs.csv", *ON, "--config", "slurm.conf"))
        case 1:
            (folder / "slurm.conf").write_text(mutate.text(draw, SITE), newline="")
            return Input(("simulate", "--trace", "jobs.csv", *ON, "--policy", "slurm:slurm.conf"))
        case 2:
            name = draw.choice(("azure-llm.csv", "azure-llm-2024.csv", "mooncake.jsonl"))
            path = folder / f"given{Path(name).suffix}"
            path.write_text(mutate.text(draw, (SAMPLES / name).read_text()), newline="")
            return Input(("simulate", "--scenario", "mine.toml", "--arrivals", path.name, "--json"))
        case 3:
            (folder / "given.parquet").write_bytes(mutate.flipped(draw, PROGRAM))
            if draw.random() < 0.5:
                return Input(("share", "predict", "given.parquet", "bert", "--seconds", "0.01"))
            kernels = ("simulate", "--scenario", "kernels", "--seconds", "0.01")
            return Input((*kernels, "--high", "given.parquet", "--low", "bert"))
        case _:
            table = {"pairs": json.loads(PAIRS)[:4] if PAIRS.lstrip().startswith("[") else json.loads(PAIRS)}
            (folder / "pairs.json").write_text(json.dumps(mutate.document(draw, table)))
            return Input(("simulate", "--trace", "jobs.csv", *ON, "--set", "cluster.interference=pairs.json", "--json"))


# --- policies and flags -------------------------------------------------------------------------------------------


def policies(draw: Random, folder: Path, _: Path) -> Input:
    """A policy that is put together at random, or a user's own."""
    if draw.random() < 0.3:
        damaged = draw.random() < 0.3  # only where no number could become one that Python itself takes for ever over
        whole = OWN_ORDER.format(key="js.id" if damaged else draw.choice(KEYS))
        (folder / "mine.py").write_text(mutate.text(draw, whole) if damaged else whole)
        return Input(("simulate", "--trace", "jobs.csv", *ON, "--policy", "./mine.py:Mine"))
    name = draw.choice(("+", "+", ",", "")).join(draw.choices(PARTS, k=draw.randint(1, 4)))
    if draw.random() < 0.3:
        name = name.replace(draw.choice("aeiou1("), mutate.word(draw), 1)
    command, flag = draw.choice((("simulate", "--policy"), ("compare", "--policies")))
    return Input((command, "--trace", "jobs.csv", *ON, flag, name))


def flags(draw: Random, _: Path, __: Path) -> Input:
    """Flags with values that are not meant, or sound ones that do not go together."""
    words, table = draw.choice(COMMANDS)
    given = list(words)
    for flag in draw.sample(list(table), k=min(len(table), draw.randint(1, 3))):
        values = table[flag]
        if values:
            given += [flag, draw.choice(values) if draw.random() < 0.35 else _typed(draw)]
        else:
            given.append(flag)
    if draw.random() < 0.05:
        given.append(_typed(draw))
    return Input(tuple(given))


def _typed(draw: Random) -> str:
    return "\udcff" if draw.random() < 0.03 else mutate.word(draw)


# --- runs ---------------------------------------------------------------------------------------------------------


def _looks(draw: Random, run: str) -> tuple[str, ...]:
    """Any command that looks into a run."""
    job = draw.choice(("0", "3", "j3", "11"))
    match draw.randint(0, 9):
        case 0 | 1:
            return ("audit", run)
        case 2:
            return ("replay", run)
        case 3:
            return ("report", run, "--out", "page.html")
        case 4:
            return ("story", run, job, *draw.choice(((), ("--json",))))
        case 5:
            return ("explain", run, job, "--draws", "5", *draw.choice(((), ("--json",))))
        case 6:
            return ("whatif", run, "--at", "50%", "--add-nodes", "1", *draw.choice(((), ("--json",))))
        case _:
            kind, target = draw.choice((("--csv", "tables"), ("--parquet", "tables"), ("--perfetto", "out.json")))
            return ("export", run, kind, target)


def runs(draw: Random, folder: Path, kept: Path) -> Input:
    """A run of which a file is damaged, missing, or another run's."""
    name = draw.choice(("first", "first", "second", "served"))
    other = draw.choice([each for each in ("first", "second", "served") if each != name])
    run = folder / "run"
    shutil.copytree(kept / name, run)
    victim = draw.choice(
        ["tape.parquet", "tape.parquet", *sorted(path.name for path in run.iterdir() if path.is_file())]
    )
    must_fail = ""
    match draw.randint(0, 3):
        case 0:
            (run / victim).unlink()
            must_fail = "" if victim == "result.json" else f"{victim} is missing"
        case 1 if (kept / other / victim).exists():
            shutil.copyfile(kept / other / victim, run / victim)
            must_fail = f"{victim} is another run's" if victim == "tape.parquet" else ""
        case 2 if victim == "result.json":
            must_fail = _other_result(draw, run / victim)
        case 2 if victim == "experiment.toml":
            (run / victim).write_text(mutate.text(draw, (run / victim).read_text()), newline="")
        case _:
            (run / victim).write_bytes(mutate.flipped(draw, (run / victim).read_bytes()))
            must_fail = f"{victim} is damaged" if victim == "tape.parquet" and _differs(run, kept / name) else ""
    return Input(_looks(draw, "run"), must_fail)


def _other_result(draw: Random, path: Path) -> str:
    """Another digest, or other numbers; why that must be refused."""
    result = json.loads(path.read_text())
    if draw.random() < 0.5:
        result["digest"] = result["digest"][::-1]
        path.write_text(json.dumps(result))
        return "the digest of the tape is another one"
    path.write_text(json.dumps(mutate.document(draw, result)))
    return ""


def _differs(run: Path, whole: Path) -> bool:
    """Whether a damaged tape says something else than the whole one, or nothing at all."""
    try:
        return not pq.read_table(run / "tape.parquet").equals(pq.read_table(whole / "tape.parquet"))
    except Exception:  # noqa: BLE001 - it cannot be read
        return True


ASKED: dict[str, tuple[tuple[str, str], ...]] = {
    "story": (("", ""),),
    "explain": (("--at", "36s"), ("--draws", "5")),
    "whatif": (
        *(
            ("--add-nodes", "1"),
            ("--add-nodes", "4xh100:8"),
            ("--remove-nodes", "n1"),
            ("--policy", "srtf"),
            ("--quota", "a=2"),
        ),
        *(
            ("--limit", "a=none"),
            ("--gpu-speed", "gpu=2"),
            ("--upgrade", "gpu=h100"),
            ("--failures", "off"),
            ("--load", "1.2"),
        ),
        *(("--set", "costs.preemption=1s"), ("--out", "new")),
    ),
    "export": (("--csv", "tables"), ("--parquet", "tables"), ("--perfetto", "out.json")),
    "report": (("--baseline", "first"), ("--title", "x"), ("--out", "page.html")),
}


def questions(draw: Random, _: Path, kept: Path) -> Input:
    """A sound run, asked badly."""
    command = draw.choice(list(ASKED))
    run = str(kept / draw.choice(("first", "second", "served")))
    words = [command, run]
    if command in ("story", "explain"):
        words.append(draw.choice(("0", "j3", _typed(draw), _typed(draw))))
    if command == "whatif":
        words += ["--at", draw.choice(("50%", "30s", _typed(draw)))]
    for flag, sound in draw.sample(ASKED[command], k=min(len(ASKED[command]), draw.randint(1, 2))):
        words += [flag, sound if draw.random() < 0.4 else _typed(draw)] if flag else []
    return Input(tuple(words))


FAMILIES: tuple[Callable[[Random, Path, Path], Input], ...] = (
    *(traces, clusters, experiments, sweeps, scenarios, profiles, others, policies, flags, runs, questions),
)
WEIGHTS = (18, 9, 12, 4, 12, 3, 8, 9, 16, 12, 9)

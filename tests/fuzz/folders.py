"""Run folders and sweep folders as inputs: damaged, killed, of another version or scale, or sound and asked badly."""

import json
import re
import shutil
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from tests.fuzz import mutate
from tests.fuzz.play import Input
from tests.fuzz.samples import RUNS

SUBJECTS = {"first": ("0", "3", "j3", "11"), "second": ("0", "3", "j3", "11"), "served": ("0", "3", "19")}
"""What a story can be about; in the run on a GPU programs."""
ON_GPU = ("resnet50", "bert", "0", "1")


def _looks(draw: Random, run: str, name: str) -> tuple[str, ...]:
    """Any command that looks into a run."""
    job = draw.choice(SUBJECTS.get(name, ON_GPU))
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
    name = draw.choice(("first", *RUNS, "shared"))
    other = draw.choice([each for each in RUNS if each != name])
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
    return Input(_looks(draw, "run", name), must_fail)


def schemas(draw: Random, folder: Path, kept: Path) -> Input:
    """A run folder of another version, or one that says another scale, or none."""
    name = draw.choice(list(RUNS))
    run = folder / "run"
    shutil.copytree(kept / name, run)
    path = run / "experiment.toml"
    key = draw.choice(("version", "scale"))
    written = draw.choice(("", *_OTHERS[key]))
    whole = path.read_text()
    changed = re.sub(rf"^{key} = .*$", f"{key} = {written}" if written else "", whole, count=1, flags=re.MULTILINE)
    path.write_text(changed)
    return Input(_looks(draw, "run", name), f"its {key} is another one" if changed != whole else "")


_OTHERS = {
    "version": ("1", "3", "0", "-1", '"2"', "2.5", "true", "nan", "[]", "9" * 400),
    "scale": ('"jobs"', '"fleet"', '"gpu"', '""', "1", "[]", '"JOBS"', "{}"),
}


def killed(draw: Random, folder: Path, kept: Path) -> Input:
    """A run that was killed: the beginning of its tape, as a stream that ends somewhere, and no numbers."""
    name = draw.choice(("first", "served", "shared"))
    run = folder / "run"
    shutil.copytree(kept / name, run)
    table = pq.read_table(run / "tape.parquet")
    (run / "tape.parquet").unlink()
    (run / "result.json").unlink()
    with pa.ipc.new_stream(str(run / "tape.arrow"), table.schema) as stream:
        for batch in table.slice(0, draw.randint(0, len(table))).to_batches(max_chunksize=draw.choice((7, 1000))):
            stream.write_batch(batch)
    whole = (run / "tape.arrow").read_bytes()
    match draw.randint(0, 2):
        case 0:
            (run / "tape.arrow").write_bytes(whole[: draw.randint(0, len(whole))])
        case 1:
            (run / "tape.arrow").write_bytes(mutate.flipped(draw, whole))
    return Input(_looks(draw, "run", name))


def swept(draw: Random, folder: Path, kept: Path) -> Input:
    """A sweep that is taken up again after a file of its folder was damaged."""
    sweep = folder / "swept"
    shutil.copytree(kept / "swept", sweep)
    victim = draw.choice(sorted(path for path in sweep.rglob("*") if path.is_file() and path.name != ".lock"))
    match draw.randint(0, 3):
        case 0:
            victim.unlink()
        case 1 | 2 if victim.suffix == ".json":
            victim.write_text(json.dumps(mutate.document(draw, json.loads(victim.read_text()))))
        case _ if victim.suffix in (".toml", ".json", ".csv"):
            victim.write_text(mutate.text(draw, victim.read_text()), newline="")
        case _:
            victim.write_bytes(mutate.flipped(draw, victim.read_bytes()))
    more = draw.choice(((), ("--keep-runs",), ("--retry",), ("--json",)))
    return Input(("jobs", "sweep", "--out", "swept", "--processes", "1", *more))


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
    run = str(kept / draw.choice(list(RUNS)))
    words = [command, run]
    if command in ("story", "explain"):
        words.append(draw.choice(("0", "j3", "bert", mutate.typed(draw), mutate.typed(draw))))
    if command == "whatif":
        words += ["--at", draw.choice(("50%", "30s", mutate.typed(draw)))]
    for flag, sound in draw.sample(ASKED[command], k=min(len(ASKED[command]), draw.randint(1, 2))):
        words += [flag, sound if draw.random() < 0.4 else mutate.typed(draw)] if flag else []
    return Input(tuple(words))

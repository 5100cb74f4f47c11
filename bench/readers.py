"""Made-up files in the shape of the samples, as large as one likes: what benchmarks of readers read.

``CASES`` are traces, ``CLUSTERS`` descriptions of nodes. Nothing of headway is used here: two versions of it read the
same files.
"""

import json
import random
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import polars as pl

SAMPLES = Path(__file__).resolve().parent.parent / "tests" / "samples"
BEGIN = 1_772_438_400
WIDTHS = (1, 1, 1, 1, 2, 4, 8, 16)
ACCOUNTS = ("vision", "speech", "language", "robots", "chemistry")
STATES = ("COMPLETED", "COMPLETED", "COMPLETED", "FAILED", "TIMEOUT", "CANCELLED")
Row = dict[str, Any]
MAP = "name=id,submit=queue entered,start=began,end=ended,gpus=devices,outcome=state,tenant=team"


def rows(count: int) -> Iterator[Row]:
    """What happened to ``count`` jobs, the same each time."""
    draw, submit = random.Random(7), BEGIN
    for number in range(count):
        submit += draw.randrange(60)
        wait, elapsed, gpus = draw.randrange(3600), 1 + int(draw.lognormvariate(7, 1.5)), draw.choice(WIDTHS)
        start, cpus, memory = submit + wait, gpus * 8, gpus * draw.randrange(8, 64) * 1024
        yield {
            "n": number, "id": 4101 + number, "submit": submit, "wait": wait, "start": start, "end": start + elapsed,
            "elapsed": elapsed, "limit": draw.choice((60, 240, 1440, 2880)), "gpus": gpus, "cpus": cpus,
            "memory": memory, "nodes": -(-gpus // 8), "user": f"u{draw.randrange(400):03}",
            "account": draw.choice(ACCOUNTS), "state": draw.choice(STATES), "priority": draw.randrange(10**4, 10**6),
            "node": f"g{draw.randrange(1, 200):03}", "work": elapsed, "tokens": draw.randrange(1, 4000),
        }  # fmt: skip


@lru_cache(maxsize=1 << 16)
def _day(days: int) -> str:
    return datetime.fromtimestamp(days * 86_400, UTC).strftime("%Y-%m-%d")


def at(seconds: int, between: str = " ", zone: str = "") -> str:
    """A time as logs write it."""
    days, rest = divmod(seconds, 86_400)
    return f"{_day(days)}{between}{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}{zone}"


def span(seconds: int) -> str:
    """A span of time as Slurm writes it."""
    days, rest = divmod(seconds, 86_400)
    return f"{f'{days}-' if days else ''}{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"


def _table(header: str, line: Callable[[Row], str]) -> Callable[[int], Iterator[str]]:
    """Lines under a header."""

    def made(count: int) -> Iterator[str]:
        yield f"{header}\n" if header else ""
        for row in rows(count):
            yield f"{line(row)}\n"

    return made


def _shape(value: Any, indent: int) -> str:
    """JSON with places for the values of a row: ``%(name)s`` for text, ``%(name)d`` for numbers."""
    return re.sub(r'"(%\(\w+\)d)"', r"\1", json.dumps(value, indent=indent))


def _listed(before: str, after: str, shapes: list[str], more: Callable[[Row], Row]) -> Callable[[int], Iterator[str]]:
    """JSON objects of these shapes in turn, in a list."""

    def made(count: int) -> Iterator[str]:
        yield before
        for number, row in enumerate(rows(count)):
            yield (",\n" if number else "") + shapes[number % len(shapes)] % {**row, **more(row)}
        yield after

    return made


def _sacct_json() -> Callable[[int], Iterator[str]]:
    whole = json.loads((SAMPLES / "sacct.json").read_text())
    job = whole["jobs"][0]
    given = {"cpu": "%(cpus)d", "mem": "%(memory)d", "node": "%(nodes)d", "billing": "%(cpus)d", "gres": "%(gpus)d"}
    for each in (*job["tres"]["allocated"], *job["tres"]["requested"]):
        each["count"] = given.get(each["type"], each["count"])
    times = {key: f"%({key})d" for key in ("elapsed", "end", "start")}
    job["time"] |= {**times, "eligible": "%(submit)d", "submission": "%(submit)d"}
    job["time"]["limit"]["number"], job["priority"]["number"] = "%(limit)d", "%(priority)d"
    job["association"] |= {"account": "%(account)s", "user": "%(user)s"}
    job |= {"account": "%(account)s", "user": "%(user)s", "job_id": "%(id)d", "nodes": "%(node)s"}
    job |= {"allocation_nodes": "%(nodes)d", "state": {"current": ["%(state)s"], "reason": "None"}}
    job["required"]["CPUs"] = "%(cpus)d"
    return _listed('{"jobs": [\n', "]}\n", [_shape(job, 2)], lambda row: {})


def _pods(chosen: slice) -> Callable[[int], Iterator[str]]:
    """Pods of the sample in turn, each with times, names, sizes and a gang of its own."""
    shapes = []
    for pod in json.loads((SAMPLES / "pods.json").read_text())["items"][chosen]:
        pod["metadata"] |= {"name": "%(name)s", "uid": "6d1f2c3a-%(name)s", "creationTimestamp": "%(created)s"}
        pod["status"] |= {"startTime": "%(began)s", "phase": "Succeeded"}
        for each in pod["status"]["conditions"]:
            each["lastTransitionTime"] = "%(began)s"
        for each in pod["status"].setdefault("containerStatuses", [{"restartCount": 0}]):
            each["state"] = {"terminated": {"exitCode": 0, "startedAt": "%(began)s", "finishedAt": "%(ended)s"}}
        for each in pod["spec"]["containers"]:
            for kind in ("limits", "requests"):
                each["resources"].setdefault(kind, {}).update(cpu="%(cpus)d000m", memory="%(memory)dMi")
        labels = pod["metadata"].get("labels", {})
        pod["metadata"]["labels"] = {key: re.sub("^(resnet|render)$", r"\1-%(gang)s", labels[key]) for key in labels}
        shapes.append(_shape(pod, 4))

    def more(row: Row) -> Row:
        times = {"created": row["submit"], "began": row["start"], "ended": row["end"]}
        stamps = {name: at(seconds, "T", "Z") for name, seconds in times.items()}
        return {**stamps, "name": f"pod-{row['n']}", "gang": row["n"] // 8}

    return _listed('{"apiVersion": "v1", "items": [\n', '], "kind": "List"}\n', shapes, more)


def _philly_json() -> Callable[[int], Iterator[str]]:
    def attempts(tries: int) -> list[Row]:
        where = {"ip": "m%(node)s", "gpus": [f"gpu{number}" for number in range(4)]}
        return [{"start_time": "%(began)s", "end_time": "%(ended)s", "detail": [where]}] * tries

    names = {"vc": "%(account)s", "jobid": "application_1700000000001_%(id)s", "user": "%(user)s"}
    last = {"submitted_time": "%(submitted)s"}
    told = [{"status": "%(ending)s", **names, "attempts": attempts(tries), **last} for tries in (1, 1, 2)]

    def more(row: Row) -> Row:
        times = {"submitted": row["submit"], "began": row["start"], "ended": row["end"]}
        ending = {"COMPLETED": "Pass", "CANCELLED": "Killed"}.get(row["state"], "Failed")
        return {"ending": ending, **{name: at(seconds) for name, seconds in times.items()}}

    return _listed("[\n", "]\n", [_shape(each, 4) for each in told], more)


def _tres(row: Row) -> str:
    return (
        f"billing={row['cpus']},cpu={row['cpus']},gres/gpu:a100={row['gpus']},gres/gpu={row['gpus']},"
        f"mem={row['memory']}M,node={row['nodes']}"
    )


def _sacct(row: Row) -> str:
    submit, start, end = (at(row[name], "T") for name in ("submit", "start", "end"))
    tres, state, where = _tres(row), row["state"], f"{row['nodes']}|{row['node']}"
    ran = f"{start}|{end}|{span(row['elapsed'])}"
    steps = [
        f"{row['id']}.{name}||{row['account']}||||{start}|{start}|{ran}||{state}||{tres}|{where}"
        for name in ("batch", "extern", "0")
    ]
    job = (
        f"{row['id']}|{row['user']}|{row['account']}|gpu|normal|{row['priority']}|{submit}|{submit}|{ran}|"
        f"{span(row['limit'] * 60)}|{state}|{tres}|{tres}|{where}"
    )
    return "\n".join([job, *steps])


def _submitted(row: Row) -> str:
    """One row a job, with the command that submitted it."""
    job, _, _ = _sacct(row).partition("\n")
    after = f" --dependency=afterok:{row['id'] - 1}" if row["n"] % 50 == 49 else ""
    return (
        f"{job}|sbatch -A {row['account']} -p gpu -N {row['nodes']} --gres=gpu:a100:{row['gpus']} -t {row['limit']}"
        f"{after} --job-name=train-{row['n'] % 97} /home/{row['user']}/project-{row['n'] % 13}/run.sh --epochs 90"
    )


def _scontrol() -> Callable[[int], Iterator[str]]:
    """The first job of the sample, with other values."""
    job = (SAMPLES / "scontrol-jobs.txt").read_text().split("\n")[0]
    places = {
        "JobId": "%(id)s", "UserId": "%(user)s(1001)", "Priority": "%(priority)s", "Account": "%(account)s",
        "JobState": "%(state)s", "RunTime": "%(ran)s", "TimeLimit": "%(limit)s", "SubmitTime": "%(submitted)s",
        "EligibleTime": "%(submitted)s", "StartTime": "%(began)s", "EndTime": "%(ended)s", "NodeList": "%(node)s",
        "NumNodes": "%(nodes)s", "NumCPUs": "%(cpus)s", "TRES": "%(tres)s",
    }  # fmt: skip
    for key, place in places.items():
        job = re.sub(rf"(^| ){key}=\S*", rf"\g<1>{key}={place}", job)

    def line(row: Row) -> str:
        times = {"submitted": row["submit"], "began": row["start"], "ended": row["end"]}
        stamps = {name: at(seconds, "T") for name, seconds in times.items()}
        return job % {
            **row,
            **stamps,
            "ran": span(row["elapsed"]),
            "limit": span(row["limit"] * 60),
            "tres": _tres(row),
        }

    return _table("", line)


def _record(row: Row) -> str:
    submit, start, end = (at(row[name], "T") for name in ("submit", "start", "end"))
    return (
        f"JobId={row['id']} UserId={row['user']}(1001) GroupId=staff(100) Name=train JobState={row['state']} "
        f"Partition=gpu TimeLimit={row['limit']} StartTime={start} EndTime={end} NodeList={row['node']} "
        f"NodeCnt={row['nodes']} ProcCnt={row['cpus']} WorkDir=/home/{row['user']} ReservationName= Tres={_tres(row)} "
        f"Account={row['account']} QOS=normal WcKey= Cluster=lab SubmitTime={submit} EligibleTime={submit} "
        "DerivedExitCode=0:0 ExitCode=0:0 "
    )


def _acme(row: Row) -> str:
    times = ",".join(at(row[name], " ", "+08:00") for name in ("submit", "start", "end"))
    what = f"{row['nodes']},{row['gpus']},{row['cpus']},Evaluation,{row['state']}"
    return f"{row['id']},{row['user']},{what},{times},{row['elapsed']},{row['wait']},{row['elapsed'] * row['gpus']}.0"


def _helios_log(row: Row) -> str:
    times = ",".join(at(row[name]) for name in ("submit", "start", "end"))
    what = f"{row['account']},{row['gpus']},{row['cpus']},{row['nodes']},{row['state']}"
    return f"{row['id']},{row['user']},{what},{times},{row['elapsed']},{row['wait']}"


def _swf(row: Row) -> str:
    cells = (row["id"], row["submit"] - BEGIN, row["wait"], row["elapsed"], row["gpus"], -1, -1, row["gpus"])
    return " ".join(map(str, (*cells, row["limit"] * 60, -1, 1, int(row["user"][1:]), 1, -1, 1, 1, -1, -1)))


def _own(row: Row) -> str:
    what = f"{row['gpus']},{row['account']},{row['cpus']},{row['memory'] << 20},{row['limit'] * 60},{row['priority']}"
    return f"{row['submit'] - BEGIN},{row['elapsed']},{what},{row['user']},finishes,job-{row['n']}"


def _openb(row: Row) -> str:
    what = f"{row['cpus'] * 1000},{row['memory']},1,{(row['n'] % 10 + 1) * 100},,LS,Succeeded"
    return f"openb-pod-{row['n']},{what},{row['submit'] - BEGIN},{row['end'] - BEGIN},{row['start'] - BEGIN}"


def _any(row: Row) -> str:
    times = ";".join(at(row[name], "T", "+01:00") for name in ("submit", "start", "end"))
    return f"train-{row['n']};{times};{row['gpus']};done;{row['account']}"


_ANY = "id;queue entered;began;ended;devices;state;team"
_TOKENS = "TIMESTAMP,ContextTokens,GeneratedTokens"
SACCT = (SAMPLES / "sacct.txt").read_text().split("\n")[0]
_ACME, _HELIOS_LOG, _OPENB = (
    (SAMPLES / f"{name}.csv").read_text().split("\n")[0] for name in ("acme", "helios-log", "openb-pods")
)
_OWN = "submit_s,work_s,gpus,tenant,cpus,memory_bytes,estimate_s,priority,user,outcome,name"
CASES: dict[str, tuple[str, Callable[[int], Iterator[str]]]] = {
    "slurm: sacct with 3 steps a job": ("sacct.txt", _table(SACCT, _sacct)),
    "slurm: sacct with SubmitLine": ("submitted.txt", _table(f"{SACCT}|SubmitLine", _submitted)),
    "slurm: sacct --json": ("sacct.json", _sacct_json()),
    "slurm: scontrol show job -o": ("scontrol.txt", _scontrol()),
    "slurm: jobcomp/filetxt": ("jobcomp.txt", _table("", _record)),
    "kubernetes: one container a pod": ("plain-pods.json", _pods(slice(3, 4))),
    "kubernetes: gangs, init containers, labels": ("pods.json", _pods(slice(None))),
    "philly-json": ("philly.json", _philly_json()),
    "philly-csv": (
        "philly.csv",
        _table(
            "timestamp,duration,num_gpus,gpu_time,cluster",
            lambda row: (
                f"{at(row['submit'])},{row['work']}.0,{row['gpus']},{row['work'] * row['gpus']}.0,{row['account']}"
            ),
        ),
    ),
    "helios-csv": (
        "helios.csv",
        _table(
            "job_id,arrival_s,service_sec,gpu_count",
            lambda row: f"{row['id']}#{row['n']},{row['submit'] - BEGIN}.0,{row['work']}.0,{row['gpus']}",
        ),
    ),
    "helios-log": ("helios-log.csv", _table(_HELIOS_LOG, _helios_log)),
    "openb": ("openb.csv", _table(_OPENB, _openb)),
    "acme": ("acme.csv", _table(_ACME, _acme)),
    "swf": ("trace.swf", _table("; Version: 2.2\n; MaxProcs: 64", _swf)),
    "synergy": (
        "synergy.csv",
        _table(
            "job_id,model,arrival_s,total_iters,iter_time_s_at_fair_share,gpus",
            lambda row: f"{row['n']},gnmt,{row['submit'] - BEGIN},{row['work']},0.5,{row['gpus']}",
        ),
    ),
    "headway": ("headway.csv", _table(_OWN, _own)),
    "table: CSV": ("table.csv", _table(_ANY, _any)),
    "table: Parquet": ("table.parquet", _table(_ANY, _any)),
    "azure-llm": (
        "azure.csv",
        _table(_TOKENS, lambda row: f"{at(row['submit'])}.1234567,{row['tokens']},{row['gpus'] * 40}"),
    ),
    "mooncake": (
        "mooncake.jsonl",
        _table(
            "",
            lambda row: json.dumps(
                {
                    "timestamp": (row["submit"] - BEGIN) * 1000,
                    "input_length": row["tokens"],
                    "output_length": row["gpus"] * 40,
                    "hash_ids": list(range(row["n"], row["n"] + row["tokens"] // 512)),
                }
            ),
        ),
    ),
}
"""A file and what it holds, by what is measured; before the colon is the format."""


def write(path: Path, made: Iterator[str]) -> None:
    """Write a file, as Parquet where its name says so."""
    if path.suffix == ".parquet":
        pl.read_csv("".join(made).encode(), separator=";", infer_schema=False).write_parquet(path)
        return
    with path.open("w") as file:
        file.writelines(made)


# --- clusters -------------------------------------------------------------------------------------------------------


def _scontrol_nodes(count: int) -> Iterator[str]:
    node = (SAMPLES / "scontrol-nodes.txt").read_text().split("\n")[0]
    for number in range(count):
        yield node.replace("g01", f"g{number:05}").replace("CPUTot=32", f"CPUTot={32 + number % 3 * 16}") + "\n"


def _sinfo_nodes(count: int) -> Iterator[str]:
    yield "NODELIST PARTITION CPUS MEMORY GRES STATE\n"
    for number in range(count):
        for partition in ("gpu*", "debug"):
            yield f"g{number:05} {partition} 32 257000 gpu:a100:{4 + number % 2 * 4}(S:0-1) idle\n"


def _sinfo_json(count: int) -> Iterator[str]:
    whole = json.loads((SAMPLES / "sinfo.json").read_text())
    shape = json.dumps(whole["sinfo"][0])
    yield '{"sinfo": ['
    for number in range(count):
        yield (",\n" if number else "") + shape.replace('"g01"', f'"g{number:05}"')
    yield "]}\n"


def _kubernetes_nodes(count: int) -> Iterator[str]:
    shape = json.dumps(json.loads((SAMPLES / "nodes.json").read_text())["items"][0])
    yield '{"apiVersion": "v1", "kind": "List", "items": [\n'
    for number in range(count):
        yield (",\n" if number else "") + shape.replace("gpu-0", f"gpu-{number}")
    yield "]}\n"


def _openb_nodes(count: int) -> Iterator[str]:
    yield "sn,cpu_milli,memory_mib,gpu,model\n"
    for number in range(count):
        yield f"openb-node-{number:05},{64_000 + number % 2 * 32_000},262144,{2 << number % 3},T4\n"


CLUSTERS: dict[str, tuple[str, Callable[[int], Iterator[str]]]] = {
    "scontrol show node -o": ("scontrol-nodes.txt", _scontrol_nodes),
    "sinfo": ("sinfo-nodes.txt", _sinfo_nodes),
    "sinfo --json": ("sinfo.json", _sinfo_json),
    "kubectl get nodes -o json": ("nodes.json", _kubernetes_nodes),
    "openb nodes": ("openb-nodes.csv", _openb_nodes),
}
"""A file and what it holds, by what is measured."""

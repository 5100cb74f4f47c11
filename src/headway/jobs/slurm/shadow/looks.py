"""Look at a Slurm that runs, by commands that change nothing: jobs at each look, rules and nodes at the first."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Event

from headway.errors import SlurmAwayError, SlurmError, TapeError
from headway.files import write_whole
from headway.jobs.slurm.accounting.rows import TIMES
from headway.jobs.slurm.live.client import SlurmClient
from headway.jobs.slurm.live.rows import JobRow
from headway.jobs.slurm.shadow.folder import Shadow
from headway.jobs.slurm.shadow.records import Look, Records, Row, expanded, parsed, plain, written
from headway.runs.stopping import stops_on_interrupt
from headway.units import DAY, MINUTE, SECOND

_COLUMNS = (
    *("JobID", "User", "Account", "Partition", "QOS", "Priority", "Submit", "Eligible", "Start", "End", "ElapsedRaw"),
    *("Timelimit", "State", "Reason", "ReqTRES", "AllocTRES", "NNodes", "NodeList", "Reservation"),
)
_SACCT = ("-a", "-D", "-X", "--parsable2", "-o", ",".join(_COLUMNS))
_GAP = 5 * MINUTE
"""After so long Slurm may have forgotten jobs that came and went meanwhile."""
_STEP_S = 0.2
CONFIG = "config.txt"


def site_files(client: SlurmClient, folder: Path) -> tuple[list[str], str, list[str]]:
    """Write what Slurm says of its nodes and rules; return the files, that of its settings, and what is lacking."""
    folder.mkdir(parents=True, exist_ok=True)
    asked: dict[str, Callable[[], str]] = {
        "nodes.txt": client.nodes_text,
        "partitions.txt": client.partitions_text,
        CONFIG: client.config_text,
        "reservations.txt": client.reservations_text,
        "qos.txt": lambda: client.rules_text("qos"),
        "assoc.txt": lambda: client.rules_text("assoc", "tree"),
    }
    files, lacking = [], []
    for name, ask in asked.items():
        try:
            text = ask()
        except SlurmError as problem:
            if name in ("nodes.txt", "partitions.txt", CONFIG):
                raise
            lacking.append(f"{name.removesuffix('.txt')} not read ({problem})")
            continue
        if text.strip() and "No reservations" not in text and text.count("\n") > (name in ("qos.txt", "assoc.txt")):
            write_whole(folder / name, text)
            files.append(str(folder / name))
    return files, str(folder / CONFIG), lacking


def look(client: SlurmClient, records: Records, say: Callable[[str], None]) -> Look:
    """Return what Slurm says of its jobs now; of those that it has forgotten, what its accounting says."""
    at = int(time.time()) * SECOND
    rows = [plain(row) for row in expanded(row_of(job) for job in client.jobs())]
    listed = {(row["JobID"], row.get("Submit", "")) for row in rows}
    if records.looks and (at - records.at > _GAP or any(key not in listed for key in records.open)):
        known = _accounted(client, records, say)
        rows += [row for row in known if (row["JobID"], row.get("Submit", "")) not in listed]
    away = {node.name: node.state for node in client.nodes() if not node.takes_jobs}
    return Look(at, "slurm", "", rows, whole=True, instants=True, away=away)


def _accounted(client: SlurmClient, records: Records, say: Callable[[str], None]) -> Iterable[Row]:
    """Return what sacct has since the last look; nothing where there is no accounting, which is told."""
    since = written(records.at - DAY, instants=False)
    try:
        lines = client.accounting(*_SACCT, "-S", since).splitlines()
    except SlurmAwayError:
        raise
    except SlurmError as problem:
        say(f"jobs are gone from squeue, and accounting does not tell how they ended: {problem}")
        return []
    names = lines[0].split("|") if lines else []
    found = [dict(zip(names, line.split("|"), strict=True)) for line in lines[1:] if line.count("|") == len(names) - 1]
    return [plain(row) for row in expanded(_in_seconds(row) for row in found)]


def _in_seconds(row: Row) -> Row:
    """Return a row with times in seconds since 1970: the client has Slurm print them in UTC."""
    times = {name: time for name in TIMES if (time := parsed(row.get(name, ""))) is not None}
    return {**row, **{name: written(time, instants=True) for name, time in times.items()}}


def row_of(job: JobRow) -> Row:
    """Return a job of the queue as ``sacct`` would print it."""
    times = {"Submit": job.submit_s, "Eligible": job.eligible_s, "Start": job.start_s, "End": job.end_s}
    elapsed = {}
    if not job.waits and not job.runs and job.start_s is not None and job.end_s is not None:
        elapsed = {"ElapsedRaw": str(max(0, round(job.end_s - job.start_s)))}
    held = {"ReqTRES" if job.waits else "AllocTRES": _tres(job)}
    return {
        "JobID": _name(job),
        "State": job.state,
        "Reason": job.reason,
        "User": job.user,
        "Account": job.account,
        "Partition": job.partition,
        "QOS": job.qos,
        "Priority": str(job.priority),
        "Timelimit": _span(job.limit),
        "NNodes": str(job.node_count),
        "NodeList": ",".join(job.nodes),
        "Restarts": str(job.restarts),
        "Reservation": job.reservation,
        "ReqGRES": job.per_node,
        "JobGRES": job.per_job,
        **{name: str(int(value)) for name, value in times.items() if value is not None},
        **elapsed,
        **held,
    }


def _name(job: JobRow) -> str:
    array, _, task = job.array.partition("_")
    return str(job.id) if not job.array else job.array if task.isdecimal() else f"{array}_[{task.strip('[]')}]"


def _tres(job: JobRow) -> str:
    typed = [f"gres/gpu:{job.gpu_types[0]}={job.gpus}"] if len(job.gpu_types) == 1 and job.gpus else []
    gpus = [f"gres/gpu={job.gpus}"] if job.gpus else []
    memory = [f"mem={job.memory_bytes >> 20}M"] if job.memory_bytes else []
    return ",".join([f"cpu={job.cpus}", *memory, f"node={max(1, job.node_count)}", *typed, *gpus])


def _span(limit: int) -> str:
    if not limit:
        return "UNLIMITED"
    days, rest = divmod(limit // SECOND, 86_400)
    return f"{days}-{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"


def watch(shadow: Shadow, client: SlurmClient, every: int, looks: int, say: Callable[[str], None]) -> bool:
    """Look again and again, until it is stopped or so many looks were taken; return whether it was stopped.

    A look that fails is told and tried again at the next turn, unless it is the first.
    """
    stopped = Event()
    taken = 0
    with stops_on_interrupt(stopped.set):
        while not stopped.is_set() and (not looks or taken < looks):
            due = time.monotonic() + every / SECOND
            try:
                shadow.take(look(client, shadow.records, say))
                shadow.store()
                say(_told(shadow))
            except SlurmAwayError as problem:
                if not shadow.records.looks:
                    raise
                say(f"{problem}; tried again in {every // SECOND} s")
            taken += 1
            while not stopped.is_set() and (not looks or taken < looks) and time.monotonic() < due:
                time.sleep(_STEP_S)
    return stopped.is_set()


def _told(shadow: Shadow) -> str:
    """Say in a line how the cluster and its shadow stand."""
    waiting = sum(1 for key in shadow.records.open if "Start" not in shadow.records.rows[key])
    real = f"Slurm: {waiting:,} wait, {len(shadow.records.open) - waiting:,} run"
    if shadow.played is None:
        return real
    state = shadow.played.end.state
    running = len(state.running)
    return f"{real}; shadow: {len(state.jobs) - running:,} wait, {running:,} run"


def refuse_dumps(dumps: Iterable[str]) -> None:
    """Refuse files beside a Slurm that is asked itself."""
    if named := list(dumps):
        raise TapeError(f"--slurm asks Slurm itself: leave {named[0]} out, or --slurm")

"""Parse limits of QOSs and associations, as sacctmgr names and writes them."""

from collections.abc import Iterator, Mapping

from headway.errors import ExperimentError
from headway.jobs.slurm.output.cells import absent, size, span
from headway.jobs.slurm.output.records import Bound, Unread

ACCRUALS = ("GrpJobsAccrue", "MaxJobsAccruePA", "MaxJobsAccruePU", "MaxJobsAccrue")
"""Of these the first that is defined, in this order of QOSs, says whose age counts."""
COUNTS = (
    *("GrpJobs", "GrpSubmit", "MaxJobs", "MaxSubmit", "MaxJobsPU", "MaxSubmitPU", "MaxJobsPA", "MaxSubmitPA"),
    *ACCRUALS,
)
MINIMUM, PER_NODE = "MinTRES", "MaxTRESPerNode"
TRES = ("GrpTRES", "MaxTRES", "MaxTRESPU", "MaxTRESPA", PER_NODE, MINIMUM)
MINUTES = ("GrpTRESMins", "GrpTRESRunMins", "MaxTRESMins", "MaxTRESRunMinsPU", "MaxTRESRunMinsPA")
WALLS = ("MaxWall", "GrpWall")
UNFOLLOWED = {
    "MinPrioThres": "every job is planned for",
    "UsageThres": "no job is held for its usage",
}
"""Limits that are known and not followed, and what happens instead."""
KNOWN = (*COUNTS, *TRES, *MINUTES, *WALLS)
_LONG = {
    "GrpSubmitJobs": "GrpSubmit",
    "MaxSubmitJobs": "MaxSubmit",
    "MaxJobsPerUser": "MaxJobsPU",
    "MaxJobsPerAccount": "MaxJobsPA",
    "MaxSubmitJobsPU": "MaxSubmitPU",
    "MaxSubmitJobsPerUser": "MaxSubmitPU",
    "MaxSubmitJobsPA": "MaxSubmitPA",
    "MaxSubmitJobsPerAccount": "MaxSubmitPA",
    "MaxTRESPJ": "MaxTRES",
    "MaxTRESPerJob": "MaxTRES",
    "MaxTRESPerUser": "MaxTRESPU",
    "MaxTRESPerAccount": "MaxTRESPA",
    "MaxTRESPN": "MaxTRESPerNode",
    "MaxTRESMinsPJ": "MaxTRESMins",
    "MaxTRESMinsPerJob": "MaxTRESMins",
    "MaxTRESRunMinsPerUser": "MaxTRESRunMinsPU",
    "MaxTRESRunMinsPerAccount": "MaxTRESRunMinsPA",
    "MaxWallDurationPerJob": "MaxWall",
    "MaxJobsAccruePerUser": "MaxJobsAccruePU",
    "MaxJobsAccruePerAccount": "MaxJobsAccruePA",
    "MinTRESPerJob": "MinTRES",
    "MinTRESPJ": "MinTRES",
    "MinPrioThreshold": "MinPrioThres",
    "UsageThreshold": "UsageThres",
}
"""Other names of the same limits."""
_OLD = {
    f"{prefix}{word}{suffix}".lower(): (f"{prefix}TRES{kind}{suffix}", tres)
    for prefix, suffix in (("Grp", ""), ("Max", ""), ("Max", "PU"), ("Max", "PerUser"))
    for word, tres in (("CPUs", "cpu"), ("Nodes", "node"), ("Mem", "mem"), ("CPUMins", "cpu"), ("CPURunMins", "cpu"))
    for kind in ("Mins" if word == "CPUMins" else "RunMins" if word == "CPURunMins" else "",)
}
"""``MaxCPUs`` is ``MaxTRES`` of ``cpu``."""
SPELT = {name.lower(): name for name in (*KNOWN, *UNFOLLOWED)} | {other.lower(): name for other, name in _LONG.items()}
"""The name of a limit by every way of writing it, in lower case."""
_MOST = 10**15
_GPUS = ("gpu", "gpus", "gres/gpus")


def canonical(name: str) -> str | None:
    """Return the name of a limit as it is used here, whatever version wrote it; None for what is no limit."""
    key = name.lower()
    return SPELT.get(key) or (_OLD[key][0] if key in _OLD else None)


def resource_of(name: str) -> str:
    """Return the resource that an old name of a limit is about, ``cpu`` of ``MaxCPUs``; empty for other names."""
    return _OLD[name.lower()][1] if name.lower() in _OLD else ""


def of_row(
    cells: Mapping[str, str], place: str, where: tuple[tuple[str, str], ...]
) -> tuple[list[Bound], list[Unread]]:
    """Return the limits of a row, and those that are not followed."""
    bounds: list[Bound] = []
    unread: list[Unread] = []
    for heading, cell in cells.items():
        text = cell.strip()
        if absent(text) or text == "-1":
            continue
        name = canonical(heading)
        if name in UNFOLLOWED:
            if name != "MinPrioThres" or text != "0":
                unread.append(Unread(f"{name}={text}", where, UNFOLLOWED[name]))
        elif name is not None:
            tres = _OLD[heading][1] if heading in _OLD else ""
            for bound in parsed(name, f"{tres}={text}" if tres else text, place):
                if understood(bound.tres, name):
                    bounds.append(bound)
                else:
                    unread.append(Unread(f"{name}={bound.tres}={bound.most}", where, f"{bound.tres} is not counted"))
        elif heading.startswith(("max", "grp", "min")):
            unread.append(Unread(f"{heading}={text}", where, "a limit that is not known"))
    return bounds, unread


def understood(tres: str, name: str = "") -> bool:
    """Return whether a trackable resource is counted here: GPUs, CPUs, memory, nodes; the time of GPUs and CPUs."""
    plain = ("", "cpu", "gres/gpu") if name in MINUTES else ("", "cpu", "gres/gpu", "mem", "node")
    if name == PER_NODE and tres == "node":
        return False
    return tres in plain or tres.startswith("gres/gpu:")


def uncounted(tres: str) -> str:
    """Return what to say of a resource that is not counted; GPUs are often written without ``gres/``."""
    kind, _, gpu_type = tres.partition(":")
    meant = f"gres/gpu:{gpu_type}" if gpu_type else "gres/gpu"
    return f"is not counted here: {f'did you mean {meant}?' if kind in _GPUS else 'nothing would change'}"


def parsed(name: str, text: str, place: str) -> Iterator[Bound]:
    """Yield what a cell of a limit says; -1 lifts it."""
    if name in WALLS:
        length = span(text)
        if length is None:
            raise ExperimentError(f"{place}: {name} {text!r} is not a time like 1-00:00:00")
        yield Bound(name, "", length)
    elif name in COUNTS:
        yield Bound(name, "", _number(text, name, place))
    else:
        for part in text.split(","):
            tres, equals, amount = part.strip().rpartition("=")
            if not equals:
                raise ExperimentError(f"{place}: {name} {text!r} is not a list like gres/gpu=8,cpu=400")
            tres = tres.strip().lower() if not tres.lower().startswith("gres/gpu:") else f"gres/gpu:{tres[9:]}"
            if amount.strip() == "-1":
                continue
            in_bytes = tres == "mem" and name in TRES
            yield Bound(name, tres, (_size if in_bytes else _number)(amount, name, place))


def _number(text: str, name: str, place: str) -> int:
    plain = text.strip()
    if not plain.isdecimal() or int(plain) > _MOST:
        raise ExperimentError(f"{place}: {name} {plain!r} {wrong_number(plain)}")
    return int(plain)


def wrong_number(text: str) -> str:
    """Return what is wrong with a text that is to be a whole number from 0 on."""
    negative = text.startswith("-") and text[1:].isdecimal()
    return "must not be negative" if negative else "is not a whole number"


def _size(text: str, name: str, place: str) -> int:
    """Parse memory; as Slurm does, without a letter in MiB."""
    plain = text.strip()
    found = size(plain)
    if found is None:
        why = (
            wrong_number(plain) if plain.startswith("-") else "is no amount of memory: write it like 100M, 100G or 100T"
        )
        raise ExperimentError(f"{place}: {name} {plain!r} {why}")
    return found

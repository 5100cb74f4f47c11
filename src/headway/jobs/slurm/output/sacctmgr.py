"""Parse what ``sacctmgr show qos|assoc|user|transactions|events`` and ``sshare`` print with ``-P``, in any columns.

A table is known by its headings. Accounts stand in a tree: ``show assoc tree`` and ``sshare`` indent them, otherwise a
column ParentName tells; without either all accounts are taken to stand side by side.
"""

import re
from collections.abc import Iterator

from headway.errors import ExperimentError
from headway.jobs.slurm.output import bounds as limits
from headway.jobs.slurm.output.cells import absent, span
from headway.jobs.slurm.output.printed import Row, headings, rows
from headway.jobs.slurm.output.records import Association, Away, Change, Qos, Share, SiteRules
from headway.jobs.slurm.output.reservations import dated, instant
from headway.jobs.traces.clusters.records import Described

_ROOT = "root"
_COLUMNS = {"min_prio_thresh": "MinPrioThres", "max_wall_pj": "MaxWall", "max_wall_duration_per_job": "MaxWall"}
_VALUE = re.compile(r"(?:^|, )(\w+) ?= ?(?:if \([^,()]*, )?(NULL|-?\d+(?:\.\d+)?|'[^']*')")
"""What a column of the database was set to: ``max_jobs=NULL``, ``grp_tres = if (id_assoc=4, '1001=16', grp_tres)``."""
_HARMLESS = (
    *("mod_time", "creation_time", "deleted", "description", "organization", "comment", "lft", "rgt", "lineage"),
    *("is_def", "def_qos_id", "delta_qos", "admin_level", "default_acct", "default_wckey", "default_cluster"),
)
"""Columns of the database that change no limit."""
_ENDINGS = (("_jobs", ""), ("_per_user", "_pu"), ("_pj", ""))


def describes(text: str) -> bool:
    """Return whether a text is one of these tables."""
    return _kind(headings(text)) is not None


def cluster(text: str, where: str) -> Described:
    """Return the rules of a table."""
    kind = _kind(headings(text))
    assert kind is not None
    if kind == "users":
        return Described(notes=(f"{where}: tells default accounts alone: sacctmgr show user -P -s tells more",))
    found = tuple(_READERS[kind](rows(text, where)))
    if not found and kind not in ("changes", "aways"):
        raise ExperimentError(f"{where}: has headings and no row")
    empty = frozenset() if found else frozenset({kind})
    return Described(rules=SiteRules(**{kind: found}, empty=empty))  # type: ignore[arg-type]


def _kind(names: tuple[str, ...]) -> str | None:
    """Return which field of the rules a table with these headings gives."""
    known = set(names)
    if {"time", "action", "info"} <= known:
        return "changes"
    if "timestart" in known and "nodename" in known:
        return "aways"
    if "rawusage" in known and "account" in known:
        return "shares"
    if "account" in known and (
        known & {"fairshare", "qos", "defaultqos", "parentname"} or any(map(limits.canonical, names))
    ):
        return "associations"
    if "name" in known and (
        known & {"preempt", "preemptmode", "gracetime", "usagefactor", "limitfactor"}
        or any(map(limits.canonical, names))
    ):
        return "qos"
    if "user" in known and "defaultaccount" in known:
        return "users"
    return None


def _qos(table: Iterator[Row]) -> Iterator[Qos]:
    seen: set[str] = set()
    for row in table:
        name = row.text("name")
        if not name or name in seen:
            raise ExperimentError(f"{row.place}: {'QOS has no name' if not name else f'QOS {name} is described twice'}")
        seen.add(name)
        bounds, unread = limits.of_row(row.cells, row.place, (("qos", name),))
        exempt = row.text("preemptexempttime")
        yield Qos(
            name,
            _whole(row, "priority"),
            _names(row.text("preempt")),
            row.text("preemptmode").lower() or "cluster",
            _span(row, "gracetime"),
            None if absent(exempt) else _span(row, "preemptexempttime"),
            frozenset(_names(row.text("flags").lower())),
            _factor(row),
            tuple(bounds),
            tuple(unread),
            _float(row, "limitfactor") or None if not absent(row.text("limitfactor")) else None,
        )


def _associations(table: Iterator[Row]) -> Iterator[Association]:
    above: list[str] = []
    for row in table:
        account, user = row.text("account"), row.text("user")
        if not account:
            raise ExperimentError(f"{row.place}: names no account")
        parent = row.text("parentname") or None
        if not user:
            depth = len(row.cells["account"]) - len(row.cells["account"].lstrip())
            above = [*above[:depth], account] if depth <= len(above) else [*above, account]
            if depth and len(above) > 1:
                parent = above[-2]
        where = [("account" if not user else "tenant", account), *([("user", user)] if user else [])]
        if row.text("partition"):
            where.append(("partition", row.text("partition")))
        bounds, unread = limits.of_row(row.cells, row.place, tuple(where))
        yield Association(
            account,
            user,
            row.text("partition"),
            row.text("cluster"),
            "" if account == _ROOT else parent,
            _shares(row, "fairshare"),
            _names(row.text("qos")),
            row.text("defaultqos"),
            tuple(bounds),
            tuple(unread),
            row.text("id"),
        )


def _usage(table: Iterator[Row]) -> Iterator[Share]:
    above: list[str] = []
    for row in table:
        cell = row.cells["account"]
        account, user = cell.strip(), row.text("user")
        if not user:
            depth = len(cell) - len(cell.lstrip())
            above = [*above[:depth], account]
        raw = row.text("grptresraw")
        minutes = limits.parsed("GrpTRESMins", raw, row.place) if not absent(raw) else ()
        parent = "" if account == _ROOT else above[-2] if not user and len(above) > 1 else None
        used = tuple((each.tres, each.most) for each in minutes if limits.understood(each.tres))
        yield Share(account, user, parent, _shares(row, "rawshares"), _float(row, "rawusage"), used)


def _changes(table: Iterator[Row]) -> Iterator[Change]:
    """Yield what was modified; the rest of the transactions are people and clusters that come and go."""
    for row in table:
        action, info = row.text("action").lower(), row.text("info")
        if not action.startswith("modify ") or action.endswith(("clusters", "tres")):
            continue
        keys = re.findall(r"(?:^|, )(\w+) ?= ?", re.sub(r"'[^']*'", "", info))
        names = tuple(dict.fromkeys(_set(key) or key for key in keys if key not in _HARMLESS))
        if not keys and info:
            names = (f"{info!r} (not understood)",)
        if names:
            values = tuple((name, text) for key, text in _VALUE.findall(info) if (name := _set(key)))
            yield Change(_instant(row, "time") or 0, _whose(action, row.text("where")), names, values)


def _set(column: str) -> str | None:
    """Return what a column of the database is called elsewhere: ``max_tres_pu`` is ``MaxTRESPU``."""
    if column in ("priority", "shares", "preempt", "usage_factor", "flags", "preempt_mode", "qos"):
        return column.replace("_", " ")
    name = _COLUMNS.get(column)
    for old, new in _ENDINGS:
        name = name or limits.canonical(column.replace(old, new).replace("_", ""))
    return name or limits.canonical(column.replace("_", ""))


def _whose(action: str, where: str) -> str:
    if numbers := re.findall(r"id_assoc=(\d+)", where):
        return f"association {', '.join(numbers)}"
    names = re.findall(r"(name|acct|user)\s*=\s*'([^']*)'", where)
    shown = {"name": "QOS" if "qos" in action else "account", "acct": "account", "user": "user"}
    told = [f"{shown[key]} {name}" for key, name in names if name]
    return " ".join(dict.fromkeys(told)) or where or action


def _aways(table: Iterator[Row]) -> Iterator[Away]:
    for row in table:
        node, start = row.text("nodename"), _instant(row, "timestart")
        if node and start is not None:
            end = _instant(row, "timeend")
            if end is not None and end < start:
                raise ExperimentError(
                    f"{row.place}: node {node} is back at {dated(end)}, before it went, {dated(start)}"
                )
            if end != start:
                yield Away(node, start, end, row.text("state"), row.text("reason"))


_READERS = {
    "qos": _qos,
    "associations": _associations,
    "shares": _usage,
    "changes": _changes,
    "aways": _aways,
}


def _instant(row: Row, heading: str) -> int | None:
    if absent(row.text(heading)):
        return None
    at = instant(row.text(heading))
    if at is None:
        raise ExperimentError(f"{row.place}: {heading} {row.text(heading)!r} is not a time like 2026-03-01T12:00:00")
    return at


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if not absent(name))


def _whole(row: Row, heading: str) -> int:
    text = row.text(heading) or "0"
    if not text.isdecimal():
        raise ExperimentError(f"{row.place}: {heading} {text!r} is not a whole number")
    return int(text)


def _span(row: Row, heading: str) -> int:
    length = span(row.text(heading))
    if length is None:
        raise ExperimentError(f"{row.place}: {heading} {row.text(heading)!r} is not a time like 00:05:00")
    return length


def _float(row: Row, heading: str) -> float:
    text = row.text(heading) or "0"
    try:
        return float(text)
    except ValueError:
        raise ExperimentError(f"{row.place}: {heading} {text!r} is not a number") from None


def _factor(row: Row) -> float:
    return _float(row, "usagefactor") if not absent(row.text("usagefactor")) else 1.0


def _shares(row: Row, heading: str) -> int | None:
    text = row.text(heading) or "1"
    return None if text.lower() == "parent" else _whole(row, heading) if row.text(heading) else 1

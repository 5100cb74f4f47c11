"""Make the tables and lines of a search for better rules: what was tried, what held on a later window, what to type."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from headway.jobs.show.terminal.backtest import said, signed
from headway.show.terminal import framed
from headway.units import counted

Row = Mapping[str, Any]
MOST_ROWS = 20
"""So many combinations are shown, the best first; --json has all."""


def shown(record: Row) -> list[str | Table]:
    """Return the search, the test and what follows, in the order in which they are read."""
    present, *others = record["combinations"]
    others = sorted(others, key=_by_aim)
    title = f"searched on {_window(record['searched'])}"
    parts: list[str | Table] = [_table(title, [present, *others[:MOST_ROWS]])]
    if len(others) > MOST_ROWS:
        parts.append(f"(the best {MOST_ROWS} of {len(others):,} combinations)")
    if record["test"]:
        parts += ["", _table(f"tested on {_window(record['tested'])}", record["test"])]
    parts += ["", *_unplayed(record), _conclusion(record)]
    if judged := record.get("verdict"):
        parts.append(f"verdict on the simulation under the present rules: {judged['text']}")
    if record["commands"]:
        parts += ["", "to set it (nothing was executed):", *(f"  {line}" for line in record["commands"])]
    return parts


def notes(record: Row) -> list[str]:
    """Return the rule by which one is better, and what else to know."""
    level = f"{100 * record['confidence']:.4g} %"
    told = [
        f"note: better means: the {record['lower']} is lower over the same jobs, the {level} interval of the change "
        "(paired by job, in batches) does not reach zero, no job is refused that ran, at most 1 % no longer complete"
        + "".join(f", the {each['aim']} rises by at most {100 * each['tolerance']:.4g} %" for each in record["keep"])
        + "; on both windows"
    ]
    if any(row["by_seconds"] for row in (*record["combinations"], *record["test"])):
        told.append(
            f"note: by time: the {record['lower']} falls to 0, or nearly so, where a relative change has no interval; "
            "it is judged by the interval of the change in time"
        )
    told += [f"note: {line}" for line in (*record["idle_knobs"], *record["notes"])]
    if any(line.startswith("scontrol") for line in record["commands"]):
        told.append("note: what scontrol sets is forgotten when slurmctld starts anew: write it into slurm.conf too")
    return [*told, *(f"note: {line}" for line in record.get("caveats") or ())]


def _by_aim(row: Row) -> tuple[bool, float]:
    value = row["aims"][0]["mean_s"] if row["aims"] else None
    return value is None, value or 0.0


def _window(window: Row) -> str:
    start, end = window["from"] or "the beginning", window["to"] or "the end"
    return f"{counted(window['jobs'], 'job')} from {start} to {end}"


def _table(title: str, rows: Sequence[Row]) -> Table:
    keys = list(dict.fromkeys(key for row in rows for key in row["rules"]))
    aims = [each["aim"] for each in rows[0]["aims"]]
    table = framed([key.replace('"', "") for key in keys] or ["rules"], [*aims, ""], title)
    for row in rows:
        cells = [str(row["rules"][key]) or "no limit" for key in keys] if row["rules"] else ["present"]
        cells += [""] * (max(1, len(keys)) - len(cells))
        values = [_cell(each) for each in row["aims"]] or ["–"] * len(aims)
        table.add_row(*cells, *values, _judged(row))
    return table


def _cell(aim: Row) -> str:
    if aim["mean_s"] is None:
        return "–"
    text = said(aim["mean_s"])
    if aim["change"] is None:
        return text
    text += f" ({100 * aim['change']:+.1f} %"
    if (interval := aim["change_interval"]) is not None:
        text += f" [{100 * interval[0]:+.1f}, {100 * interval[1]:+.1f}]"
    elif (interval := aim["change_interval_s"]) is not None:
        text += f"; {signed(aim['change_s'])} [{signed(interval[0])}, {signed(interval[1])}]"
    return f"{text})"


def _judged(row: Row) -> str:
    if row["error"]:
        return "could not be played"
    if row["missed"]:
        return f"not kept: {', '.join(row['missed'])}"
    if row["too_few_jobs"]:
        return "too few jobs to tell"
    judged = "better" if row["better"] else "" if not row["rules"] else "not better"
    return f"{judged}, by time" if row["by_seconds"] else judged


def _setting(row: Row) -> str:
    return ", ".join(f"{key}={value}".replace('"', "") for key, value in row["rules"].items())


def _unplayed(record: Row) -> list[str]:
    """Say why combinations could not be played, each whole."""
    rows = [row for row in record["combinations"] if row["error"]]
    lines = [f"{_setting(row)} could not be played: {row['error']}" for row in rows[:MOST_ROWS]]
    return [*lines, *([f"(and {len(rows) - MOST_ROWS:,} more: --json has all)"] if len(rows) > MOST_ROWS else [])]


def _conclusion(record: Row) -> str:
    count = counted(len(record["combinations"]) - 1, "combination")
    played = [row for row in record["combinations"][1:] if not row["error"]]
    if not played and len(record["combinations"]) > 1:
        return f"None of {count} could be played: nothing was compared."
    unsure = [row for row in record["combinations"] if row["too_few_jobs"] and not row["missed"]]
    if not record["test"] and unsure:
        of = "them" if len(unsure) == len(record["combinations"]) - 1 else f"{len(unsure):,} of {count}"
        return (
            f"Too few jobs to tell: for {of} there is no interval of the change, so few jobs count for the "
            f"{record['lower']}. Give more jobs (there are {record['searched']['jobs']:,}), or another aim."
        )
    if not record["test"]:
        some = count if len(played) == len(record["combinations"]) - 1 else f"{count}, {len(played):,} of them played,"
        none = f"None of {some} is better than the present rules"
        idle = record["combinations"][0]["aims"][0]["mean_s"] == 0
        return f"{none}: the {record['lower']} is 0 under them." if idle else f"{none}."
    setting = _setting(record["test"][1])
    if not record["found"] and record["test"][1]["too_few_jobs"]:
        return (
            f"Too few jobs to tell: {setting} is better on the first window, and the {record['lower']} was measured on "
            f"too few of {counted(record['tested']['jobs'], 'job')} of the later one."
        )
    if not record["found"]:
        return (
            f"No better rules were found: the best of {count} ({setting}) is not better than the present rules on the "
            "later window."
        )
    aim = record["test"][1]["aims"][0]
    now = ", now 0" if aim["mean_s"] == 0 else ""
    return f"Better, also on the later window: {setting} ({record['lower']} {100 * aim['change']:+.1f} %{now})."

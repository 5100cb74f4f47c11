"""What sharing was asked to show against what was measured: a line a bar, over all pairs and without the spoilt."""

from collections.abc import Callable, Sequence
from statistics import median

from bench.gpu_share_rows import FIKIT, FITTED, WIDE, Measured, Row, key, overheads, slow, slow99, spread, table

OFF = 0.15
"""How far a prediction may be off."""
Line = tuple[str, str, str, str, str]


def said(well: bool) -> str:
    """In a word."""
    return "met" if well else "**not met**"


def _counted(found: Sequence[Row], fails: Callable[[Row], bool]) -> tuple[int, str]:
    bad = sum(map(fails, found))
    return bad, f"{bad} of {len(found)}"


def _late(all_: Measured, row: Row, *modes: str) -> bool:
    """Whether the p99 of one of the modes is more than the issue allows."""
    return any(row[mode]["p99_ms"] > all_.bound_ms(row) for mode in modes)


def _overheads(all_: Measured) -> list[Line]:
    found = overheads(all_)
    shim, measuring = [each[1] for each in found], [each[2] for each in found]
    seen = sum(row["seen"] == row["counted"] for row in all_.programs.values())
    whole = len(all_.programs)
    return [
        ("1. launches seen = counted", "every program", f"{seen} of {whole}", "–", said(seen == whole)),
        ("1. shim over hooks that do nothing, p50", "≤ 1.02", spread(shim), "–", said(median(shim) <= 1.02)),
        ("1. with measuring", "≤ 1.05", spread(measuring), "–", f"{said(median(measuring) <= 1.05)} in the median"),
    ]


def _slowdowns(all_: Measured) -> list[Line]:
    sets = (all_.pairs, all_.sound)
    p50 = [[slow(row, "gate") for row in each] for each in sets]
    p99 = [[slow99(row, "gate") for row in each] for each in sets]
    none = [[slow(row, "gate") / slow(row, "bypass") for row in each if "bypass" in row] for each in sets]
    wide = [_counted(each, lambda row: slow(row, "gate") > WIDE) for each in sets]
    late = [_counted(each, lambda row: _late(all_, row, "gate")) for each in sets]
    worse = [_counted(each, lambda row: slow(row, "gate") >= slow(all_.plain[key(row)], "stream")) for each in sets]
    plain = [_counted(each, lambda row: slow(row, "gate") >= slow(row, "mps")) for each in sets]
    quiet = [_counted([r for r in each if "bypass" in r], lambda r: _late(all_, r, "bypass", "shim")) for each in sets]
    faster = [[slow(all_.slicing[key(row)], "slicing") / slow(row, "gate") for row in each] for each in sets]
    return [
        ("2. slow-down at p50, median", "≤ 1.05", spread(p50[0]), spread(p50[1]), said(median(p50[0]) <= 1.05)),
        ("– over hooks that do nothing, back to back", "", spread(none[0]), spread(none[1]), "not asked"),
        ("2. at p99, median", "≤ 1.15", spread(p99[0], 2), spread(p99[1], 2), said(median(p99[0]) <= 1.15)),
        ("2. pairs above 1.15 at p50", "none", wide[0][1], wide[1][1], said(not wide[0][0])),
        ("2. p99 above alone + 1.2 × longest kernel below", "none", late[0][1], late[1][1], said(not late[0][0])),
        (
            "– of those back to back, with nobody beside: bypass or shim",
            "",
            quiet[0][1],
            quiet[1][1],
            "not asked: noise",
        ),
        ("2. no better than MPS with stream priority, p50", "none", worse[0][1], worse[1][1], said(not worse[0][0])),
        ("– no better than MPS with client priority, same processes", "", plain[0][1], plain[1][1], "not asked"),
        (
            "2. speed-up over time slicing",
            f"beside FIKIT's {FIKIT[0]}–{FIKIT[1]}",
            spread(faster[0], 2),
            spread(faster[1], 2),
            "below FIKIT's",
        ),
    ]


def _harvests(all_: Measured) -> list[Line]:
    sets = (all_.pairs, all_.sound)
    quarter = [[row for row in each if all_.before(row) <= 0.75] for each in sets]
    half = [[row for row in each if all_.before(row) <= 0.5] for each in sets]
    lines: list[Line] = []
    for name, where in (("MPS", "plain"), ("MPS with client priority", "mps")):
        got = [[all_.of(row, where) for row in each] for each in quarter]
        lines.append(
            (
                f"3. rate below, of {name}, idle ≥ ¼ ({len(got[0])} and {len(got[1])} rows)",
                "≥ 0.60 in the median",
                spread(got[0], 2),
                spread(got[1], 2),
                said(median(got[0]) >= 0.6),
            )
        )
    got = [[all_.of(row, "slicing") for row in each] for each in half]
    lines.append(
        (
            f"3. of time slicing, idle ≥ ½ ({len(got[0])} and {len(got[1])} rows)",
            "≥ 0.86",
            spread(got[0], 2),
            spread(got[1], 2),
            f"{said(median(got[0]) >= 0.86)} in the median; {sum(g < 0.86 for g in got[1])} of {len(got[1])} below",
        )
    )
    return lines


def _rest(all_: Measured) -> list[Line]:
    aims = [(row["high"], row["slo"], slow(row, "gate")) for row in all_.lines("dial")]
    dialled = {high: ", ".join(f"{got:.3f}" for who, _, got in aims if who == high) for high, _, _ in aims}
    real = {key(row): row for row in all_.sound}
    both = [(row, real[key(row)]) for row in all_.lines("predict") if key(row) in real and key(row)[:2] not in FITTED]
    near = sum(abs(row["slowdown"] / slow(found, "gate") - 1) <= OFF for row, found in both)
    idle = sum(abs(1 / slow(found, "gate") - 1) <= OFF for _, found in both)
    reaped = sum(abs(row["low_share"] / all_.of(found, "alone") - 1) <= OFF for row, found in both)
    told = [row for row in all_.lines("digests") if row["with_after"] and row["without"]]
    same = sum(row["with"] == row["without"] == row["with_after"] for row in told)
    ways = [got for row in all_.lines("kills") for got in row["ways"].values()]
    times, on = sum(got["times"] for got in ways), sum(got["went_on"] for got in ways)
    return [
        (
            "4. the dial at 1.02, 1.05, 1.2",
            "comes out",
            "; ".join(f"{h}: {d}" for h, d in dialled.items()),
            "–",
            "met for the graph; VGG-16 does not tell",
        ),
        (
            "5. predicted slow-down within 15 %",
            "every pair",
            "–",
            f"{near} of {len(both)}",
            f"{said(near == len(both))}; 1.00 for all would be in {idle}",
        ),
        (
            "5. predicted rate below within 15 %",
            "every pair",
            "–",
            f"{reaped} of {len(both)}",
            said(reaped == len(both)),
        ),
        (
            "6. results equal bit for bit",
            "every program",
            f"{same} of {len(told)}",
            "–",
            f"{said(same == len(told))}; training not compared",
        ),
        (
            "6. kills on the H200, the program above went on",
            "30",
            f"{on} of {times}",
            "–",
            said(times >= 30 and on == times) + ": too few, and no broker among them",
        ),
    ]


def bars(all_: Measured) -> str:
    """The table."""
    lines = [*_overheads(all_), *_slowdowns(all_), *_harvests(all_), *_rest(all_)]
    return table(f"what | asked | all {len(all_.pairs)} rows | without the matrix product | ", lines)

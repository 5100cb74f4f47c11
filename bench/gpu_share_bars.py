"""What sharing was asked to show against what was measured: a line a bar."""

from collections.abc import Callable, Sequence
from statistics import median

from bench.gpu_share_merge import Row, error, key, slow
from bench.gpu_share_rows import FIKIT, WIDE, Measured, overheads, slow99, spread, table

OFF = 0.15
"""How far a prediction may be off."""
LEAST = 0.86
"""Of default sharing: FIKIT's."""
Line = tuple[str, str, str, str]


def said(well: bool) -> str:
    """In a word."""
    return "met" if well else "**not met**"


def _counted(found: Sequence[Row], fails: Callable[[Row], bool]) -> tuple[int, str]:
    bad = sum(map(fails, found))
    return bad, f"{bad} of {len(found)}"


def close(one: float, other: float) -> bool:
    """Whether a prediction is as near as it has to be."""
    return abs(one / other - 1) <= OFF


def _overheads(all_: Measured) -> list[Line]:
    found = overheads(all_)
    shim, measuring = [each[1] for each in found], [each[2] for each in found]
    seen = sum(row["seen"] == row["counted"] for row in all_.programs.values())
    whole = len(all_.programs)
    launch = [row["ns_a_launch"] for row, *_ in found if "ns_a_launch" in row]
    return [
        ("1. launches seen = counted by CUPTI", "every program", f"{seen} of {whole}", said(seen == whole)),
        ("1. shim over hooks that do nothing, p50", "≤ 1.02", spread(shim), f"{said(median(shim) <= 1.02)}, median"),
        ("1. with measuring", "≤ 1.05", spread(measuring), f"{said(median(measuring) <= 1.05)}, median"),
        ("1. ns a launch, as the hooks take it themselves", "told", spread(launch, 0), "told"),
    ]


def _slowdowns(all_: Measured) -> list[Line]:
    pairs = all_.pairs
    p50, p99 = [slow(row, "gate") for row in pairs], [slow99(row, "gate") for row in pairs]
    plain = [slow(row, "mps") for row in pairs]
    wide, wide_told = _counted(pairs, lambda row: slow(row, "gate") > WIDE)
    late, late_told = _counted(pairs, lambda row: row["gate"]["p99_ms"] > all_.bound_ms(row))
    worse, worse_told = _counted(pairs, lambda row: slow(row, "gate") >= slow(row, "stream"))
    noise_told = _counted(pairs, _surely_worse)[1]
    # Beside what does not disturb it in the first place nothing can be better.
    hurt = [row for row in pairs if slow(row, "stream") > WIDE]
    lost_told = _counted(hurt, lambda row: slow(row, "gate") >= slow(row, "stream"))[1]
    faster = [all_.faster(row) for row in pairs]
    return [
        ("2. slow-down at p50, median", "≤ 1.05", spread(p50), said(median(p50) <= 1.05)),
        ("– MPS without headway, in the same rounds", "", spread(plain, 2), "not asked"),
        ("2. at p99, median", "≤ 1.15", spread(p99, 2), said(median(p99) <= 1.15)),
        ("2. pairs above 1.15 at p50", "none", wide_told, said(not wide)),
        *_wide_once(all_),
        ("2. p99 above alone + 1.2 × longest kernel below", "none", late_told, said(not late)),
        *_surely_late(all_),
        ("– of the program alone, hooks that do nothing: the noise", "", _idle_late(all_), ""),
        ("2. no better than MPS with stream priority, p50", "none", worse_told, said(not worse)),
        ("– of those by more than the errors of both (±)", "", noise_told, ""),
        ("– of the program alone, hooks that do nothing: the noise", "", _idle_worse(all_), ""),
        ("– of those where that one is above 1.15", "", lost_told, ""),
        (
            "2. speed-up over time slicing",
            f"beside FIKIT's {FIKIT[0]}–{FIKIT[1]}",
            spread(faster, 2),
            "below FIKIT's",
        ),
    ]


def _wide_once(all_: Measured) -> list[Line]:
    """How many are above it in a single pass, and of those that were measured for a prediction."""
    fresh = [found for _, found in all_.predicted()]
    each = {"– in a single pass": all_.passes if len(all_.runs) > 1 else [], "– of the predicted pairs": fresh}
    return [
        (what, "", _counted(rows, lambda row: slow(row, "gate") > WIDE)[1], "") for what, rows in each.items() if rows
    ]


def _idle_late(all_: Measured) -> str:
    """How often the bound is broken by two stretches alone against each other."""
    return _counted(all_.pairs, lambda row: row["bypass"]["p99_ms"] > all_.bound_ms(row))[1]


def _idle_worse(all_: Measured) -> str:
    """How often nothing beside it is no better than MPS with stream priority."""
    return _counted(all_.pairs, lambda row: slow(row, "bypass") >= slow(row, "stream"))[1]


def _surely_worse(row: Row) -> bool:
    return slow(row, "gate") - slow(row, "stream") > error(row, "gate") + error(row, "stream")


def _surely_late(all_: Measured) -> list[Line]:
    """Where the files of the run have it: a p99 hangs on a few requests."""
    if not all(row["gate"].get("p99_over_ms") for row in all_.pairs):
        return []
    return [
        ("– of those surely (rounds drawn again and again, 95 %)", "", _counted(all_.pairs, all_.surely_late)[1], "")
    ]


def _harvests(all_: Measured) -> list[Line]:
    quarter = [all_.of(row, "mps") for row in all_.pairs if all_.before(row) <= 0.75]
    half = [all_.of(row, "slicing") for row in all_.pairs if all_.before(row) <= 0.5]
    below = sum(got < LEAST for got in half)
    own = [all_.of_alone_sliced(row) for row in all_.pairs if all_.before(row) <= 0.5]
    fair = [each for each in own if each is not None]
    return [
        (
            f"3. rate below, of MPS, idle ≥ ¼ ({len(quarter)} rows)",
            "≥ 0.60 in the median",
            spread(quarter, 2),
            said(median(quarter) >= 0.6),
        ),
        (
            f"3. of time slicing, idle ≥ ½ ({len(half)} rows)",
            f"≥ {LEAST}",
            spread(half, 2),
            f"{said(median(half) >= LEAST)} in the median; {below} of {len(half)} below",
        ),
        *(
            [
                (
                    "– each as a share of its rate alone in the same session",
                    "",
                    spread(fair, 2),
                    f"{sum(got < LEAST for got in fair)} of {len(fair)} below {LEAST}",
                )
            ]
            if len(fair) == len(half)
            else []
        ),
    ]


def _rest(all_: Measured) -> list[Line]:
    aims = all_.lines("dial")
    dialled = {
        name: ", ".join(f"{slow(row, 'gate'):.3f} ±{error(row, 'gate'):.3f}" for row in aims if row["high"] == name)
        for name in dict.fromkeys(row["high"] for row in aims)
    }
    kept = all(slow(row, "gate") - error(row, "gate") <= row["slo"] for row in aims)
    both = all_.predicted()
    near = sum(close(row["slowdown"], slow(found, "gate")) for row, found in both)
    reaped = sum(close(row["low_share"], all_.of(found, "alone")) for row, found in both)
    told = [row for row in all_.lines("digests") if row["with_after"] and row["without_after"]]
    same = sum(row["with_after"] == (row["without"] or row["without_after"]) for row in told)
    ways = [got for row in all_.lines("kills") for got in row["ways"].values()]
    times, on = sum(got["times"] for got in ways), sum(got["went_on"] for got in ways)
    left = [name for row in all_.lines("kills") for name in (*row["left_in_shm"], *row["mps_left"], *row["hung"])]
    return [
        (
            "4. the dial at 1.02, 1.05, 1.2",
            "comes out",
            "; ".join(f"{h}: {d}" for h, d in dialled.items()),
            f"{said(kept)}: none above its aim by more than ±",
        ),
        ("5. predicted slow-down within 15 %", "every pair", f"{near} of {len(both)}", said(near == len(both))),
        ("5. predicted rate below within 15 %", "every pair", f"{reaped} of {len(both)}", said(reaped == len(both))),
        *_predicted_again(all_),
        ("6. results equal bit for bit", "every program", f"{same} of {len(told)}", said(same == len(told))),
        (
            "6. deaths on the H200, the program above (after stop --kill: the next one) went on",
            "30",
            f"{on} of {times}; {len(left)} left behind",
            said(times >= 30 and on == times and not left),
        ),
    ]


def _predicted_again(all_: Measured) -> list[Line]:
    """What rates can be told from what the program above takes alone there; and how far two passes agree."""
    came = {key(found): all_.of(found, "alone") for _, found in all_.predicted()}
    told = [close(row["low_share"], came[key(row)]) for row in all_.lines("alone") if key(row) in came]
    both = all_.runs if len(all_.runs) == 2 else (0, 0)
    twice = [
        close(all_.of(row, "alone"), all_.of(again, "alone"))
        for row in all_.passes
        if row.get("run") == both[0] and "," not in row["low"] and (again := all_.again(row, both[1]))
    ]
    lines = [
        ("– told what the one above takes alone there (--alone)", told),
        ("– the first pass as a prediction of the second", twice),
    ]
    return [(what, "", f"{sum(found)} of {len(found)}", "") for what, found in lines if found]


def bars(all_: Measured) -> str:
    """The table."""
    lines = [*_overheads(all_), *_slowdowns(all_), *_harvests(all_), *_rest(all_)]
    return table(f"what | asked | measured, {len(all_.pairs)} rows | ", lines)

"""The tables of sharing on a GPU, in Markdown, from the lines that ``scripts/gpu-share`` measured.

    scripts/gpu-share report --state FOLDER
    python -m bench.gpu_share_report KEPT [PAGE]        from what gpu_share_keep kept; PAGE: put the tables there anew

Pairs that lack a baseline (slicing) are left out. A pair's ratio is within its own session: a mode's p50 over that of
the same round alone, the median over the rounds.
"""

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.gpu_share_bars import bars
from bench.gpu_share_merge import Row, error, key, slow
from bench.gpu_share_rows import Measured, named, overheads, slow99, spread, table


def coverage(all_: Measured) -> str:
    """Launches seen against launches counted."""
    return table(
        "program | launches seen | CUPTI's count | kernels run | longest kernel, ms | GPU time a request, ms",
        (
            (
                name,
                f"{r['seen']:,}",
                f"{r['counted']:,}",
                f"{r['kernels']:,}",
                f"{r['longest_ms']:.3f}",
                f"{all_.busy_ms(name):.2f}",
            )
            for name, r in all_.programs.items()
        ),
    )


def overhead(all_: Measured) -> str:
    """What hooks and measuring cost."""
    found = overheads(all_)
    body: list[Sequence[object]] = [
        (
            named(row),
            f"{row['bypass']['p50_ms']:.2f}",
            f"{shim:.3f}",
            f"{measuring:.3f}",
            f"{row['ns_a_launch']:.0f}" if own else "–",
            f"{100 * own:.1f} %" if own else "–",
        )
        for row, shim, measuring, own in found
    ]
    launch = [row["ns_a_launch"] for row, *_, own in found if own]
    last = ("median (range)", "", spread([f[1] for f in found]), spread([f[2] for f in found]), spread(launch, 0))
    own = [100 * f[3] for f in found if f[3]]
    return table(
        "pair, back to back | p50 with hooks that do nothing, ms | shim | shim and measuring | ns a launch | of p50",
        [*body, (*last, f"{spread(own, 1)} %")],
    )


def _both(row: Row, mode: str) -> str:
    return f"{slow(row, mode):.2f} / {slow99(row, mode):.2f}"


def pairs(all_: Measured) -> str:
    """Slow-downs of the programs above."""
    body = []
    for row in all_.pairs:
        slicing = all_.slicing[key(row)]
        body.append(
            (
                named(row),
                f"{row['alone']['p50_ms']:.2f} / {row['alone']['p99_ms']:.2f}",
                f"**{_both(row, 'gate')}** ±{row['gate']['error']:.2f}",
                *(f"{_both(row, mode)} ±{error(row, mode):.2f}" for mode in ("client", "mps", "stream")),
                _both(slicing, "slicing"),
                f"{all_.faster(row):.2f}",
            )
        )
    return table(
        "pair | alone, ms | headway | MPS, below at client priority 1 | MPS | MPS, stream priority | time slicing | "
        "speed-up over time slicing",
        body,
    )


def harvest(all_: Measured) -> str:
    """Rates of the programs below, and how busy the GPU is."""
    return table(
        "pair | below, requests/s | of alone | of MPS with client priority | of MPS | of time slicing | "
        "GPU busy before | after",
        (
            (
                named(row),
                " + ".join(f"{rate:.1f}" for rate in row["gate"]["low_per_s"]),
                *tuple(f"{all_.of(row, where):.2f}" for where in ("alone", "client", "mps", "slicing")),
                f"{100 * all_.before(row):.0f} %",
                f"{100 * all_.after(row):.0f} %",
            )
            for row in all_.pairs
        ),
    )


def noise(all_: Measured) -> str:
    """The same pairs, run after run."""
    runs = sorted({row["run"] for row in (*all_.earlier, *all_.passes) if "run" in row})
    body = []
    for row in all_.pairs:
        found = [all_.again(row, run) for run in runs]
        shares = [all_.of(each, "alone") for each in found if each]
        body.append(
            (
                named(row),
                *(f"{each['alone']['p50_ms']:.2f}" if each else "–" for each in found),
                *(f"{slow(each, 'gate'):.2f}" if each else "–" for each in found),
                *(f"{all_.of(each, 'alone'):.2f}" if each else "–" for each in found),
                f"{max(shares) / min(shares):.2f}" if shares else "–",
            )
        )
    names = " | ".join(map(str, runs))
    told = (f"{what}: run {names}" for what in ("alone p50, ms", "slow-down", "below of alone"))
    return table(f"pair | {' | '.join(told)} | most / least", body)


def dial(all_: Measured) -> str:
    """What came of each aim."""
    return table(
        "pair | aim | slow-down p50 / p99, ± of p50 | the dial's own | below, /s | of alone",
        (
            (
                named(row),
                f"{row['slo']:g}",
                f"{slow(row, 'gate'):.3f} / {slow99(row, 'gate'):.2f} ±{error(row, 'gate'):.3f}",
                f"{row['dial']['slowdown']:.3f}",
                f"{row['gate']['low_per_s'][0]:.1f}",
                f"{all_.of(row, 'alone'):.2f}",
            )
            for row in all_.lines("dial")
        ),
    )


PROCESSES = {"high": 0, "low": 1, "low2": 2, "low3": 3, "plain": 4, "plain2": 5, "plain3": 6}
WAYS = {
    "drain": "SIGTERM to `headway share run`, passed on: the program drains",
    "kill": "SIGKILL of the program",
    "mps": "`terminate_client` of MPS, SIGTERM if it lives on",
    "broker-kill": "SIGKILL of the broker",
    "broker-hang": "SIGSTOP of the broker for 1.6 s, then SIGCONT",
    "broker-hang-kill": "SIGSTOP of the broker, then SIGKILL",
    "stop-kill": "`headway share stop --kill`: everybody",
}


def kills(all_: Measured) -> str:
    """What was seen when programs and brokers died."""
    return table(
        "how | times | it ended | the program above went on | the broker took note | longest request above after, ms",
        (
            (WAYS[way], *(got[what] for what in ("times", "ended", "went_on", "noticed")), f"{got['worst_ms']:.1f}")
            for found in all_.lines("kills")
            for way, got in sorted(found["ways"].items(), key=lambda each: list(WAYS).index(each[0]))
        ),
    )


def _equal(pairs: Sequence[tuple[str, str]]) -> str:
    both = [(one, other) for one, other in pairs if one and other]
    return "–" if not both else "equal" if all(one == other for one, other in both) else "**differs**"


def digests(all_: Measured) -> str:
    """Results with headway against those of processes that never heard of it."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in all_.lines("digests"):
        found.setdefault((row["program"], row["process"]), []).append(row)
    return table(
        "program | process | with headway, fresh | with headway, after sharing | times",
        (
            (
                *which,
                _equal([(row["with"], row["without"]) for row in every]),
                _equal([(row["with_after"], row["without"] or row["without_after"]) for row in every]),
                len(every),
            )
            for which, every in sorted(found.items(), key=lambda each: PROCESSES.get(each[0][1], len(PROCESSES)))
        ),
    )


def predicted(all_: Measured) -> str:
    """What was said of pairs before they were measured; and what is said knowing what the one above took alone."""
    body = []
    told = {key(row): row["low_share"] for row in all_.lines("alone")}
    for row, real in all_.predicted():
        slower, got = slow(real, "gate"), all_.of(real, "alone")
        again = told.get(key(row))
        body.append(
            (
                named(real),
                f"{row['slowdown']:.3f}",
                f"{slower:.3f}",
                _off(row["slowdown"], slower),
                f"{row['low_share']:.2f}",
                f"{got:.2f}",
                _off(row["low_share"], got),
                f"{again:.2f}, {_off(again, got)}" if again else "–",
                real.get("run", ""),
            )
        )
    head = "pair | slow-down, predicted | measured | off | below of alone, predicted | measured | off"
    return table(f"{head} | with --alone | run", body)


def _off(one: float, other: float) -> str:
    return f"{100 * (one / other - 1):+.0f} %"


SECTIONS: dict[str, Callable[[Measured], str]] = {
    "Coverage": coverage,
    "What the hooks cost": overhead,
    "The pairs: slow-down of the program above, p50 / p99": pairs,
    "The programs below": harvest,
    "From run to run": noise,
    "The dial": dial,
    "Programs and brokers that die": kills,
    "Results": digests,
    "Predicted": predicted,
}


def tables(folder: Path) -> dict[str, str]:
    """Every table by its heading."""
    all_ = Measured(folder)
    if not all_.pairs:
        raise SystemExit(f"{folder}: no pair has been measured with all its baselines (pairs, slicing)")
    return {"Against what was asked": bars(all_), **{name: make(all_) for name, make in SECTIONS.items()}}


def renewed(page: str, made: dict[str, str]) -> str:
    """A page with the first table under each heading made anew."""
    for heading, text in made.items():
        before, mark, rest = page.partition(f"## {heading}\n")
        if not mark:
            raise SystemExit(f"the page has no heading {heading!r}")
        old = re.search(r"(?:^\|.*\|\n)+", rest, re.M)
        if not old:
            raise SystemExit(f"the page has no table under {heading!r}")
        page = before + mark + rest[: old.start()] + text + "\n" + rest[old.end() :]
    return page


def report(folder: Path) -> None:
    """Print them."""
    for heading, text in tables(folder).items():
        print(f"## {heading}\n\n{text}\n")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        target = Path(sys.argv[2])
        target.write_text(renewed(target.read_text(encoding="utf-8"), tables(Path(sys.argv[1]))), encoding="utf-8")
    else:
        report(Path(sys.argv[1]))

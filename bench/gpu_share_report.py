"""The tables of sharing on a GPU, in Markdown, from the lines that ``scripts/gpu-share`` measured.

    scripts/gpu-share report --state FOLDER
    python -m bench.gpu_share_report KEPT [PAGE]        from what gpu_share_keep kept; PAGE: put the tables there anew

Pairs that lack a baseline (plain, slicing) are left out.
A pair's ratio is within its own session: a mode's p50 over that of the same round alone, the median over the rounds;
time slicing, plain MPS and MPS with stream priority have one stretch each, over one stretch alone of their session.
"""

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from bench.gpu_share_bars import bars
from bench.gpu_share_rows import (
    FITTED,
    WIDE,
    Measured,
    Row,
    key,
    named,
    overheads,
    slow,
    slow99,
    spread,
    table,
)


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
            f"{row['ns_a_launch']:.0f}",
            f"{100 * own:.1f} %",
        )
        for row, shim, measuring, own in found
    ]
    launch = [row["ns_a_launch"] for row, *_ in found]
    last = ("median (range)", "", spread([f[1] for f in found]), spread([f[2] for f in found]), spread(launch, 0))
    own = [100 * f[3] for f in found]
    return table(
        "pair, back to back | p50 with hooks that do nothing, ms | shim | shim and measuring | ns a launch | of p50",
        [*body, (*last, f"{spread(own, 1)} %")],
    )


def _both(row: Row, mode: str) -> str:
    return f"{slow(row, mode):.2f} / {slow99(row, mode):.2f}"


def pairs(all_: Measured) -> str:
    """Slow-downs of the programs above."""
    body = []
    for row in all_.sound:
        plain, slicing = all_.plain[key(row)], all_.slicing[key(row)]
        faster = slow(slicing, "slicing") / slow(row, "gate")
        body.append(
            (
                named(row),
                f"{row['alone']['p50_ms']:.2f}",
                row["alone"]["requests"],
                f"**{_both(row, 'gate')}**",
                _both(row, "mps"),
                _both(plain, "mps"),
                _both(plain, "stream"),
                _both(slicing, "slicing"),
                f"{faster:.2f}",
            )
        )
    return table(
        "pair | alone p50, ms | requests alone | headway | MPS, below at client priority 1 | MPS | "
        "MPS, stream priority | time slicing | speed-up over time slicing",
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
                *tuple(f"{all_.of(row, where):.2f}" for where in ("alone", "mps", "plain", "slicing")),
                f"{100 * all_.before(row):.0f} %",
                f"{100 * all_.after(row):.0f} %",
            )
            for row in all_.sound
        ),
    )


def _taken_for(row: Row) -> str:
    """How long the kernels that were let go were thought to be."""
    let_go = row.get("let_go", {}).get("low", {"kernels": 0})
    return f"{let_go['predicted_ns'] / let_go['kernels'] / 1e3:,.0f} µs" if let_go["kernels"] else "–"


def spoilt(all_: Measured) -> str:
    """The rows beside the matrix product, with those of earlier builds."""
    body = []
    for row in all_.spoilt:
        old = [all_.again(row, run) for run in (4, 3, 2)]
        body.append(
            (
                named(row),
                *(
                    f"{_both(each, 'gate')}; {each['gate']['low_per_s'][0]:.0f}/s; {_taken_for(each)}" if each else "–"
                    for each in (row, *old)
                ),
                _both(row, "mps"),
                f"{slow(all_.plain[key(row)], 'stream'):.1f}",
                f"{slow(all_.slicing[key(row)], 'slicing'):.2f}",
            )
        )
    return table(
        "pair | headway, run 5 | run 4 | run 3 | run 2 | MPS, client priority | MPS, stream priority | time slicing",
        body,
    )


def noise(all_: Measured) -> str:
    """The same program alone, back to back, wherever it was measured."""
    body = []
    for high in dict.fromkeys(row["high"] for row in all_.pairs):

        def p50(found: Iterable[Row], high: str = high) -> list[float]:
            return [r["alone"]["p50_ms"] for r in found if r["high"] == high and not r["think_ms"]]

        run4 = p50(row for row in all_.earlier if row["run"] == 4)
        columns = [p50(all_.pairs), run4, p50(all_.plain.values()), p50(all_.slicing.values())]
        every = [value for column in columns for value in column]
        shown = [", ".join(f"{value:.2f}" for value in column) or "–" for column in columns]
        body.append((high, *shown, f"{max(every) / min(every):.2f}"))
    return table(
        "program alone, p50 ms | with pairs, run 5 | with pairs, run 4 | with MPS | with time slicing | most / least",
        body,
    )


def above(all_: Measured) -> str:
    """The rows that are slower than the issue allows."""
    body = []
    for row in (row for row in all_.sound if slow(row, "gate") > WIDE):
        old, gate, alone = all_.again(row, 4), row["gate"], row["alone"]
        body.append(
            (
                named(row),
                f"{slow(row, 'gate'):.3f}",
                f"{gate['p50_ms'] / alone['p50_ms']:.3f}",
                f"{gate['mean_ms'] / alone['mean_ms']:.3f}",
                f"{slow(row, 'mps'):.3f}",
                f"{row['dial']['slowdown']:.3f}",
                f"{slow(old, 'gate'):.3f}" if old else "–",
            )
        )
    return table(
        "pair | p50 by rounds | p50 over all rounds | mean | MPS, by rounds | the dial's own | run 4, by rounds", body
    )


def dial(all_: Measured) -> str:
    """What came of each aim."""
    return table(
        "pair | aim | slow-down p50 / p99 | the dial's own | below, /s | of alone | of MPS with client priority",
        (
            (
                named(row),
                f"{row['slo']:g}",
                f"{slow(row, 'gate'):.3f} / {slow99(row, 'gate'):.2f}",
                f"{row['dial']['slowdown']:.3f}",
                f"{row['gate']['low_per_s'][0]:.1f}",
                f"{all_.of(row, 'alone'):.2f}",
                f"{all_.of(row, 'mps'):.2f}",
            )
            for row in all_.lines("dial")
        ),
    )


def kills(all_: Measured) -> str:
    """What was seen when clients died."""
    ways = {"drain": "SIGTERM, the client drains", "mps": "`terminate_client` of MPS, then SIGTERM", "kill": "SIGKILL"}
    return table(
        "how | times | it ended | the program above went on | its longest request after, ms",
        (
            (ways[way], got["times"], got["ended"], got["went_on"], f"{got['worst_ms']:.1f}")
            for found in all_.lines("kills")
            for way, got in found["ways"].items()
        ),
    )


def _equal(one: str, other: str) -> str:
    return "–" if not one or not other else "equal" if one == other else "**differs**"


def digests(all_: Measured) -> str:
    """Results with headway against those of processes that never heard of it."""
    return table(
        "program | process | with headway, fresh | with headway, after sharing | without headway, after sharing",
        (
            (
                row["program"],
                row["process"],
                _equal(row["with"], row["without"]),
                _equal(row["with_after"], row["without"]),
                _equal(row["without_after"], row["without"]),
            )
            for row in all_.lines("digests")
        ),
    )


def predicted(all_: Measured) -> str:
    """What the simulation says of the pairs, from traces of each program alone."""
    measured = {key(row): row for row in all_.sound}
    body = []
    for row in (row for row in all_.lines("predict") if key(row) in measured):
        real = measured[key(row)]
        slower, got = slow(real, "gate"), all_.of(real, "alone")
        fitted = " (fitted)" if key(row)[:2] in FITTED else ""
        body.append(
            (
                named(real) + fitted,
                f"{row['slowdown']:.3f}",
                f"{slower:.3f}",
                f"{100 * (row['slowdown'] / slower - 1):+.0f} %",
                f"{row['low_share']:.2f}",
                f"{got:.2f}",
                f"{100 * (row['low_share'] / got - 1):+.0f} %",
            )
        )
    return table("pair | slow-down, predicted | measured | off | below of alone, predicted | measured | off", body)


SECTIONS: dict[str, Callable[[Measured], str]] = {
    "Coverage": coverage,
    "What the hooks cost": overhead,
    "The pairs: slow-down of the program above, p50 / p99": pairs,
    "The programs below": harvest,
    "Beside long matrix products": spoilt,
    "The machine": noise,
    "Above 1.15": above,
    "The dial": dial,
    "Clients that die": kills,
    "Results": digests,
    "Predicted": predicted,
}


def tables(folder: Path) -> dict[str, str]:
    """Every table by its heading."""
    all_ = Measured(folder)
    if not all_.sound:
        raise SystemExit(f"{folder}: no pair has been measured with all its baselines (pairs, plain, slicing)")
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

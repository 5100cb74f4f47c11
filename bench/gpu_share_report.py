"""The tables of sharing on a GPU, from the lines that ``scripts/gpu-share`` measured: Markdown, and a CSV file each.

    scripts/gpu-share report --state FOLDER
    python -m bench.gpu_share_report KEPT [PAGE]     from what gpu_share_keep kept; PAGE: its tables and the files anew

Pairs that lack a baseline (slicing) are left out. A pair's ratio is within its own session: a mode's p50 over that of
the same round alone, the median over the rounds.
"""

import csv
import io
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.gpu_share_bars import bars
from bench.gpu_share_merge import Row, error, key, slow
from bench.gpu_share_rows import Measured, named, overheads, slow99, table

Line = dict[str, object]
"""A line of a table: its cells by column."""
MODES = {"headway": "gate", "mps_client_priority": "client", "mps": "mps", "mps_stream_priority": "stream"}
"""How columns and how rows call the ways to share."""


def _pair(row: Row) -> Line:
    """Return who a row is about."""
    return {"above": row["high"], "below": row["low"].replace(",", ", "), "pause_ms": f"{row['think_ms']:g}"}


def coverage(all_: Measured) -> Iterator[Line]:
    """Yield launches seen against launches counted."""
    for name, row in all_.programs.items():
        yield {
            "program": name,
            "launches_seen": row["seen"],
            "launches_counted_by_cupti": row["counted"],
            "kernels_run": row["kernels"],
            "longest_kernel_ms": f"{row['longest_ms']:.3f}",
            "gpu_time_a_request_ms": f"{all_.busy_ms(name):.2f}",
        }


def overhead(all_: Measured) -> Iterator[Line]:
    """Yield what hooks and measuring cost, back to back."""
    for row, shim, measuring, own in overheads(all_):
        yield {
            **_pair(row),
            "p50_with_hooks_that_do_nothing_ms": f"{row['bypass']['p50_ms']:.2f}",
            "shim_to_nothing": f"{shim:.3f}",
            "shim_and_measuring_to_nothing": f"{measuring:.3f}",
            "hooks_ns_a_launch": f"{row['ns_a_launch']:.0f}" if own else "",
            "hooks_share_of_p50_pct": f"{100 * own:.1f}" if own else "",
        }


def pairs(all_: Measured) -> Iterator[Line]:
    """Yield slow-downs of the programs above."""
    for row in all_.pairs:
        line = _pair(row)
        line |= {f"alone_{part}_ms": f"{row['alone'][f'{part}_ms']:.2f}" for part in ("p50", "p99")}
        for name, mode in MODES.items():
            line |= {
                f"{name}_slowdown_p50": f"{slow(row, mode):.2f}",
                f"{name}_slowdown_p99": f"{slow99(row, mode):.2f}",
                f"{name}_error_of_p50": f"{error(row, mode):.2f}",
            }
        sliced = all_.slicing[key(row)]
        yield line | {
            "time_slicing_slowdown_p50": f"{slow(sliced, 'slicing'):.2f}",
            "time_slicing_slowdown_p99": f"{slow99(sliced, 'slicing'):.2f}",
            "speed_up_over_time_slicing": f"{all_.faster(row):.2f}",
        }


def harvest(all_: Measured) -> Iterator[Line]:
    """Yield rates of the programs below, and how busy the GPU is."""
    wheres = {"alone": "alone", "mps_client_priority": "client", "mps": "mps", "time_slicing": "slicing"}
    for row in all_.pairs:
        yield {
            **_pair(row),
            "headway_requests_per_s": " + ".join(f"{rate:.1f}" for rate in row["gate"]["low_per_s"]),
            **{f"share_of_{name}": f"{all_.of(row, where):.2f}" for name, where in wheres.items()},
            "gpu_busy_before_pct": f"{100 * all_.before(row):.0f}",
            "gpu_busy_after_pct": f"{100 * all_.after(row):.0f}",
        }


def noise(all_: Measured) -> Iterator[Line]:
    """Yield the same pairs, run after run."""
    runs = sorted({row["run"] for row in (*all_.earlier, *all_.passes) if "run" in row})
    for row in all_.pairs:
        found = {run: all_.again(row, run) for run in runs}
        shares = {run: all_.of(each, "alone") for run, each in found.items() if each}
        p50 = {run: each["alone"]["p50_ms"] for run, each in found.items() if each}
        slower = {run: slow(each, "gate") for run, each in found.items() if each}
        line = _pair(row)
        for name, got in (("alone_p50_ms", p50), ("slowdown_p50", slower), ("below_share_of_alone", shares)):
            line |= {f"{name}_run_{run}": f"{got[run]:.2f}" if run in got else "" for run in runs}
        spread = f"{max(shares.values()) / min(shares.values()):.2f}" if shares else ""
        yield line | {"below_most_to_least": spread}


def dial(all_: Measured) -> Iterator[Line]:
    """Yield what came of each aim."""
    for row in all_.lines("dial"):
        yield {
            **_pair(row),
            "aim": f"{row['slo']:g}",
            "slowdown_p50": f"{slow(row, 'gate'):.3f}",
            "slowdown_p99": f"{slow99(row, 'gate'):.2f}",
            "error_of_p50": f"{error(row, 'gate'):.3f}",
            "slowdown_by_the_dial": f"{row['dial']['slowdown']:.3f}",
            "below_requests_per_s": f"{row['gate']['low_per_s'][0]:.1f}",
            "below_share_of_alone": f"{all_.of(row, 'alone'):.2f}",
        }


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


def kills(all_: Measured) -> Iterator[Line]:
    """Yield what was seen when programs and brokers died."""
    for found in all_.lines("kills"):
        for way, got in sorted(found["ways"].items(), key=lambda each: list(WAYS).index(each[0])):
            yield {
                "how": WAYS[way],
                "times": got["times"],
                "it_ended": got["ended"],
                "program_above_went_on": got["went_on"],
                "broker_took_note": got["noticed"],
                "longest_request_above_after_ms": f"{got['worst_ms']:.1f}",
            }


def _equal(pairs: Sequence[tuple[str, str]]) -> str:
    both = [(one, other) for one, other in pairs if one and other]
    return "" if not both else "equal" if all(one == other for one, other in both) else "differs"


def digests(all_: Measured) -> Iterator[Line]:
    """Yield results with headway against those of processes that never heard of it."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in all_.lines("digests"):
        found.setdefault((row["program"], row["process"]), []).append(row)
    for which, every in sorted(found.items(), key=lambda each: PROCESSES.get(each[0][1], len(PROCESSES))):
        after = [(row["with_after"], row["without"] or row["without_after"]) for row in every]
        yield {
            "program": which[0],
            "process": which[1],
            "with_headway_fresh": _equal([(row["with"], row["without"]) for row in every]),
            "with_headway_after_sharing": _equal(after),
            "times": len(every),
        }


def predicted(all_: Measured) -> Iterator[Line]:
    """Yield what was said of pairs before they were measured, and with --alone: told what the one above took alone."""
    told = {key(row): row["low_share"] for row in all_.lines("alone")}
    for row, real in all_.predicted():
        slower, got = slow(real, "gate"), all_.of(real, "alone")
        again = told.get(key(row))
        yield {
            **_pair(real),
            "slowdown_predicted": f"{row['slowdown']:.3f}",
            "slowdown_measured": f"{slower:.3f}",
            "slowdown_off_pct": _off(row["slowdown"], slower),
            "below_share_predicted": f"{row['low_share']:.2f}",
            "below_share_measured": f"{got:.2f}",
            "below_share_off_pct": _off(row["low_share"], got),
            "below_share_predicted_with_alone": f"{again:.2f}" if again else "",
            "below_share_with_alone_off_pct": _off(again, got) if again else "",
            "run": real.get("run", ""),
        }


def _off(one: float, other: float) -> str:
    return f"{100 * (one / other - 1):+.0f}"


FILES: dict[str, Callable[[Measured], Iterator[Line]]] = {
    "coverage": coverage,
    "hooks": overhead,
    "pairs": pairs,
    "below": harvest,
    "run-to-run": noise,
    "dial": dial,
    "deaths": kills,
    "results": digests,
    "predicted": predicted,
}


def _measured(folder: Path) -> Measured:
    all_ = Measured(folder)
    if not all_.pairs:
        raise SystemExit(f"{folder}: no pair has been measured with all its baselines (pairs, slicing)")
    return all_


def files(folder: Path) -> dict[str, str]:
    """Return the CSV files by name: all that the tables of the page are of, and the rest."""
    all_ = _measured(folder)
    return {f"{name}.csv": _csv(list(make(all_))) for name, make in FILES.items()}


def _csv(lines: Sequence[Line]) -> str:
    text = io.StringIO()
    if lines:
        out = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
        out.writeheader()
        out.writerows(lines)
    return text.getvalue()


def together(all_: Measured) -> str:
    """Return the pairs without pauses in short: slow-downs at p50, and what the programs below get."""
    body = []
    for row, line, rate in zip(all_.pairs, pairs(all_), harvest(all_), strict=True):
        if row["think_ms"]:
            continue
        slower = [line[f"{mode}_slowdown_p50"] for mode in ("mps", "mps_stream_priority", "time_slicing")]
        ours = f"{line['headway_slowdown_p50']} ±{line['headway_error_of_p50']}"
        shares = [rate[f"share_of_{name}"] for name in ("alone", "mps", "time_slicing")]
        body.append((named(row), line["alone_p50_ms"], ours, *slower, *shares))
    return table(
        "pair | alone, ms | headway | MPS | MPS, stream priority | time slicing | "
        "below, of alone | of MPS | of time slicing",
        body,
    )


def tables(folder: Path) -> dict[str, str]:
    """Return the tables of the page by their headings."""
    all_ = _measured(folder)
    return {"Against what was asked": bars(all_), "The pairs": together(all_)}


def renewed(page: str, made: dict[str, str]) -> str:
    """Return a page with the first table under each heading made anew."""
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
    """Print the tables of the page, then the files."""
    for heading, text in tables(folder).items():
        print(f"## {heading}\n\n{text}\n")
    for name, text in files(folder).items():
        print(f"{name}\n\n{text}")


if __name__ == "__main__":
    kept = Path(sys.argv[1])
    if len(sys.argv) > 2:
        page = Path(sys.argv[2])
        page.write_text(renewed(page.read_text(encoding="utf-8"), tables(kept)), encoding="utf-8")
        for file_name, content in files(kept).items():
            (kept / file_name).write_text(content, encoding="utf-8")
    else:
        report(kept)

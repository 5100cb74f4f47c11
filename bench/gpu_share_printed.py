"""Rows from the lines that ``scripts/gpu-share`` printed, where the files that it wrote were lost.

    python -m bench.gpu_share_printed LOG OUT         rows of pairs, fresh pairs and time slicing, in OUT's files

What was not printed (numbers of requests, means) is not there; p50 and p99 are as exact as they were printed.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

Row = dict[str, Any]
_HEAD = re.compile(r"(?P<high>[\w-]+)\+(?P<low>[\w,-]+) (?P<think>\d+)ms alone (?P<p50>[\d.]+)/(?P<p99>[\d.]+)$")
_MODE = re.compile(
    r"(?P<mode>gate|client|mps|stream) (?P<slow>[\d.]+)±(?P<error>[\d.]+)/(?P<p99>[\d.]+) low (?P<low>[\d.+]+)$"
)
_OVER = re.compile(r"(?P<mode>shim|alone|gate)/bypass (?P<over>[\d.]+)$")
_LOW = re.compile(r"low alone (?P<low>[\d.+]+)(?: dial (?P<slow>[\d.]+) b(?P<bold>[\d.]+))?$")
_HOOK = re.compile(r"hook (?P<hook>\d+)(?: ask \d+)? longest \[(?P<longest>[\d., ]+)\]")
_SLICING = re.compile(r"slicing (?P<slow>[\d.]+) p99 (?P<p99>[\d.]+) low (?P<low>[\d.+]+)$")


def _rates(text: str) -> list[float]:
    return [float(each) for each in text.split("+")]


def row(line: str) -> Row:
    """A line as ``gpu_share_measure.line`` or ``gpu_share_slicing.line`` prints it."""
    head, *parts = line.strip().split(" | ")
    found = _HEAD.match(head)
    if not found:
        raise SystemExit(f"not a row: {line[:60]!r}")
    alone = {"p50_ms": float(found["p50"]), "p99_ms": float(found["p99"])}
    made: Row = {"high": found["high"], "low": found["low"], "think_ms": int(found["think"]), "alone": alone}
    for part in parts:
        if got := _MODE.match(part):
            mode = made.setdefault(got["mode"], {})
            # 0.000: no round had two requests of it. Then the p99 is all that is known.
            ratio = float(got["slow"]) or float(got["p99"])
            mode |= {"slowdown": ratio, "error": float(got["error"]), "p99_ms": float(got["p99"]) * alone["p99_ms"]}
            mode["low_per_s"] = _rates(got["low"])
        elif got := _OVER.match(part):
            made.setdefault(got["mode"], {})["over_bypass"] = float(got["over"])
        elif got := _LOW.match(part):
            made["low_alone_per_s"] = _rates(got["low"])
            if got["slow"]:
                made["dial"] = {"slowdown": float(got["slow"]), "boldness": float(got["bold"])}
        elif got := _HOOK.match(part):
            made["ns_a_launch"] = int(got["hook"])
        elif got := _SLICING.match(part):
            made["slicing"] = {"slowdown": float(got["slow"]), "p99_ms": float(got["p99"])}
            made["slicing"]["low_per_s"] = _rates(got["low"])
    return made


def sorted_out(rows: list[Row]) -> dict[str, list[Row]]:
    """By the file that they belong into: pairs that only a prediction waits for have no MPS beside them."""
    return {
        "slicing": [each for each in rows if "slicing" in each],
        "pairs": [each for each in rows if "mps" in each],
        "fresh": [each for each in rows if "gate" in each and "mps" not in each],
    }


def main() -> None:
    """Read the command line."""
    log, out = Path(sys.argv[1]), Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    for name, found in sorted_out([row(line) for line in log.read_text(encoding="utf-8").splitlines()]).items():
        (out / f"{name}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in found))


if __name__ == "__main__":
    main()

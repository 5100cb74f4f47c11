"""What the simulation predicts of pairs, from traces of each program alone: ``predict.jsonl`` beside what was measured.

    python -m bench.gpu_share_predict KEPT TRACES [--seconds 0.5]
    python -m bench.gpu_share_predict OUT.jsonl TRACES --pairs alexnet+training,gpt2+bert-b32 [--think-ms 0,5]
    python -m bench.gpu_share_predict OUT.jsonl shipped --alone MEASURED.jsonl

The first predicts every pair that KEPT has measured; the second the pairs that it is given, before anybody has
measured them; the third those of a file, told what the program above took there alone. What is there is not predicted
again; without the file all is. TRACES ``shipped``: the programs that come with headway.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.gpu_share_keep import short
from bench.gpu_share_merge import key
from bench.gpu_share_rows import Measured, rows
from headway.gpu.model.device import Device
from headway.gpu.predict import predict

MS = 1_000_000
SHIPPED = "shipped"
ALL_MODES = ("gate", "mps", "mps_priority", "time_slicing")


def asked(pairs: str, pauses: str) -> Iterator[dict[str, Any]]:
    """The rows of a list of pairs, each at each pause."""
    for pair in pairs.split(","):
        high, plus, low = pair.partition("+")
        if not plus or not low:
            raise SystemExit(f"--pairs {pair!r}: a pair is HIGH+LOW")
        yield from ({"high": high, "low": low, "think_ms": float(pause)} for pause in pauses.split(","))


def said(
    row: dict[str, Any], traces: str, seconds: float, device: Device | None = None, alone: int = 0
) -> dict[str, Any]:
    """The prediction for a pair: of the gate by itself, of all ways to share under ``modes``."""
    high, low = (name if traces == SHIPPED else f"{traces}/{name}.parquet" for name in (row["high"], row["low"]))
    found = predict(
        high,
        low,
        slo_ppm=1_050_000,
        floor_ppm=10_000,
        think=round(row["think_ms"] * MS),
        alone=alone,
        seconds=seconds,
        device=device,
        write=lambda _: None,
    )
    modes = found["modes"]
    each = {
        mode: short({"slowdown": modes[mode]["slowdown_p50"], "low_share": modes[mode]["low_share"]})
        for mode in ALL_MODES
    }
    told = {"cpu_factor": short(found["cpu_factor"])} if alone else {}
    return {**{name: row[name] for name in ("high", "low", "think_ms")}, **each["gate"], **told, "modes": each}


def main() -> None:
    """Every pair that is not there yet, without the one of four programs; the store of the user is left alone."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kept", type=Path)
    parser.add_argument("traces", help=f"a folder of NAME.parquet, or {SHIPPED!r}")
    parser.add_argument("--seconds", type=float, default=0.5, help="played out, after the dial has settled")
    parser.add_argument("--pairs", help="HIGH+LOW,HIGH+LOW…: these, and not those that were measured")
    parser.add_argument("--think-ms", default="0,5", help="between the requests of the pairs given")
    parser.add_argument("--alone", type=Path, help="rows that were measured: told what the one above took alone there")
    parser.add_argument("--gate-us", type=float, help="of a thread for a launch that has to ask, on an H200")
    given = parser.parse_args()
    device = None if given.gate_us is None else Device(gate=round(given.gate_us * 1000))
    file = given.kept if given.pairs or given.alone else given.kept / "predict.jsonl"
    if given.alone:
        wanted = list(rows(given.alone))
    else:
        wanted = list(asked(given.pairs, given.think_ms)) if given.pairs else Measured(given.kept).pairs
    done = {key(row) for row in rows(file)}
    for row in (row for row in wanted if key(row) not in done and "," not in row["low"]):
        alone = round(row["alone"]["p50_ms"] * MS) if given.alone else 0
        line = said(row, given.traces, given.seconds, device, alone)
        if given.alone:
            line.pop("modes")
        with file.open("a") as out:
            out.write(json.dumps(line) + "\n")
        print(line, flush=True)


if __name__ == "__main__":
    main()

"""What the simulation predicts of the measured pairs, from traces of each program alone: ``predict.jsonl`` beside them.

    python -m bench.gpu_share_predict KEPT TRACES [--seconds 0.5]

What is there is not predicted again; without the file all is.
"""

import argparse
import json
from pathlib import Path

from bench.gpu_share_keep import short
from bench.gpu_share_rows import Measured, key, rows
from headway.experiment.kernels import predict

MS = 1_000_000


def main() -> None:
    """Every sound pair that is not there yet, without the one of four programs; the store of the user is left alone."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kept", type=Path)
    parser.add_argument("traces", type=Path)
    parser.add_argument("--seconds", type=float, default=0.5, help="played out")
    given = parser.parse_args()
    file = given.kept / "predict.jsonl"
    done = {key(row) for row in rows(file)}
    for row in (row for row in Measured(given.kept).sound if key(row) not in done and "," not in row["low"]):
        high, low = (str(given.traces / f"{name}.parquet") for name in (row["high"], row["low"]))
        found = predict(
            high,
            low,
            slo_ppm=1_050_000,
            floor_ppm=10_000,
            think=round(row["think_ms"] * MS),
            seconds=given.seconds,
            write=lambda _: None,
        )["modes"]["gate"]
        said = {"slowdown": found["slowdown_p50"], "low_share": found["low_share"]}
        said = {**{name: row[name] for name in ("high", "low", "think_ms")}, **short(said)}
        with file.open("a") as out:
            out.write(json.dumps(said) + "\n")
        print(said, flush=True)


if __name__ == "__main__":
    main()

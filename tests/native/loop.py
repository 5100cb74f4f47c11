"""The shim, real threads and the dial on the stub driver: what the gate by itself leaves of a batch program's rate.

    python -m tests.native.loop resnet50+resnet101-b64 compiled+training [--seconds 4] [--think-ms 0,5]

Each process has a GPU of its own there, so nothing contends: a rate far below 1 is the gate's doing, and the reasons of
those who waited say where to look. On a machine with few cores the numbers are good to a tenth.
"""

import argparse
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.gpu_share_measure import choose, ledger
from bench.gpu_share_session import MS, Modes, Session
from headway.gpu.control.dial import MILLION, Dial
from headway.gpu.model.reflex import Reason
from tests.native.harness import Built, built


@dataclass(frozen=True)
class Passed:
    """What came of one pair."""

    share: float
    """Launches a second below, of those with the program above at rest."""
    launches: int
    waits: int
    ask_ns: float
    boldness: float
    reasons: dict[str, int]


def pair(session: Session, high: str, low: str, think_ms: float, seconds: float, dial: Dial | None = None) -> Passed:
    """The one below by itself for a while, then behind the gate."""
    choose(session, [low])
    time.sleep(0.1)
    before = ledger(session, "low")
    time.sleep(seconds / 4)
    alone = (ledger(session, "low")["kernels"] - before["kernels"]) / (seconds / 4)
    session.choose("high", high, int(think_ms * MS))
    modes = Modes(session, "high", ["low"], [], dial or Dial(begin_ppm=MILLION))
    modes.stay("alone", 0.5)
    modes.stay("gate", seconds / 2)
    before = ledger(session, "low")
    stretch = modes.stay("gate", seconds, 0)
    after = ledger(session, "low")
    found = {key: after[key] - before[key] for key in after}
    reasons = {reason.name.lower(): found[f"reason{int(reason)}"] for reason in Reason if found[f"reason{int(reason)}"]}
    rate = found["kernels"] * 1e9 / (stretch.end - stretch.begin)
    asked = found["asked_ns"] / max(1, found["asked"])
    return Passed(rate / alone, found["kernels"], found["waits"], asked, modes.dial.boldness_ppm(0) / 1e6, reasons)


@contextmanager
def session_of(folder: Path, made: Built, high: list[str], low: list[str]) -> Iterator[Session]:
    """Two processes, each with its programs."""
    with Session(folder, made.shim, 132, mps=False, client="tests.native.played_client") as session:
        session.extra["LD_LIBRARY_PATH"] = str(made.folder)
        session.start("high", 0, 0, high)
        session.start("low", 1, 5, low)
        session.ready()
        yield session


def main() -> None:
    """Every pair that is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", nargs="+", metavar="HIGH+LOW")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--think-ms", default="0,5")
    given = parser.parse_args()
    pairs = [each.split("+") for each in given.pairs]
    os.chdir(Path(__file__).parents[2])
    with TemporaryDirectory() as folder:
        made = built(Path(folder) / "native", "plain")
        programs = [sorted(set(each)) for each in zip(*pairs, strict=True)]
        with session_of(Path(folder) / "work", made, *programs) as session:
            for high, low in pairs:
                for think in map(float, given.think_ms.split(",")):
                    print(f"{high}+{low} {think:g}ms {pair(session, high, low, think, given.seconds)}", flush=True)


if __name__ == "__main__":
    main()

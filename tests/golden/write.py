"""Write golden digests anew, and say which cases changed.

    python -m tests.golden.write               all scales
    python -m tests.golden.write serving       one of training, serving, kernels

A digest changes only on purpose: whoever runs this says in the commit which changed and why.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from tests.golden import allocations, kernels, looks, serving, training
from tests.golden.looks import Case, Value, differing

FOLDER = Path(__file__).with_name("digests")
SCALES = ("training", "serving", "kernels")


def cases(scale: str) -> dict[str, Case]:
    """All cases of a scale by name."""
    found: dict[str, Iterator[tuple[str, Case]]] = {
        "training": chain(training.cases(), allocations.cases(), looks.training()),
        "serving": chain(serving.cases(), looks.serving()),
        "kernels": chain(kernels.cases(), looks.kernels()),
    }
    return dict(found[scale])


def stored(scale: str) -> dict[str, Value]:
    """What is written down of a scale."""
    path = FOLDER / f"{scale}.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def as_stored(before: dict[str, Value], now: dict[str, Value]) -> dict[str, Value]:
    """Return the values of now; where they equal those of before, with their keys in that order, for a short diff."""
    return {name: before[name] if before.get(name) == value else value for name, value in now.items()}


def main(arguments: Sequence[str]) -> int:
    """Write the files of some scales."""
    if unknown := [name for name in arguments if name not in SCALES]:
        print(f"no scale {unknown[0]!r}: give some of {', '.join(SCALES)}, or nothing for all", file=sys.stderr)
        return 2
    for scale in arguments or SCALES:
        before, now = stored(scale), {name: case() for name, case in cases(scale).items()}
        path = FOLDER / f"{scale}.json"
        path.write_text(
            json.dumps(as_stored(before, now), indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8"
        )
        changed = {
            name: difference for name in {**before, **now} if (difference := differing(before.get(name), now.get(name)))
        }
        for name, difference in changed.items():
            print(f"{scale}: {name}: {difference}")
        print(f"{scale}: {len(changed)} of {len({**before, **now})} cases changed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""``python -m tests.fuzz NUMBER [COUNT]`` plays inputs and says which went wrong; one alone is shown in full.

Numbers below 1000 are the fixed inputs, those from there on are drawn. ``--json`` prints one line an input.
"""

import json
import os
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from tempfile import mkdtemp

from tests.fuzz import play
from tests.fuzz.fixed import FIXED
from tests.fuzz.inputs import FIRST_DRAWN, Maker
from tests.fuzz.samples import RUNS, SCENARIO, SWEPT, TRACE


def main(arguments: list[str]) -> int:
    """Play them; the status is 1 when something went wrong."""
    as_json = "--json" in arguments
    numbers = [int(word) for word in arguments if word != "--json"]
    first, count = numbers[0], numbers[1] if len(numbers) > 1 else 1
    play.prepare()
    runs = Path(mkdtemp(prefix="headway-fuzz-runs-"))
    bad = 0
    try:
        _leave(runs)
        maker = Maker(runs)
        for number in range(first, first + count):
            if len(FIXED) <= number < FIRST_DRAWN:
                continue
            outcome = play.play(maker, number)
            bad += bool(outcome.wrong)
            if as_json:
                print(json.dumps({"number": number, **asdict(outcome)}), flush=True)
            elif outcome.wrong or count == 1:
                _show(number, outcome, str(runs), whole=count == 1)
    finally:
        shutil.rmtree(runs, ignore_errors=True)
    if not as_json:
        print(f"{count} inputs, {bad} went wrong")
    return int(bool(bad))


def _leave(runs: Path) -> None:
    """Make the runs that inputs look into, each in a process of its own."""
    from headway.formats.toml_text import write

    (runs / "jobs.csv").write_text(TRACE)
    (runs / "mine.toml").write_text(write(SCENARIO))
    for name, words in (RUNS | SWEPT).items():
        child = os.fork()
        if not child:
            os.chdir(runs)
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, 1)
            os.dup2(nothing, 2)
            os._exit(play.command([*words, "--out", name]))
        _, status = os.waitpid(child, 0)
        assert not status, f"the run {name} could not be made"


def _show(number: int, outcome: play.Outcome, runs: str, *, whole: bool) -> None:
    words = " ".join(repr(word) if not word or set(word) & set(" '\"\\") else word for word in outcome.words)
    words = words.replace(runs, "RUNS")
    print(f"{number}: {outcome.wrong or 'well'} ({outcome.status}, {outcome.seconds:.1f} s): {words}")
    told = outcome.err if whole else "\n".join(outcome.err.splitlines()[-2:])
    print("".join(f"    {line}\n" for line in told.splitlines()), end="")
    if whole:
        print("".join(f"  | {line}\n" for line in outcome.out.splitlines()[:40]), end="")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

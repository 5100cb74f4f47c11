"""What a gated program knows of its own work in flight: the shim's bookkeeping and the simulation's are one."""

import random
import subprocess
from pathlib import Path

from headway.gpu.model.flight import Flight
from tests.native.harness import NATIVE, compiled

LATENCY = 6_000
PAUSES = (0, 1, 500, 5_000, 50_000, 500_000, 30_000_000)
FILLS = (1, 900, 10_000, 29_999, 30_000, 60_000, 119_999, 120_000, 1_000_000)
MARKS = (30_000, 60_000, 90_000, 240_000, 399_999, 400_000)


def history(drawn: random.Random) -> tuple[list[str], list[int]]:
    """What is done to one, and what the simulation's says to it."""
    flight, lines, answers = Flight(), ["N 0 0 0 0"], [0]
    now, launched, ended = 1, 0, 0
    for _ in range(drawn.randrange(1, 60)):
        now += drawn.choice(PAUSES)
        chance = drawn.random()
        if chance < 0.5:
            fill, mark = drawn.choice(FILLS), drawn.choice(MARKS)
            lines.append(f"L {launched} {now} {fill} {mark}")
            flight.launch(launched, now, fill, mark)
            launched += 1
            answers.append(0)
        elif chance < 0.7:
            ended = drawn.randint(ended, launched)
            lines.append(f"C {now} {ended} 0 0")
            flight.collect(now, ended)
            answers.append(0)
        lines += [f"E {now} {LATENCY} 0 0", f"O {now} {LATENCY} 0 0"]
        answers += [flight.end(now, LATENCY), int(flight.overdue(now, LATENCY))]
    return lines, answers


def test_they_say_the_same(tmp_path: Path) -> None:
    files = [NATIVE / "test" / "flight_probe.cpp", NATIVE / "identity.cpp"]
    probe = compiled(tmp_path / "flight", files, "-fsanitize=undefined")
    drawn = random.Random(5)
    lines, answers = [], []
    for _ in range(1_000):
        more, expected = history(drawn)
        lines += more
        answers += expected
    ran = subprocess.run(
        [probe], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True, timeout=120
    )
    found = [int(text) for text in ran.stdout.split()]
    differ = [(line, mine, theirs) for line, mine, theirs in zip(lines, found, answers, strict=True) if mine != theirs]
    assert differ == []
    assert ran.stderr == ""

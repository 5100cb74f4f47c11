"""Deaths beside a program under the real commands and the real broker, in a short version on the stub driver."""

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from bench.gpu_share_kills import WAYS, Crowd, kills, plan


@pytest.mark.parametrize("times", [7, 8, 13, 30, 31])
def test_the_plan_has_every_way_and_ends_with_those_that_end_everybody(times: int) -> None:
    ways = plan(times, random.Random(1))
    assert len(ways) == times
    assert set(ways) == set(WAYS)
    first = ways.index("stop-kill")
    assert set(ways[first:]) == {"stop-kill"}
    assert ways == plan(times, random.Random(1))


def test_thirty_are_as_they_were_asked_for() -> None:
    ways = plan(30, random.Random(7))
    assert {way: ways.count(way) for way in WAYS} == dict(WAYS)


def test_one_of_each_way(stub: dict[str, str], tmp_path: Path) -> None:
    row = kills(tmp_path, 300, times=len(WAYS), mps="on", environment=stub, ahead=1)
    assert set(row["ways"]) == set(WAYS), row
    for way, found in row["ways"].items():
        counts = [found[key] for key in ("times", "ended", "went_on", "noticed")]
        assert (counts, found["said"]) == ([1, 1, 1, 1], []), (way, row)
    assert row["times"] == len(WAYS)
    assert (row["hung"], row["left_in_shm"], row["mps_left"], row["brokers_left"], row["programs_left"]) == (
        [],
        [],
        [],
        [],
        [],
    )
    assert row["stop"]["rc"] == 0
    assert row["mode"].startswith("MPS: started")
    assert row["requests_above"] > 4 * len(WAYS)


def test_a_program_above_that_dies_too_is_told_and_followed_by_another(
    stub: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def takes_it_along(crowd: Crowd, found: dict[str, Any], way: str) -> int:
        assert crowd.above is not None
        at = time.monotonic_ns()
        os.kill(crowd.with_.client(crowd.above.name)["pid"], signal.SIGKILL)
        assert crowd.above.ended(60)
        return at

    monkeypatch.setattr(Crowd, "_victim", takes_it_along)
    row = kills(tmp_path, 300, times=2, mps="off", environment=stub, ahead=0)
    for way in ("drain", "kill"):
        found = row["ways"][way]
        assert (found["times"], found["went_on"]) == (1, 0)
        assert "ended with 137" in found["said"][0]
    assert row["mode"].startswith("coarse")
    assert not any(row[key] for key in ("hung", "left_in_shm", "brokers_left", "programs_left"))


def test_a_program_above_that_does_not_start_ends_it(stub: dict[str, str], tmp_path: Path) -> None:
    row = kills(tmp_path, 300, times=3, command=["false"], mps="off", environment=stub)
    assert (row["times"], row["ways"], row["left_in_shm"]) == (0, {}, [])

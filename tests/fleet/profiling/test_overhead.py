"""The overhead of a batch is the one with which a simulation takes as long as the requests took."""

import random
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
import pytest

from headway.fleet.live.scene import live_scene
from headway.fleet.model.request import Request
from headway.fleet.profiling import overhead
from headway.fleet.profiling.overhead import IDLE, Timed
from headway.fleet.scenarios.tables.settings import ServingExperiment, ServingTable
from headway.units import MICROSECOND, MILLISECOND

APP = """\
import headway as hw

@hw.task(cpus=1, example=lambda count: [1] * count)
def first(values): return values

@hw.task(cpus=1)
def left(values): return values

@hw.task(cpus=1)
def right(values): return values

@hw.task(cpus=1)
def last(lefts, rights): return lefts

diamond = hw.graph("diamond", first >> {left, right} >> last)
"""
TIMES_MS = {"first": 2, "left": 3, "right": 5, "last": 1}
CELLS = "".join(f"[functions.{name}]\ncells = [[1, 1, 0, {ms}]]\n" for name, ms in TIMES_MS.items())


@pytest.mark.parametrize(
    "true",
    [
        (0, 0, 0, 0),
        (700 * MICROSECOND,) * 4,
        (400 * MICROSECOND, 900 * MICROSECOND, 1500 * MICROSECOND, 3 * MILLISECOND),
    ],
)
def test_a_known_overhead_is_found(true: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (app := tmp_path / "app.py").write_text(APP)
    (profile := tmp_path / "app.profile.toml").write_text(CELLS)
    served = _served(app, profile, true)
    monkeypatch.setattr(overhead, "_served", lambda *_: served)
    found = overhead.overhead_of(app, profile, "cpu")
    assert list(found) == list(IDLE)
    assert list(found.values()) == pytest.approx(true, abs=100 * MICROSECOND)
    assert profile.read_text() == CELLS


def _served(app: Path, profile: Path, true: tuple[int, ...]) -> list[Timed]:
    """Return requests that took as long as a simulation with this overhead says; the file is left as it was."""
    by_idle = ", ".join(f'"{idle}ns" = "{time}ns"' for idle, time in zip(IDLE, true, strict=True))
    profile.write_text(f"overhead = {{ {by_idle} }}\n{CELLS}")
    table = ServingTable(scenario=str(app), profile=str(profile), workers=overhead.WORKERS)
    scene = live_scene(ServingExperiment(serving=table), devices=("cpu",))
    profile.write_text(CELLS)
    draw = random.Random(1)
    lengths = [length for length in range(len(IDLE)) for _ in range(20)]
    pauses = [draw.randrange(IDLE[length], 4 * max(IDLE[length], MILLISECOND)) for length in lengths]
    latencies = [20.0 * MILLISECOND for _ in lengths]  # none waits for another
    for _ in range(4):  # a pause begins with the end of the request before it
        ends = accumulate(map(sum, zip(pauses, latencies, strict=True)))
        arrivals = [round(end - latency) for end, latency in zip(ends, latencies, strict=True)]
        requests = [Request(number, 0, arrival, 0) for number, arrival in enumerate(arrivals)]
        taken = [Timed(*each) for each in zip(requests, lengths, latencies, strict=True)]
        latencies = overhead._simulated(scene, taken)
    return [each._replace(latency=latency) for each, latency in zip(taken, latencies, strict=True)]


def test_an_application_is_served_to_measure_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overhead, "MEASURED_S", 0.0)
    monkeypatch.setattr(overhead, "LEAST", 2)
    (app := tmp_path / "app.py").write_text(APP)
    (profile := tmp_path / "app.profile.toml").write_text(CELLS.replace("0, ", "0, 0.00"))
    memory = pa.default_memory_pool().backend_name
    found = overhead.overhead_of(app, profile, "cpu")
    assert list(found) == list(IDLE)
    assert 0 < found[0] <= found[IDLE[-1]]
    assert pa.default_memory_pool().backend_name == memory, "a server leaves Arrow's memory as it was"


def test_overheads_never_fall_with_a_longer_sleep() -> None:
    wanted = [5.0, 4.0, 9.0, 8.0]
    found = overhead._solved(lambda overhead: [1.0 + each for each in overhead], wanted)
    assert found == sorted(found)
    assert found[0] == 4

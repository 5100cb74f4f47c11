"""The numbers of a kernel tape, on timelines small enough to be counted."""

from dataclasses import replace

import numpy as np
import pytest

from headway.core.tape import Tape
from headway.gpu.metrics import busy_share, summarise
from headway.gpu.model.program import Client
from headway.units import SECOND
from tests.gpu.worlds import TINY, drive, program

HIGH = Client("h", program((5, 2, 100), name="h"), 0, requests=1)
LOW = Client("l", program((1, 4, 50), name="l"), 1, requests=1)


def test_slow_down_delay_and_its_cause() -> None:
    row = summarise([HIGH, LOW], TINY, drive("mps", [HIGH, LOW]).tape)
    # Alone it is answered at 118; here it starts at 61 instead of 15.
    assert row["slowdown_p50"] == row["slowdown_p99"] == pytest.approx(164 / 118)
    assert row["held_up_s"] == pytest.approx(46 / SECOND)
    above = row["clients"][0]
    assert above["held_up_by"] == [{"client": "l", "kernel": "l0", "delay_s": 46 / SECOND}]
    assert (above["requests"], above["kernels"], above["gated_s"]) == (1, 1, 0)
    assert row["busy_share"] == pytest.approx(150 / 164)
    assert row["low_share"] == 1.0


def test_time_at_the_gate() -> None:
    later = Client("l", program((6, 4, 50), name="l"), 1, requests=1)
    row = summarise([HIGH, later], TINY, drive("strict", [HIGH, later]).tape)
    assert row["slowdown_p50"] == 1.0
    assert row["gated_s"] == pytest.approx((115 - 6) / SECOND)
    assert row["clients"][1]["reasons"] == {"alone": 1}


def test_what_was_before_does_not_count() -> None:
    high = replace(HIGH, requests=0)  # a request every 118: one ends before 200, the next one after
    tape = drive("mps", [high], horizon=400).tape
    row = summarise([high], TINY, tape, 400, 200)
    above = row["clients"][0]
    assert (above["requests"], above["requests_alone"], above["kernels"]) == (2, 2, 2)
    assert above["throughput_share"] == 1.0
    assert row["seconds"] == pytest.approx(200 / SECOND)
    assert row["busy_share"] == pytest.approx((233 - 200 + 351 - 251 + 400 - 369) / 200)


def test_busy_time_is_counted_once_where_kernels_overlap() -> None:
    rows = [(30, 1, 0, 0, 0, 20, 10), (40, 1, 1, 0, 0, 20, 20), (90, 1, 0, 1, 0, 10, 80)]
    assert busy_share(Tape(np.array(rows, dtype=np.int64)), 100) == pytest.approx(0.4)
    assert busy_share(Tape(np.array(rows, dtype=np.int64)), 85) == pytest.approx(35 / 85)
    assert busy_share(Tape(np.array(rows, dtype=np.int64)), 100, 85) == pytest.approx(5 / 15)
    assert busy_share(Tape(np.empty((0, 7), dtype=np.int64)), 100) == 0

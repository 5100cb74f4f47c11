"""The measuring of pairs, on the stub driver: every mode has its stretches, its requests and its work below."""

import os
from pathlib import Path

import numpy as np
import pytest

from bench import gpu_share_measure, gpu_share_slicing
from bench.gpu_share_measure import _alone_low, line, measure, paired, progress, quantiles, tail
from bench.gpu_share_session import Session, Stretch
from headway.gpu.control.dial import Dial
from headway.gpu.share.shim.build import library

MODES = {"bypass", "shim", "alone", "gate", "client", "mps", "stream"}


@pytest.fixture
def session(stub: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    for name, value in stub.items():
        monkeypatch.setitem(os.environ, name, value)
    return Session(tmp_path, library(), 132, mps=False, client="tests.bench.stub_client")


def test_a_pair_has_every_mode(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_share_measure, "BLOCKS", 1)
    with session:
        for name in ("high", "low", "plain"):
            session.start(name, 0, 0 if name == "high" else 5, ["4", "9"])
        session.ready()
        row = measure(session, "4", ["9"], 0, 1.0, Dial(), 0.3)
        again = measure(session, "9", ["4"], 5, 1.0, Dial(), 0.3)
        assert session.slot("low").ledger.kernels > 0
    assert set(row) >= MODES
    for mode in MODES:
        assert row[mode]["requests"] > 0, (mode, row)
        assert row[mode]["slowdown"] is None or row[mode]["slowdown"] > 0
    # Held means held; let go means let go.
    assert row["alone"]["low_per_s"][0] < row["low_alone_per_s"][0]
    for mode in ("client", "mps", "stream"):
        assert row[mode]["low_per_s"][0] > 0, mode
    assert set(again) & MODES == MODES - {"shim"}
    assert "4+9" in line(row)


def test_time_slicing_alternates_with_alone(session: Session) -> None:
    session.shim = False
    with session:
        session.start("high", 0, 0, ["4"])
        session.start("low", 0, 5, ["9"])
        session.ready()
        row = gpu_share_slicing.slicing(session, "4", ["9"], 0)
    assert row["alone"]["requests"] > 0
    assert row["slicing"]["requests"] > 0
    assert row["slicing"]["low_per_s"][0] > 0
    assert row["low_alone_per_s"][0] > 0
    assert "4+9" in gpu_share_slicing.line(row)


def test_ratios_are_of_the_same_round() -> None:
    spans = np.array([(0, 10), (10, 20), (100, 120), (120, 140), (200, 230), (230, 260), (300, 360), (360, 420)])
    alone, gate = [Stretch(0, 50), Stretch(200, 260)], [Stretch(100, 150), Stretch(300, 420)]
    assert paired(spans, gate, alone) == [2.0, 2.0]
    assert paired(spans, gate, alone, 3) == []
    assert quantiles(spans, gate)["requests"] == 4
    low, high = tail(spans, gate, alone)
    assert 10e-6 <= low <= high <= 50e-6
    assert quantiles(spans, [Stretch(500, 600)])["requests"] == 0


def test_what_is_done_alone_is_the_mean_of_before_after_and_between() -> None:
    between = [Stretch(0, 500_000_000, (60, 10)), Stretch(0, 500_000_000, (30, 20))]
    rates, a_request = _alone_low(([10.0, 2.0], [4.0, 10.0]), ([20.0, 2.0], [8.0, 10.0]), between)
    assert a_request == [6.0, 10.0]
    assert rates == [(10 + 20 + 20 + 10) / 4, (2 + 2 + 2 + 4) / 4]


def test_work_below_counts_parts_of_requests() -> None:
    spans = np.array([(0, 10), (10, 20), (20, 40)])
    assert progress(spans, 10, 30) == 1.5
    assert progress(spans[:1], 0, 5) == 0.0

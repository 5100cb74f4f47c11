"""Pairs under the dial on the stub driver: a row has the figures from outside, the dial's own, and MPS beside them."""

import os
from pathlib import Path

import numpy as np
import pytest

from bench import gpu_share_dial
from bench.gpu_share_dial import line, measure, outside
from bench.gpu_share_session import Session
from headway.kernels.dial import Dial
from headway.live.kernels.build import library

MS = 1_000_000


@pytest.fixture
def session(stub: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    for name, value in stub.items():
        monkeypatch.setitem(os.environ, name, value)
    (tmp_path / "work").mkdir()
    return Session(tmp_path / "work", library(), 132, mps=False, client="tests.bench.stub_aa_client")


def test_a_pair_is_a_row(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("GATE_S", 0.3), ("ALONE_S", 0.2), ("LOW_ALONE_S", 0.2), ("BLOCK_S", 0.2), ("REST_S", 0.2)):
        monkeypatch.setattr(gpu_share_dial, name, value)
    with session:
        session.start("high", 0, 0, ["6"])
        session.start("low", 0, 5, ["9"])
        session.start("plain", 0, 5, ["9"])
        session.ready()
        row = measure(session, "6", ["9"], 3.0, Dial(), mps=True)
    assert row is not None
    assert (row["high"], row["low"], row["slo"]) == ("6", "9", 1.05)
    assert row["alone"]["requests"] > 10
    assert row["all"]["stretches"] >= 3
    assert row["told"][0]["boldness"] == 0, "never met: at the floor"
    assert row["mps"]["requests"] > 10
    assert row["low_alone_per_s"][0] > 0
    assert "6+9 aim 1.05" in line(row)


def test_from_outside_it_is_like_steps_alone_against_those_around_them() -> None:
    """A second is four fifths beside, at 1.1 times the time alone; two kinds of steps in turn."""
    begin, end, kind, at = [], [], [], 0
    while at < 20_000 * MS:
        alone = at % (1000 * MS) >= 800 * MS
        took = (2 if len(begin) % 2 else 7) * MS * (10 if alone else 11) // 10
        begin.append(at)
        end.append(at + took)
        kind.append(len(begin) % 2)
        at += took
    found = {name: np.array(values) for name, values in (("begin", begin), ("end", end), ("kind", kind))}
    spans = np.array([((1000 * s + 800) * MS, 1000 * (s + 1) * MS) for s in range(20)])
    said = outside(found, spans, 0, 20_000 * MS)
    assert said["value"] == pytest.approx(1.1, abs=0.001)
    assert said["half"] < 0.001
    assert outside(found, spans[:2], 0, 20_000 * MS) == {}

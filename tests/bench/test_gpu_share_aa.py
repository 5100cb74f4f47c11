"""The A/A experiment on the stub driver: every step is written with what it launched; a pair has all its stretches."""

import argparse
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest

from bench import gpu_share_aa
from bench.gpu_share_aa import measure
from bench.gpu_share_session import Session
from headway.gpu.share.shim.build import library


@pytest.fixture
def session(stub: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    for name, value in stub.items():
        monkeypatch.setitem(os.environ, name, value)
    (tmp_path / "work").mkdir()
    return Session(tmp_path / "work", library(), 132, mps=False, client="tests.bench.stub_aa_client")


def test_steps_and_stretches_are_recorded(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_share_aa, "LONG_S", 0.2)
    monkeypatch.setattr(gpu_share_aa, "CYCLE_S", 0.5)
    given = argparse.Namespace(state=tmp_path, out=tmp_path / "out", seconds=0.3, pair_seconds=0.4, slo=1.05)
    with session:
        session.start("high", 0, 0, ["6", "4p", "bad"])
        session.start("low", 0, 5, ["9"])
        session.ready()
        end = gpu_share_aa.time.monotonic() + 300
        measure(session, ["6", "bad", "4p"], [("6", "9"), ("4p", "9")], given, end)
    assert "bad: cannot be done" in capsys.readouterr().out
    with tarfile.open(tmp_path / "out" / "steps.tar") as all_:
        assert set(all_.getnames()) == {"6.npz", "4p.npz", "6+9.npz", "4p+9.npz"}
    for name in ("6", "4p"):
        found = np.load(tmp_path / f"{name}.npz")
        assert len(found["begin"]) > 5
        assert set(found["launches"]) == {int(name[0])} == set(found["kind"])
        assert set(found["waits"]) == {1}
        assert (found["due"] <= found["begin"]).all()
        assert (found["begin"] <= found["launched"]).all()
        assert (found["launched"] <= found["end"]).all()
        assert (found["due"] < found["begin"]).any() == (name == "4p")
    beside = np.load(tmp_path / "6+9.npz")
    assert {int(code) for code in beside["spans"][:, 2]} == {0, 1, 2}
    assert len(beside["said"])
    assert len(beside["low"])

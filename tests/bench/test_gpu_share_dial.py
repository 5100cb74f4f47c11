"""Pairs under the dial on the stub driver: a row has the figures from outside, the dial's own, and MPS beside them."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import gpu_share_dial, gpu_share_limits, gpu_share_open
from bench.gpu_share_dial import CALLED, Cycle, build_id, energy_ratio, line, measure, outside, start_all
from bench.gpu_share_session import Session
from headway.gpu.control.dial import Dial
from headway.gpu.share.shim.build import library

MS = 1_000_000


@pytest.fixture
def session(stub: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    for name, value in stub.items():
        monkeypatch.setitem(os.environ, name, value)
    (tmp_path / "work").mkdir()
    return Session(tmp_path / "work", library(), 132, mps=False, client="tests.bench.stub_aa_client")


def test_a_pair_is_a_row(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    short = Cycle(0.3, 0.2, 20 * MS)
    for name, value in (("BY_GPU", short), ("BY_PROCESSOR", short), ("LOW_ALONE_S", 0.2)):
        monkeypatch.setattr(gpu_share_dial, name, value)
    with session:
        start_all(session, [("6", "9")], {}, {"low": 100, "low2": 100})
        assert sorted(session.programs) == ["high", "low"], "no pair has a second one below"
        row, again = measure(session, "6", ["9"], [(1.05, 3.0), (1.2, 2.0)], Dial())
    assert (row["high"], row["low"], row["slo"], row["build"]) == ("6", "9", 1.05, build_id())
    assert (again["slo"], again["first"]) == (1.2, {}), "another aim, and no longer the first meeting"
    assert again["told"]
    assert 0 <= again["held"] < 0.5
    assert len(again["contention"]) == 1, "of each program below what its kernels are charged"
    assert again["told"][0]["ns"] > row["told"][-1]["ns"], "the dial goes on"
    assert row["alone"]["requests"] > 10
    assert row["all"]["stretches"] >= 3
    assert row["told"][0]["boldness"] == 0, "never met: at the floor"
    assert row["low_alone_per_s"][0] > 0
    assert row["energy"] == {}, "there is no counter here"
    assert "6+9 aim 1.05" in line(row)


def test_a_pair_under_mps_is_a_row_of_settings(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    short = dict.fromkeys((False, True), (3, 0.2, 0.2))
    for name, value in (("BLOCKS", short), ("LOW_ALONE_S", 0.1), ("PERCENTS", (100, 50))):
        monkeypatch.setattr(gpu_share_limits, name, value)
    monkeypatch.setattr(gpu_share_dial, "BY_GPU", Cycle(0.3, 0.2, 20 * MS))
    with session:
        start_all(session, [("6", "9")], {}, gpu_share_limits.processes())
        gpu_share_limits.make(session, ["9"])
        modes = gpu_share_limits.limits(session, "6", ["9"])
    assert list(modes)[:2] == ["mps100", "mps50"]
    assert {"client100", "client50"} <= set(modes) <= {f"{k}{p}" for k in ("mps", "client") for p in (100, 50, 70, 90)}
    assert [mode for mode, found in modes.items() if "low_alone_per_s" in found] == ["mps100"]
    for found in modes.values():
        assert found["beside"]["requests"] > 10
        assert found["alone"]["requests"] > 10
        assert found["low_per_s"][0] > 0
    assert modes["mps100"]["own"]["stretches"] == 3
    assert "6+9 | mps100 " in gpu_share_limits.line({"high": "6", "low": "9", "modes": modes})


def test_the_settings_of_a_pair_can_be_chosen() -> None:
    assert gpu_share_limits.chosen("a+b=client30;c+d=mps50,mps10") == {
        "a+b": ["mps100", "client30"],
        "c+d": ["mps100", "mps50", "mps10"],
    }
    assert gpu_share_limits.chosen("") == {}


def test_below_a_silent_program_the_rate_is_compared_with_hooks_that_do_nothing(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_share_open, "TURNS", 3)
    with session:
        start_all(session, [("6", "9")], {}, {"low": 100})
        row = gpu_share_open.opened(session, "6", "9")
    assert row is not None
    assert len(row["ratios"]) == 3
    assert row["ratio"] > 0
    assert 0 < row["passed"] <= 1, "launches that did not ask"
    assert "9 below a silent 6" in gpu_share_open.line(row)


def test_energy_shared_is_against_the_same_work_one_after_the_other() -> None:
    """Shared: 100 requests above and 50 below for 300 J. Alone: 20 above take 40 J, 10 below 30 J."""
    found = energy_ratio((300.0, 40.0), 30.0, (100, 20), [(50.0, 10.0)])
    assert found == {"shared_j": 300.0, "apart_j": 350.0, "ratio": pytest.approx(300 / 350)}
    assert energy_ratio((float("nan"), 1.0), 1.0, (1, 1), [(1.0, 1.0)]) == {}
    assert energy_ratio((1.0, 1.0), 1.0, (1, 0), [(1.0, 1.0)]) == {}


def test_from_outside_it_is_like_steps_alone_against_those_around_them() -> None:
    """A second is four fifths beside, at 1.1 times the time alone; two kinds of steps in turn."""
    found = played(lambda at, beside: 0.1 if beside else 0.0, lambda at: 1.0)
    said = outside(found, SPANS, 0, 0, 20_000 * MS)
    assert said["value"] == pytest.approx(1.1, abs=0.001)
    assert said["half"] < 0.001
    assert outside(found, SPANS[:2], 0, 0, 20_000 * MS) == {}


def test_from_outside_steps_are_compared_at_one_pace_of_the_processor() -> None:
    """The processor is slow for 1.3 s of every 2.6; beside, steps take 1.1 times as long at either pace."""
    found = played(lambda at, beside: 0.1 if beside else 0.0, lambda at: 1.0 + 0.6 * (at // (1300 * MS) % 2))
    said = outside(found, SPANS, 0, 0, 20_000 * MS)
    assert said["value"] == pytest.approx(1.1, abs=0.002)
    assert said["half"] < 0.01


def test_from_outside_a_processor_that_is_slower_beside_counts() -> None:
    found = played(lambda at, beside: 0.0, lambda at: 1.05 if at % (1000 * MS) < 800 * MS else 1.0)
    said = outside(found, SPANS, 0, 0, 20_000 * MS)
    assert said["value"] == pytest.approx(1.05, abs=0.005)


SPANS = np.array([((1000 * s + 800) * MS, 1000 * (s + 1) * MS) for s in range(20)])


def played(delayed: Callable[[int, bool], float], pace: Callable[[int], float]) -> dict[str, Any]:
    """Twenty seconds of steps of two kinds in turn; the processor launches for most of each."""
    rows, at = [], 0
    while at < 20_000 * MS:
        usual = (2 if len(rows) % 2 else 7) * MS * pace(at)
        took = round(usual * (1 + delayed(at, at % (1000 * MS) < 800 * MS)))
        rows.append((at, at + round(0.9 * usual), at + took, len(rows) % 2))
        at += took
    return dict(zip(("begin", "launched", "end", "kind"), np.array(rows).T, strict=True))


def test_a_build_keeps_its_name_when_what_decides_is_moved_and_gets_another_when_it_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model, control = Path("src/headway/gpu/model"), Path("src/headway/gpu/control")
    for folder in (model, control, Path("native")):
        folder.mkdir(parents=True)
    parts = ["@dataclass\nclass A:\n    one = 1", "B = 2", "def c() -> int:\n    return B"]
    (model / "a.py").write_text('"""Of one file."""\n\nfrom headway.x import y\n\n' + "\n\n\n".join(parts) + "\n")
    (Path("native") / "gate.h").write_text("int gate;\n")
    before = build_id()
    (model / "a.py").write_text(f"import headway.z\n\n{parts[2]}\n")
    (control / "b.py").write_text(f'"""Of another."""\n{parts[1]}\n\n\n{parts[0]}\n')
    assert build_id() == before
    (control / "b.py").write_text(f"{parts[1]}\n\n\n{parts[0].removeprefix('@dataclass')}\n")
    assert build_id() != before
    (control / "b.py").write_text(f"{parts[1]}\n{parts[0]}\n")
    assert build_id() == before
    (Path("native") / "gate.h").write_text("long gate;\n")
    assert build_id() != before
    monkeypatch.setitem(CALLED, build_id(), before)
    assert build_id() == before

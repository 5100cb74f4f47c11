"""What a run of pairs keeps: a row is written and copied as soon as it is there."""

import json
import shutil
import tarfile
from pathlib import Path

import pytest

from bench import gpu_share, gpu_share_keep
from bench.gpu_share import FRESH, PAIRS, bundle, keep, missing, reported, wanted
from bench.gpu_share_rows import Measured, slow

KEPT = Path(__file__).resolve().parents[2] / "docs/background/results/h200"


def names(archive: Path) -> dict[str, str]:
    with tarfile.open(archive) as all_:
        return {each.name: all_.extractfile(each).read().decode() for each in all_}


def test_each_row_is_copied_as_it_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state, out = tmp_path / "state", tmp_path / "out"
    state.mkdir()
    monkeypatch.setattr(gpu_share, "OUT", [out])
    keep(state / "pairs.jsonl", {"high": "a", "low": "b", "think_ms": 0}, "said")
    keep(state / "pairs.jsonl", {"high": "a", "low": "b", "think_ms": 5}, "said")
    (state / "work").mkdir()
    (state / "work" / "high.log").write_text("not this")
    assert [path.name for path in out.iterdir()] == ["results.tar.gz"]
    assert names(out / "results.tar.gz")["pairs.jsonl"].count("\n") == 2
    (state / "looks.bin").write_bytes(b"abc")
    bundle(state, out)
    assert set(names(out / "results.tar.gz")) == {"pairs.jsonl", "looks.bin"}


def test_what_is_there_is_not_measured_again(tmp_path: Path) -> None:
    todo = wanted("vgg16+matmul", None, PAIRS)
    assert todo == [("vgg16", "matmul", 0), ("vgg16", "matmul", 5)]
    keep(tmp_path / "pairs.jsonl", {"high": "vgg16", "low": "matmul", "think_ms": 0}, "said")
    assert missing(tmp_path / "pairs.jsonl", todo) == [("vgg16", "matmul", 5)]
    with pytest.raises(SystemExit, match="no such pair"):
        wanted("vgg16+nothing", None, PAIRS)


def test_what_is_predicted_first_is_none_of_the_others() -> None:
    assert not set(FRESH) & set(PAIRS)
    assert len(set(FRESH)) == len(FRESH) == 16


def test_the_report_of_two_passes_is_of_their_means(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_share_keep, "longest_ms", lambda traces, program: 0.5)
    first, second = tmp_path / "first", tmp_path / "second"
    parts = {first: ("slicing",), second: ("dial", "coverage", "kills", "commands")}  # neither has all
    for (state, names), more in zip(parts.items(), (0.0, 0.2), strict=True):
        state.mkdir()
        for name in names:
            shutil.copy(KEPT / f"{name}.jsonl", state)
        changed = [row | {"gate": row["gate"] | {"slowdown": 1.0 + more}} for row in Measured(KEPT).pairs]
        (state / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in changed))
    reported(first, second)
    found = Measured(first / "kept")
    assert (len(found.pairs), found.runs) == (30, [1, 2])
    assert {row["gate"]["slowdown"] for row in found.pairs} == {1.1}
    assert {row["passes"] for row in found.pairs} == {2}
    # Under time slicing it is the pass on the same machine that counts.
    assert {found.faster(row) for row in found.pairs} == {slow(row, "slicing") for row in found.slicing.values()}
    assert "| 2. slow-down at p50, median | ≤ 1.05 | 1.100 (1.100–1.100) | **not met** |" in capsys.readouterr().out
    shutil.copy(KEPT / "slicing.jsonl", second)
    reported(second, None)
    assert "| 1.200 (1.200–1.200) |" in capsys.readouterr().out

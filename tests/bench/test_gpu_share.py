"""What a run of pairs keeps: a row is written and copied as soon as it is there."""

import tarfile
from pathlib import Path

import pytest

from bench import gpu_share
from bench.gpu_share import FRESH, PAIRS, bundle, keep, missing, wanted


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

"""Traces from pipes and from packers other than gzip."""

import io
import os
import sys
import threading
from pathlib import Path

import pytest

from headway.errors import TraceError
from headway.formats import table
from headway.jobs.traces import guess, load

SAMPLES = Path(__file__).parents[2] / "samples"


def test_a_pipe_is_read_once_and_told_like_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes((SAMPLES / "sacct.txt").read_bytes()))
    writer.start()
    assert guess(pipe) == "slurm"
    assert load(pipe).jobs == load(SAMPLES / "sacct.txt").jobs
    writer.join()


def test_a_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    given = io.TextIOWrapper(io.BytesIO((SAMPLES / "synergy.csv").read_bytes()))
    monkeypatch.setattr(sys, "stdin", given)
    table._flowed.cache_clear()
    assert load("-").jobs == load(SAMPLES / "synergy.csv").jobs
    table._flowed.cache_clear()


@pytest.mark.parametrize(
    ("magic", "kind"),
    [(b"\xfd7zXZ\x00", "xz"), (b"BZh91", "bzip2"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"PK\x03\x04", "zip")],
)
def test_other_packers_are_named(tmp_path: Path, magic: bytes, kind: str) -> None:
    (tmp_path / "t").write_bytes(magic + b"rest")
    with pytest.raises(TraceError, match=f"packed with {kind}"):
        load(tmp_path / "t", "headway")

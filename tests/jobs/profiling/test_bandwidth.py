"""Bandwidths of this machine: plausible, from the data set's own files, and nothing left behind."""

import os
import tempfile
from pathlib import Path

import pytest

from headway.errors import ProfileError
from headway.jobs.profiling import bandwidth


def test_memory_is_read_at_a_plausible_rate() -> None:
    assert 1e8 < bandwidth.memory(0.05) < 1e13


def test_storage_is_read_from_the_files_of_a_data_set(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for number in range(20):
        (tmp_path / "sub" / f"{number}.bin").write_bytes(bytes(50_000))
    (tmp_path / "empty").touch()
    found = bandwidth.storage(tmp_path, 50_000, 0.1)
    assert found.bytes_per_second > 1e5
    assert found.where == str(tmp_path)
    assert found.piece_bytes == 50_000
    assert bandwidth.storage(tmp_path / "sub" / "0.bin", 4096, 0.05).bytes_per_second > 0


def test_a_file_made_for_it_is_gone_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(bandwidth, "_TRIAL_BYTES", 4 << 20)
    assert bandwidth.storage(None, 0, 0.05).bytes_per_second > 0
    assert list(tmp_path.iterdir()) == []


def test_a_reading_through_the_page_cache_is_better_than_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(bandwidth, "_TRIAL_BYTES", 4 << 20)
    monkeypatch.setattr(os, "getcwd", lambda: str(tmp_path / "nowhere"))
    monkeypatch.setattr(os, "O_DIRECT", -1)  # refused by every file system
    assert not bandwidth.storage(None, 0, 0.05).direct
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nothing"))
    with pytest.raises(ProfileError, match="nothing can be written to"):
        bandwidth.storage(None, 0, 0.05)

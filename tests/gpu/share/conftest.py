"""What tests of sharing start from: a folder of their own, and no program of NVIDIA's but those a test puts there."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from headway.device import locks as places, mps
from headway.device.locks import Place
from headway.device.nvidia import ANY_GPU
from tests.gpu.share.shares import MPS_CONTROL, program_at


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose name leaves room for that of a socket."""
    with TemporaryDirectory(prefix="share-") as folder:
        yield Path(folder)


@pytest.fixture(autouse=True)
def _apart(short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv(places.FOLDER, str(short))
    monkeypatch.setattr(mps, "DEFAULT_PIPE", tmp_path / "usual")
    for name in (ANY_GPU, mps.PIPE, mps.LOG, "CUDA_VISIBLE_DEVICES", "LD_PRELOAD"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def place(short: Path) -> Place:
    """Where the broker of GPU 0 is."""
    return Place(short, 0)


@pytest.fixture
def control(tmp_path: Path) -> Path:
    """A control of MPS that does as it is told."""
    return program_at(tmp_path / "bin" / mps.CONTROL, MPS_CONTROL)

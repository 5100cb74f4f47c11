"""What tests of commands start from: a folder of their own; for ``headway share`` a shim and a stub of the driver."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from headway.cli import main
from headway.device import mps
from tests.gpu.share.shares import MPS_CONTROL, program_at
from tests.native.conftest import native_folder as native_folder
from tests.native.harness import ROOT, Built, built as build_into

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """Calls the command line in a folder of its own, with a queue of its own: its status, output and errors."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)

    def called(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(list(words))
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return called


@pytest.fixture(scope="session")
def built(native_folder: Path) -> Built:
    """The shim as users have it, a stub of the driver, and a client."""
    return build_into(native_folder, "plain")


class Shared:
    """``headway share`` in processes of its own, on a GPU that is a stub."""

    def __init__(self, built: Built, folder: Path, kept: Path) -> None:
        self.folder, self.kept = folder, kept
        self.client = str(built.folder / "client-linked")
        self.environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(built.folder),
            "HEADWAY_SHARE_LIBRARY": str(built.shim),
            "HEADWAY_SHARE_FOLDER": str(folder),
            "HEADWAY_SHARE_ANY_GPU": "1",
            "HEADWAY_PROFILES": str(kept / "profiles"),
            "XDG_CACHE_HOME": str(kept),
            "XDG_STATE_HOME": str(kept / "state"),
        }

    def start(self, *words: str) -> subprocess.Popen[str]:
        """A command that runs."""
        command = [sys.executable, "-m", "headway", "share", *words]
        return subprocess.Popen(
            command, env=self.environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def do(self, *words: str) -> tuple[int, str, str]:
        """A command to its end: its status, its output and its errors."""
        with self.start(*words) as command:
            out, err = command.communicate(timeout=120)
        return command.returncode, out, err

    def left(self) -> list[str]:
        """What lies in the folder."""
        return sorted(path.name for path in self.folder.iterdir())


@pytest.fixture
def mps_control(tmp_path: Path) -> str:
    """A folder with a stand-in for NVIDIA's control of MPS."""
    return str(program_at(tmp_path / "bin" / mps.CONTROL, MPS_CONTROL).parent)


@pytest.fixture
def shared(built: Built, tmp_path: Path) -> Iterator[Shared]:
    """Sharing, which is over after the test."""
    with TemporaryDirectory(prefix="share-") as folder:
        each = Shared(built, Path(folder), tmp_path)
        yield each
        if each.left():
            each.do("stop", "--kill")

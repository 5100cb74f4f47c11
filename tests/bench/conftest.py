"""What tests of measurements on a GPU start from, without one: the stub driver, stand-ins for NVIDIA's tools."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from headway.device import mps
from tests.gpu.share.shares import program_at
from tests.native.conftest import built as built, native_folder as native_folder
from tests.native.harness import NATIVE, Built, compiled

CONTROL = """
    import os, signal, subprocess, sys
    from pathlib import Path

    pipe = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
    mark = pipe / "nvidia-cuda-mps-control.pid"

    def clients():
        for entry in Path("/proc").iterdir():
            try:
                given = (entry / "environ").read_bytes().split(b"\\0") if entry.name.isdigit() else []
            except OSError:
                continue
            here = f"CUDA_MPS_PIPE_DIRECTORY={pipe}".encode() in given
            if here and any(each.startswith(b"HEADWAY_SHARE=") for each in given):
                yield int(entry.name)

    if sys.argv[1:] == ["-d"]:
        daemon = subprocess.Popen([os.environ["MPS_DAEMON"], "600"], start_new_session=True)
        mark.write_text(str(daemon.pid))
        sys.exit(0)
    if not mark.exists():
        sys.exit(1)
    line = sys.stdin.read().split()
    if line == ["get_server_list"]:
        print(7)
    elif line[0] == "get_client_list":
        print(*clients())
    elif line[0] == "terminate_client":
        os.kill(int(line[2]), signal.SIGINT)
    elif line == ["quit"]:
        os.kill(int(mark.read_text()), signal.SIGKILL)
        mark.unlink()
"""
"""MPS without a GPU: its clients are the processes that were told of its pipe; who is terminated gets an error."""


@pytest.fixture
def stub(built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The environment of a machine with a GPU that is none."""
    path = built.folder / "libcupti_stub.so"
    if not path.exists():
        source, made = NATIVE / "test" / "cupti_stub.cpp", built.folder / f"libcupti_stub.{os.getpid()}.so"
        compiled(made, [source], "-fPIC", "-shared").replace(path)
    tools = tmp_path / "bin"
    program_at(tools / mps.CONTROL, CONTROL)
    (tools / "nvidia-cuda-mps-server").symlink_to("/bin/sleep")
    path_of_tools = f"{tools}:{Path(sys.executable).parent}:/usr/bin:/bin"
    monkeypatch.setenv("PATH", path_of_tools)  # MPS is asked from here as well
    with TemporaryDirectory(prefix="share-") as folder:
        yield {
            "PATH": path_of_tools,
            "MPS_DAEMON": str(tools / "nvidia-cuda-mps-server"),
            "LD_LIBRARY_PATH": str(built.folder),
            "LD_PRELOAD": str(path),
            "HEADWAY_CUPTI": str(path),
            "HEADWAY_SHARE_LIBRARY": str(built.shim),
            "HEADWAY_SHARE_FOLDER": folder,
            "HEADWAY_SHARE_ANY_GPU": "1",
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
        }
        assert list(Path(folder).iterdir()) == []

"""Weights on disk are used by the next server only where all that they come from is as it was."""

import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from headway.errors import InputError
from tests.fleet.live.weights.test_residents import Counted, Files, Tied, host_in, ready


class Saved:
    """Builds a model with the weight that a file holds."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __call__(self) -> torch.nn.Module:
        net = torch.nn.Linear(3, 2)
        if not net.weight.is_meta:
            net.weight.data.fill_(float(self.file.read_text()))
        return net


def restarted(folder: Path, files: Files, build: Callable[[], Any], said: list[str]) -> float:
    """The weight that the next server serves: nothing of the last one is left in host memory."""
    shutil.rmtree(folder / "host", ignore_errors=True)
    model = ready(host_in(folder, disk=True, said=said, files=files, server=os.urandom(4).hex()), build)
    model.load()
    return float(model.value.weight[0, 0])


@pytest.mark.parametrize("files", [("weights.txt",), (), None])
def test_the_next_server_never_serves_weights_of_a_file_that_has_changed(tmp_path: Path, files: Files) -> None:
    said: list[str] = []
    file = tmp_path / "weights.txt"
    for number in (1, 2, 2, 3):
        file.write_text(str(number))
        assert restarted(tmp_path, files, Saved(file), said) == number
    undeclared = f"model net reads {file}, not in its files: its weights are not kept for the next start"
    assert [line.partition(";")[0] for line in said] == ([undeclared] * 4 if files == () else [])
    assert (tmp_path / "disk" / "net.safetensors").exists() == bool(files)


def test_weights_whose_files_are_as_they_were_are_built_once(tmp_path: Path) -> None:
    file = tmp_path / "weights" / "of.txt"
    file.parent.mkdir()
    file.write_text("5")
    build = Counted(Saved(file))
    for _ in range(3):
        assert restarted(tmp_path, ("weights",), build, []) == 5
    assert build.times == 1


def test_a_module_that_the_application_imports_is_part_of_it(tmp_path: Path) -> None:
    helper = tmp_path / "a_helper_of_mine.py"
    app = tmp_path / "app.py"
    app.write_text("import a_helper_of_mine")
    found = []
    for text in ("SCALE = 1", "SCALE = 2", "SCALE = 2"):
        helper.write_text(text)
        program = (
            "import sys; from pathlib import Path\n"
            "from headway.fleet.live.weights.origins import Origins\n"
            "from headway.program.pipeline import Model\n"
            f"sys.path.append({str(tmp_path)!r}); exec(Path({str(app)!r}).read_text())\n"
            f"print(Origins(Path({str(app)!r}), [Model('net', int, None, ())]).stamps['net'])"
        )
        found.append(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)
    assert found[0] != found[1] == found[2]


def test_a_module_that_the_function_imports_by_itself_is_not_declared(tmp_path: Path) -> None:
    (tmp_path / "late_helper_of_mine.py").write_text("SCALE = 1")
    said: list[str] = []
    host = host_in(tmp_path, disk=True, said=said)

    def build() -> Any:
        sys.path.append(str(tmp_path))
        importlib.import_module("late_helper_of_mine")
        sys.path.remove(str(tmp_path))
        return Tied()

    ready(host, build)
    assert [line.split(",")[0] for line in said] == [f"model net reads {tmp_path / 'late_helper_of_mine.py'}"]
    assert not (tmp_path / "disk").exists()


def test_a_declared_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^model net: files: there is no /.*/none\.pt$"):
        host_in(tmp_path, files=("none.pt",))

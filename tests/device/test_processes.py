"""Who is meant by a number: that very process, here or in a container below."""

import os
import subprocess
from pathlib import Path

from headway.device import processes


def test_a_process_lives_until_it_ended_even_if_nobody_waited_for_it() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        ticks = processes.start_ticks(child.pid)
        assert ticks > 0
        assert processes.alive(child.pid, ticks)
        assert processes.alive(child.pid, 0)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, and not waited for
        assert not processes.alive(child.pid, ticks)


def test_another_process_with_the_same_number_is_another() -> None:
    assert not processes.alive(os.getpid(), processes.start_ticks(os.getpid()) + 1)
    assert processes.start_ticks(2**22 + 1) == 0
    assert not processes.alive(2**22 + 1, 0)


def _process(proc: Path, pid: int, name: str, ticks: int, inner: str) -> None:
    (proc / str(pid)).mkdir(parents=True)
    fields = ["S", *(["0"] * 18), str(ticks), "0"]
    (proc / str(pid) / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n")
    (proc / str(pid) / "status").write_text(f"Name:\tx\nNSpid:\t{inner}\n")


def test_a_client_in_a_container_is_found_by_its_beginning(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    _process(tmp_path, 17, "a) (b", 5, "17")
    _process(tmp_path, 4001, "python", 900, "4001\t17")
    _process(tmp_path, 4002, "python", 900, "4002\t18")
    assert processes.pid_here(17, 5, tmp_path) == 17
    assert processes.pid_here(17, 900, tmp_path) == 4001
    assert processes.pid_here(18, 900, tmp_path) == 4002
    assert processes.pid_here(19, 900, tmp_path) == 0
    assert processes.pid_here(99, 0, tmp_path) == 0


def test_who_holds_a_file_open(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with path.open("w"):
        assert processes.has_open(os.getpid(), path)
    assert not processes.has_open(os.getpid(), path)
    assert not processes.has_open(2**22 + 5, path)
    assert not processes.has_open(os.getpid(), tmp_path / "none")

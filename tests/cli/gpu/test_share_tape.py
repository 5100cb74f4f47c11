"""The tape of ``headway share`` from end to end: written by a real broker, shown while it runs and after a kill."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

from headway.device import locks as places
from headway.gpu.share.recorded.metrics import SharedProgram, shared_run
from headway.runs.folder.folder import open_run
from tests.cli.conftest import Shared
from tests.cli.gpu.test_share import LONG, PATIENCE_S, awaited, clients, running, shown
from tests.native.harness import ROOT


def headway(shared: Shared, *words: str) -> tuple[int, str, str]:
    """Run a command of headway's to its end."""
    done = subprocess.run(
        [sys.executable, "-m", "headway", *words],
        env=shared.environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def recorded(folder: Path, wanted: int) -> set[str]:
    """Return the programs on a tape, once there are so many with counters."""

    def look() -> tuple[SharedProgram, ...]:
        return shared_run(open_run(folder).tape).programs if (folder / "tape.arrow").exists() else ()

    programs = awaited(look, lambda programs: sum(1 for each in programs if each.last[0]) >= wanted)
    return {each.name for each in programs}


def watched(shared: Shared, wanted: bytes) -> tuple[int, bytes]:
    """Return the status and the output of ``status --watch`` in a terminal that is made narrower, ended by Ctrl-C.

    What is wanted is drawn before each of these, and drawn anew in the narrow terminal.
    """
    pid, terminal = pty.fork()
    if pid == 0:
        own = {name: text for name, text in shared.environment.items() if name not in ("COLUMNS", "LINES")}
        words = [sys.executable, "-m", "headway", "share", "status", "--watch", "--every", "200ms"]
        os.execve(sys.executable, words, {**own, "TERM": "xterm-256color"})
    until = time.monotonic() + PATIENCE_S

    def drawn(is_enough: Callable[[bytes], bool]) -> bytes:
        out = b""
        while not is_enough(out) and time.monotonic() < until:
            if select.select([terminal], [], [], 0.1)[0]:
                try:
                    out += os.read(terminal, 65536)
                except OSError:  # it has ended
                    break
        return out

    def resize(columns: int) -> None:
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))

    resize(150)
    out = drawn(lambda out: wanted in out)
    resize(70)
    out += drawn(lambda out: out.count(wanted) > 1)  # the first may have been drawn for the wider one
    os.kill(pid, signal.SIGINT)
    out += drawn(lambda _: False)
    if time.monotonic() >= until:
        os.kill(pid, signal.SIGKILL)
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), out


def test_a_tape_is_shown_while_the_broker_runs_and_after_it_was_killed(shared: Shared, tmp_path: Path) -> None:
    folder, page = tmp_path / "tape", tmp_path / "page.html"
    with running(shared, "--priority", "0", "--name", "api", "--out", str(folder), "--", shared.client, *LONG):
        clients(shared, lambda rows: "api" in rows)  # it has started the broker: the folder may hold a tape by now
        with running(shared, "--priority", "9", "--name", "batch", "--slo", "1.2", "--", shared.client, *LONG):
            clients(shared, lambda rows: {"api", "batch"} <= set(rows))
            assert recorded(folder, 2) == {"api", "batch"}
            status, _, err = headway(shared, "report", str(folder), "-o", str(page))
            assert status == 0, err
            assert "the tape has no end, for the broker still runs or was killed" in err
            assert "its broker still runs, or was killed" in page.read_text()
            shown(shared, f"tape: headway report {folder}")
            status, drawn = watched(shared, b"harvested by batch")
            assert status == 0
            assert "harvested by batch" in drawn.decode(errors="replace")
            assert (drawn.count(b"\x1b[?1049h"), drawn.count(b"\x1b[?1049l")) == (1, 1), "its own screen, left again"
            assert drawn.rfind(b"\x1b[?25h") > drawn.rfind(b"\x1b[?25l"), "the cursor is shown again"
            os.kill(places.holder(shared.folder / "headway-share-0.lock"), signal.SIGKILL)
            for words in (("summary", str(folder)), ("story", str(folder), "batch"), ("audit", str(folder))):
                status, told, err = headway(shared, *words)
                assert status == 0, (words, told, err)
                assert "batch" in told or "sound" in told
            status, _, err = headway(shared, "replay", str(folder))
            assert (status, err.count("\n")) == (2, 2)
            assert "a broker recorded this run on a real GPU" in err


def test_without_out_it_lies_in_the_state_folder_and_can_be_left_out(shared: Shared) -> None:
    state = Path(shared.environment["XDG_STATE_HOME"]) / "headway" / "share" / "gpu-0"
    command = ("--", shared.client, "--for-ms", "300", "--kernel", "a:50")
    assert shared.do("run", "--linger", "60s", *command)[0] == 0
    told = shared.do("run", "--out", str(shared.kept / "other"), *command)[2]
    assert "has its tape at" in told
    assert told.endswith(": --out changes nothing\n")
    assert shared.do("stop")[0] == 0
    (folder,) = state.iterdir()
    run = open_run(folder)
    assert run.complete
    assert [each.how for each in shared_run(run.tape).programs] == ["left", "left"]
    assert not (shared.kept / "other").exists()
    assert shared.do("run", "--linger", "0s", "--out", "none", *command)[0] == 0
    shared.do("stop")
    assert list(state.iterdir()) == [folder]

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
from pathlib import Path

from headway.experiment.folder import open_run
from headway.live.kernels import places
from headway.metrics.share import shared_run
from tests.cli.conftest import Shared
from tests.cli.test_share import LONG, clients, running
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
    """The programs on a tape, once there are so many with counters."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        if (folder / "tape.arrow").exists():
            run = shared_run(open_run(folder).tape)
            if sum(1 for each in run.programs if each.last[0]) >= wanted:
                return {each.name for each in run.programs}
        time.sleep(0.1)
    raise AssertionError(f"{folder}: not on the tape")


def watched(shared: Shared, seconds: float) -> tuple[int, bytes]:
    """The status and the output of ``status --watch`` in a terminal that is made narrower, ended by Ctrl-C."""
    pid, terminal = pty.fork()
    if pid == 0:
        own = {name: text for name, text in shared.environment.items() if name not in ("COLUMNS", "LINES")}
        words = [sys.executable, "-m", "headway", "share", "status", "--watch", "--every", "200ms"]
        os.execve(sys.executable, words, {**own, "TERM": "xterm-256color"})
    out, begun, stopped = b"", time.monotonic(), False
    for columns, until in ((150, seconds / 2), (70, seconds), (70, seconds + 30)):
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        while time.monotonic() - begun < until:
            if until > seconds and not stopped:
                os.kill(pid, signal.SIGINT)
                stopped = True
            if select.select([terminal], [], [], 0.1)[0]:
                try:
                    out += os.read(terminal, 65536)
                except OSError:  # it has ended
                    break
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), out


def test_a_tape_is_shown_while_the_broker_runs_and_after_it_was_killed(shared: Shared, tmp_path: Path) -> None:
    folder, page = tmp_path / "tape", tmp_path / "page.html"
    out = ("--out", str(folder))  # of both: either may be the first, which starts the broker
    with (
        running(shared, "--priority", "0", "--name", "api", *out, "--", shared.client, *LONG),
        running(shared, "--priority", "9", "--name", "batch", "--slo", "1.2", *out, "--", shared.client, *LONG),
    ):
        clients(shared, lambda rows: {"api", "batch"} <= set(rows))
        assert recorded(folder, 2) == {"api", "batch"}
        status, _, err = headway(shared, "report", str(folder), "-o", str(page))
        assert status == 0, err
        assert "the tape has no end, for the broker still runs or was killed" in err
        assert "its broker still runs, or was killed" in page.read_text()
        assert f"tape: headway report {folder}" in shared.do("status")[1]
        status, drawn = watched(shared, 5)
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

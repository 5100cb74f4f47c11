"""The program in processes of its own: started, watched, killed; and a policy that is as slow as it is told."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from headway.core.tasks import Far, Progress
from headway.errors import ExperimentError

SLOW = '''
"""First come, first served; a tenth of a second for each job that comes, until there is a file called go beside it."""

import os
from pathlib import Path
from time import sleep

from headway.jobs.policies.orders.fifo import Fifo

HERE = Path(__file__).parent


class Slow(Fifo):
    name = "slow"

    def key(self, now, js):
        (HERE / f"at-{os.getpid()}").touch()
        if not (HERE / "go").exists():
            sleep(0.1)
        return super().key(now, js)
'''


def work(task: Any, told: Progress | None) -> Any:
    """What a pool does in tests: a number is squared; other words say what goes wrong."""
    if isinstance(task, Path) and not task.exists():
        task.write_text("")
        os.kill(os.getpid(), signal.SIGKILL)
    if task == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if task == "wrong":
        raise ExperimentError("this is wrong")
    if told is not None:
        told(Far(1, 2, 3, 4, 5, 6))
    return task**2 if isinstance(task, int) else "again"


def slow_policy(folder: Path) -> str:
    """The slow policy, in a folder of its own."""
    folder.mkdir()
    (folder / "slow.py").write_text(SLOW)
    return f"{folder / 'slow.py'}:Slow"


def at_work(folder: Path) -> set[int]:
    """The processes that have come to decide under it."""
    return {int(path.name.removeprefix("at-")) for path in folder.glob("at-*")}


def program(*arguments: object) -> subprocess.Popen[str]:
    """The program in a process of its own."""
    source = str(Path(__file__).resolve().parent.parent / "src")
    return subprocess.Popen(
        [sys.executable, "-m", "headway", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": source},
    )


def until(holds: Callable[[], object], running: subprocess.Popen[str] | None = None) -> None:
    """Wait for something that a program at work brings about."""
    began = monotonic()
    while not holds():
        assert running is None or running.poll() is None, running.communicate()
        assert monotonic() - began < 120
        sleep(0.02)


def gone(process: int) -> bool:
    """Whether it has ended; what nobody has waited for yet has."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True

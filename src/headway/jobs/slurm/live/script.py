"""The batch script of a program: starts it as it was submitted, and writes down how it ended.

Slurm forgets a job some minutes after its end; what stands in the folder of the job stays. The script is Python, so
that no shell sees arguments, and needs nothing but Python's own library. SIGTERM is passed on to the program, and no
two runs of a job are there at once where the folder's file system has locks.
"""

import json
from pathlib import Path

from headway.jobs.live.store import Program
from headway.program.protocol import CHECKPOINTS, PROGRESS, SAVED_FILE

LEASE, BEGAN, EXIT, SAVED_MARK = "lease", "began", "exit", "saved"
"""Files in the folder of a job; the last three with the number of the lease behind them."""
GIVEN = "given-back"
"""A file there that says that the job was given back to Slurm, which forgets that too."""
_TEXT = """\
#!/usr/bin/env python3
import fcntl, json, os, signal, subprocess, sys, time

TOLD = json.loads({told!r})
folder = TOLD["folder"]


def at(name):
    return os.path.join(folder, name + "-" + lease)


def write(path, text):
    with open(path + ".new", "w") as file:
        file.write(text)
    os.replace(path + ".new", path)


try:
    with open(os.path.join(folder, "lease")) as file:
        lease = file.read().strip()
    if os.path.exists(at("exit")):
        os.remove(at("exit"))
    write(at("began"), os.environ.get("SLURM_JOB_ID", ""))
    lock = os.open(os.path.join(folder, "running"), os.O_RDWR | os.O_CREAT, 0o600)
except OSError as problem:
    sys.exit("the folder of the queue is not there on this node: %s" % problem)
while True:  # a controller that forgot a run may start another before that one is gone
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        break
    except BlockingIOError:
        time.sleep(0.2)
    except OSError:
        break  # a file system without locks
kept = {{name: value for name, value in os.environ.items() if name.startswith(tuple(TOLD["kept"]))}}
own = {{"HEADWAY_LEASE": lease, TOLD["saved"]: at("saved"), TOLD["progress"]: at("progress")}}
own["HEADWAY_STARTED_AGAIN"] = "0" if os.environ.get("SLURM_RESTART_COUNT", "0") == "0" else "1"
child = None


def pass_on(number, frame):
    if child is None:
        os._exit(128 + number)
    child.send_signal(number)


signal.signal(signal.SIGTERM, pass_on)
try:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    child = subprocess.Popen(
        TOLD["command"],
        cwd=TOLD["cwd"],
        env=dict(TOLD["environment"], **kept, **own),
        stdin=subprocess.DEVNULL,
        pass_fds=(lock,),
        preexec_fn=lambda: (
            signal.signal(signal.SIGTERM, signal.SIG_DFL),
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM]),
        ),
    )
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    status = child.wait()
except (OSError, ValueError, subprocess.SubprocessError) as problem:
    print("%s cannot be run: %s" % (TOLD["command"][0], problem), file=sys.stderr, flush=True)
    status = 127 if isinstance(problem, FileNotFoundError) else 126
if os.path.exists(at("saved")):
    status = TOLD["again"]
write(at("exit"), str(status))
if status < 0:
    signal.signal(-status, signal.SIG_DFL) if -status != signal.SIGKILL else None
    os.kill(os.getpid(), -status)
sys.exit(status)
"""


def script_of(program: Program, folder: Path, job: int, again: int) -> str:
    """Return the script; ``again``: the exit status that says saved."""
    told = {
        "folder": str(folder),
        "command": program.command,
        "cwd": program.folder,
        "environment": {**program.environment, "HEADWAY_JOB": str(job), CHECKPOINTS: str(folder / "checkpoints")},
        "kept": ["SLURM", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES"],
        "saved": SAVED_FILE,
        "progress": PROGRESS,
        "again": again,
    }
    return _TEXT.format(told=json.dumps(told))

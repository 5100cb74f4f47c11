"""Small programs to profile: what they do is known, so what is measured of them can be checked."""

import sys
from pathlib import Path

HEAD = """
import os, struct, sys, time
file = os.open(os.environ["HEADWAY_STEPS"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
def step(samples=1):
    os.write(file, struct.pack("<qq", time.monotonic_ns(), samples))
def spin(seconds):
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass
"""
HUNGRY = HEAD + "while True:\n    spin(0.01)\n    step(4)\n"
"""As many steps as CPU time, up to one CPU: 100 a second with a whole one."""
SLEEPER = HEAD + "while True:\n    time.sleep(0.01)\n    step(4)\n"
"""Next to no CPU time."""
FAMILY = (
    HEAD
    + """
import subprocess
folder = sys.argv[1]
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
open(os.path.join(folder, "processes"), "w").write(f"{os.getpid()} {child.pid}")
while True:
    time.sleep(0.01)
    step()
"""
)
"""Starts another process, in a session of its own, and says who they are."""
PRINTER = "import time\nfor i in range(10**6):\n    time.sleep(0.01)\n    print(f'epoch 0 step {10 * i} loss 0.5')\n"


def written(folder: Path, source: str, name: str = "train.py") -> list[str]:
    """A program in a file, and the command for it."""
    path = folder / name
    path.write_text(source)
    return [sys.executable, str(path)]

"""Program of the fault test: counts steps, saves every few of them, notices when it runs twice at once.

``queue_faults_program.py FILE STEPS`` takes ``STEPS`` steps of 10 ms in all, over all its starts. It holds a lock on
``FILE`` while it runs. Each start and each end is a line there; ``FILE.saved`` is its checkpoint.
"""

import fcntl
import os
import signal
import sys
import time

STEP_S, SAVE_EVERY, SAVED = 0.01, 10, 85


def main(path: str, steps: int) -> int:
    """Count to the end, or until it is asked to save."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)

    def say(line: str) -> None:
        os.write(handle, f"{line} {os.getpid()} {os.environ.get('HEADWAY_LEASE', '-')}\n".encode())

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("twice")
        return 1
    asked = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
    done = saved(path)
    say(f"start {done}")
    while done < steps:
        time.sleep(STEP_S)
        done += 1
        if done % SAVE_EVERY == 0 or asked:
            save(path, done)
        if asked:
            say(f"saved {done}")
            return SAVED
        say(f"step {done}")
    say(f"end {done}")
    return 0


def saved(path: str) -> int:
    """Return the steps in the checkpoint; 0 without one."""
    try:
        with open(f"{path}.saved") as file:
            return int(file.read())
    except FileNotFoundError:
        return 0


def save(path: str, done: int) -> None:
    """Write the checkpoint in one go."""
    with open(f"{path}.draft", "w") as file:
        file.write(str(done))
    os.replace(f"{path}.draft", f"{path}.saved")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))

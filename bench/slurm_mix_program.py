"""Program of a job of ``slurm_mix.py``: works for a time in all, over all its starts; saves on SIGTERM.

``slurm_mix_program.py FILE SECONDS SAVE_S LOAD_S``. What happens is appended to the file, a line each with the time:
``began``, ``loaded``, ``saved WORK``, ``ended``. Loading and saving take time and are no work.
"""

import signal
import sys
import time

SAVED = 85


def work(path: str, seconds: float, save_s: float, load_s: float) -> int:
    """Work for what is left, or until it is asked to save; return the exit status."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    note(path, "began")
    if done := done_of(path):
        time.sleep(load_s)
        note(path, "loaded")
    began = time.monotonic()
    if signal.sigtimedwait({signal.SIGTERM}, max(0.0, seconds - done)) is None:
        note(path, "ended")
        return 0
    done += time.monotonic() - began
    time.sleep(save_s)
    note(path, f"saved {done:.3f}")
    return SAVED


def note(path: str, what: str) -> None:
    """Write down what happened."""
    with open(path, "a") as file:
        file.write(f"{time.time():.3f} {what}\n")


def done_of(path: str) -> float:
    """Return the work that the last checkpoint has."""
    with open(path) as file:
        saved = [line.split() for line in file if " saved " in line]
    return float(saved[-1][2]) if saved else 0.0


if __name__ == "__main__":
    sys.exit(work(sys.argv[1], *map(float, sys.argv[2:5])))

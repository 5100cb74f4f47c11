"""Start a limited program: join its control groups, pin it to CPUs, tie its life to the profiler's, then exec it.

It is a program of its own, with the standard library only, because code between fork and exec of a process with threads
may hang; and because the limits must hold before the program's first instruction. It is called as
``launch.py PARENT CPU,CPU,… GROUP… -- COMMAND``; each group is a ``cgroup.procs`` or ``tasks`` file.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
FAILED = 126


def main(arguments: list[str]) -> None:
    """Become the program: this never returns."""
    split = arguments.index("--")
    parent, cpus, *groups = arguments[:split]
    command = arguments[split + 1 :]
    for group in groups:
        with open(group, "w") as file:
            file.write("0")
    if cpus:
        os.sched_setaffinity(0, {int(cpu) for cpu in cpus.split(",")})
    # The profiler kills the group in any case that it lives to see; this is for when it is killed itself. What the
    # program has started by then lives on, and is swept when the next profiling starts.
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(parent):
        os.kill(os.getpid(), signal.SIGKILL)
    os.execvp(command[0], command)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except OSError as problem:
        sys.stderr.write(f"{problem.filename or sys.argv[-1]}: {problem.strerror}\n")
        sys.exit(FAILED)

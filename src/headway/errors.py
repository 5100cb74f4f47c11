"""Every exception that headway raises on purpose.

HeadwayError
├── InputError            what the user gave is wrong: one clear line, exit status 2
│   ├── TraceError        a trace cannot be read, or a row of it breaks a rule
│   ├── ExperimentError   a flag, a key or a value of an experiment is wrong
│   │   └── NoSuchRunError  a comparison has no run at this position; an IndexError too
│   ├── InfeasibleJobError  a job that no empty cluster of this kind could run
│   ├── CheckpointError   a checkpoint cannot be written, or a program cannot go on from it
│   ├── ProfileError      a profile is broken, or a program could not be profiled
│   ├── QueueError        jobs cannot be queued or run as asked: no queue, a folder that is taken, a store that is full
│   ├── SlurmError        Slurm refuses a command
│   │   └── SlurmAwayError    nobody answers: no commands, no controller
│   ├── ServeError        pipelines cannot be served or called: no worker starts, nobody is there, a port is taken
│   │   └── NoServerError   nobody answers at the address or in the folder
│   ├── ShareError        programs cannot share a GPU: no GPU, no broker, a setting out of range
│   └── TapeError         a run folder or tape that is missing, broken or in the way
├── RequestError          a request that was sent to a server has no answer
│   ├── UnknownGraphError   the server has no such graph; an InputError too
│   ├── RequestRefusedError it was not taken, or given up; later it may be
│   ├── RequestLateError    its deadline has passed
│   ├── RequestLostError    the connection ended before its answer came
│   └── TaskFailedError     one of its tasks raised an error
├── ChangedInputError     a policy changed the workload that it was shown: a bug of the policy
├── InfeasibleActionError a policy asked for what cannot be done, on a view that is exact: a bug of the policy
└── StalledRunError       work is waiting, nothing will ever happen again: a bug of the policy

Terminated is none of them: the end of the program by SIGTERM, wherever it is, as KeyboardInterrupt is by Ctrl-C.
"""

import signal
import unicodedata
from collections.abc import Iterable
from difflib import get_close_matches


class HeadwayError(Exception):
    """Anything that headway raises on purpose."""


class InputError(HeadwayError):
    """What the user gave is wrong; the text is one line that says what, the value and the rule."""


class TraceError(InputError):
    """A trace cannot be read, or a row of it breaks a rule."""


class NoJobsError(TraceError):
    """A trace can be read, and none of its jobs is of the time that is asked for, or can be played."""


class ExperimentError(InputError):
    """A flag, a key or a value of an experiment is wrong."""


class NoSuchRunError(ExperimentError, IndexError):
    """A comparison has no run at this position."""


class InfeasibleJobError(InputError):
    """A job that could not run even on an empty cluster."""


class CheckpointError(InputError):
    """A checkpoint cannot be written, or is of another program, or of another number of processes."""


class ProfileError(InputError):
    """A profile that is broken or missing, or a program that could not be profiled."""


class ShareError(InputError):
    """Programs cannot share a GPU as asked: no GPU, no driver, no broker, a setting out of range."""


class QueueError(InputError):
    """Jobs cannot be queued or run as asked: no queue is there, its folder is taken, its store cannot be written."""


class SlurmError(InputError):
    """Slurm refuses a command; ``denied``: for want of rights."""

    def __init__(self, reason: str, *, denied: bool = False) -> None:
        super().__init__(reason)
        self.denied = denied


class SlurmAwayError(SlurmError):
    """Nobody answers: Slurm's commands are not here, or its controller does not run."""


class ServeError(InputError):
    """Pipelines cannot be served or called as asked: no worker starts, nobody is there, a port is taken."""


class NoServerError(ServeError):
    """Nobody answers at the address or in the folder of a server."""


class RequestError(HeadwayError):
    """A request that was sent to a server has no answer; the text is one line that says why."""


class UnknownGraphError(RequestError, InputError):
    """The server has no such graph."""


class RequestRefusedError(RequestError):
    """A request was not taken, or given up before its deadline; it may be sent again."""

    def __init__(self, reason: str, retry_after_s: float = 1.0) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


class RequestLateError(RequestError):
    """A request was not answered by its deadline."""


class RequestLostError(RequestError):
    """The connection ended before the answer came; the server may have computed it."""


class TaskFailedError(RequestError):
    """A task of a request raised an error."""


class TapeError(InputError):
    """A run folder or tape that is missing, broken or in the way."""


class ChangedInputError(HeadwayError):
    """A policy changed the workload that it was shown, so that its numbers mean nothing."""


class InfeasibleActionError(HeadwayError):
    """A policy asked for what cannot be done although its view was exact."""


class StalledRunError(HeadwayError):
    """Jobs wait, and nothing is left that could ever start them."""


class Terminated(SystemExit):
    """The end of the program by SIGTERM."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)


_JOINERS = "\u200c\u200d"
"""Zero-width characters that letters of some scripts and emoji need."""


def printable(text: str) -> str:
    r"""Return the text on one line, safe for a terminal: control characters as escapes, ``\x1b``, ``\n``, ``\u202e``.

    Names come from traces and files of others: what moves the cursor, changes colours or turns the direction of writing
    is shown, not obeyed. Letters of any script, spaces of any width and brackets stay as they are.
    """
    if text.isprintable():
        return text
    return "".join(
        each
        if each.isprintable() or each in _JOINERS or unicodedata.category(each) == "Zs"
        else each.encode("unicode_escape").decode("ascii")
        for each in text
    )


def unknown_name(what: str, name: str, valid: Iterable[str]) -> str:
    """Return the message for a name that does not exist: the nearest valid one, then all of them."""
    names = sorted(valid)
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"unknown {what} {name!r}{hint} (valid: {', '.join(names)})"

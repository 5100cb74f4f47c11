"""Run the command line: parse the arguments, call a command, turn errors into one line and an exit code.

Results go to stdout and nothing else does; progress, notes and errors go to stderr. Wrong input is one line and exit
status 2, a bug is one line and 1, a run that Ctrl-C stopped exits with 130, one that SIGTERM stopped with 143.
``HEADWAY_DEBUG=1`` shows tracebacks.
"""

import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from headway.errors import HeadwayError, InputError, Terminated, printable

STOPPED = 128 + signal.SIGINT


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program and exit with its status."""
    try:
        status = _program(arguments)
    except HeadwayError as problem:
        _fail(str(problem), 2 if isinstance(problem, InputError) else 1, problem)
    except KeyboardInterrupt:
        _fail("stopped", _stopped_status())
    except Terminated as ended:
        sys.stderr.write("headway: ended by SIGTERM\n")
        sys.exit(ended.code)
    except BrokenPipeError as problem:
        if (line := _blamed(problem)) is not None:
            _fail(line, 2, problem)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except (MemoryError, OverflowError, OSError) as problem:
        _fail(_blamed(problem) or f"{type(problem).__name__}: {problem}", 2, problem)
    except SystemExit as problem:  # headway's own, unless it comes out of somebody's policy
        if (line := _blamed(problem)) is not None:
            _fail(line, 2, problem)
        raise
    except BaseException as problem:  # noqa: BLE001 - the last resort: one line instead of a traceback
        if (line := _blamed(problem)) is not None:
            _fail(line, 2, problem)
        _fail(f"internal error: {type(problem).__name__}: {problem}; HEADWAY_DEBUG=1 shows all", 1, problem)
    sys.exit(status)


def _stopped_status() -> int:
    stopping = sys.modules.get("headway.runs.stopping")
    return STOPPED if stopping is None else int(stopping.status())  # None: no run was begun


def _blamed(problem: BaseException) -> str | None:
    blame = sys.modules.get("headway.runs.blame")  # None: the commands themselves could not be imported
    line: str | None = blame.blamed(problem) if blame is not None else None
    return line


def _program(arguments: Sequence[str] | None) -> int:
    """Return the exit status of the command that was asked for."""
    import typer

    words = sys.argv[1:] if arguments is None else list(arguments)
    app = _commands(words)
    usage_error: Any = typer.BadParameter.__bases__[0]  # of the click that typer uses, which may be its own copy
    command = typer.main.get_command(app)
    try:
        status = command.main(words, prog_name="headway", standalone_mode=False)
    except usage_error as problem:
        if not problem.format_message():  # no command: the help was printed
            return 2
        _fail(_told(problem, words), 2, problem)
    except typer.Abort:
        raise KeyboardInterrupt from None
    sys.stdout.flush()
    if status == STOPPED:  # typer turns Ctrl-C into a status; a run that was stopped exits by itself
        raise KeyboardInterrupt
    return status if isinstance(status, int) else 0


def _told(problem: Any, words: Sequence[str]) -> str:
    """Say what is wrong with a command line, and where a command or flag of before is now."""
    from headway.cli.moved import hint

    line = str(problem.format_message())
    rule = "a whole number" if "valid integer" in line else "a number" if "valid number" in line else ""
    for option in getattr(getattr(problem, "param", None), "opts", ()) if rule else ():
        for word, following in zip(words, [*words[1:], ""], strict=True):
            if word == option or word.startswith(f"{option}="):
                return f"{option}: {following if word == option else word.partition('=')[2]!r} is not {rule}"
    unknown = line.startswith("No such ")
    now = hint(words, getattr(problem, "option_name", "")) if unknown else ""
    return f"{line.partition('.')[0].partition(' (')[0]}: {now}" if now else line


def _commands(given: Sequence[str]) -> Any:
    """Return all commands; only some where one of them is asked for: that is sooner, and machines may lack the rest."""
    if given and given[0] == "share":
        from headway.cli.gpu.sharing import app

        return app
    if list(given[:2]) == ["profile", "kernels"]:
        from headway.cli.gpu.kernel_profiles import app as measuring

        return measuring
    if list(given[:2]) == ["gpu", "predict"]:
        from headway.cli.gpu.prediction import only

        return only()
    if given and given[0] in ("call", "load", "serve"):
        from headway.cli.app import app as serving
        from headway.cli.fleet import calls, serve_status  # noqa: F401 - each adds its commands

        return serving
    if given and given[0] == "queue" and "report" not in given[1:2]:
        from headway.cli.app import app as queueing
        from headway.cli.jobs import queue_jobs  # noqa: F401 - it adds its commands

        return queueing
    from headway.cli.program import app as every

    return every


def _fail(line: str, status: int, problem: BaseException | None = None) -> NoReturn:
    if problem is not None and os.environ.get("HEADWAY_DEBUG"):
        raise problem
    sys.stderr.write(f"headway: {printable(' '.join(line.split()))}\n")
    sys.exit(status)

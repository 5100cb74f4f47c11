"""The template of worker processes: it has imported what workers need, and each worker is forked from it.

``python -m headway.fleet.live.workers.template FD [APP]``. Python and libraries take seconds to start: so all workers
begin from one process that has done that, at the first start as when they are started again. It runs nothing of the
user's: each worker reads the application itself, as it is by then. It starts no thread and touches no GPU, as neither
survives a fork; libraries that do so at their import are left to the workers.
"""

import ast
import gc
import importlib
import importlib.util
import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec import Struct

from headway.fleet.live.weights.origins import is_installed
from headway.fleet.live.workers.worker import serve

MOST_BYTES = 1 << 16
_GPU_FILES = "/dev/nvidia"


class Fork(Struct, frozen=True, tag=0):
    """Fork a worker, whose socket comes with this; answered by ``Forked``."""

    environment: dict[str, str]


class Reap(Struct, frozen=True, tag=1):
    """Take the exit status of a worker that has ended; until then its number is no other's. Answered by ``Reaped``."""

    pid: int


class Forked(Struct, frozen=True, tag=0):
    """A worker runs; 0: the template is ready to fork some."""

    pid: int


class Reaped(Struct, frozen=True, tag=1):
    """How a worker ended: its exit status, or a signal as a negative number."""

    status: int


Asked: TypeAlias = Fork | Reap
Told: TypeAlias = Forked | Reaped
ASKED: msgspec.msgpack.Decoder[Asked] = msgspec.msgpack.Decoder(Asked)
TOLD: msgspec.msgpack.Decoder[Told] = msgspec.msgpack.Decoder(Told)


# --- libraries ----------------------------------------------------------------------------------------------------


def libraries(app: Path) -> list[str]:
    """Return the installed modules that an application imports when it is read, also through files beside it."""
    found: dict[str, None] = {}
    files, seen = [app], {app}
    while files:
        for name in _imports(files.pop()):
            own = app.parent.joinpath(*name.split(".")).with_suffix(".py")
            if _is_library(name):
                found[name] = None
            elif own.is_file() and own not in seen:
                seen.add(own)
                files.append(own)
    return list(found)


def _imports(file: Path) -> Iterator[str]:
    """Yield the modules that a file imports outside its functions; none where it cannot be read."""
    try:
        nodes: list[ast.AST] = [ast.parse(file.read_bytes())]
    except (OSError, SyntaxError, ValueError):
        return  # a worker says it
    while nodes:
        node = nodes.pop(0)
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            nodes.extend(ast.iter_child_nodes(node))


def _is_library(name: str) -> bool:
    try:
        spec = importlib.util.find_spec(name.partition(".")[0])
    except (ImportError, ValueError):
        return False
    return spec is not None and is_installed(spec.origin or "")


def imported(names: list[str]) -> str:
    """Import modules as far as they can be; return why no worker can be forked afterwards, empty: one can."""
    before = len(os.listdir("/proc/self/task"))
    for name in names:
        with suppress(Exception, SystemExit):  # a worker that imports it says why it fails
            importlib.import_module(name)
    if threading.active_count() > 1 or len(os.listdir("/proc/self/task")) > before:
        return "a library starts threads when it is imported"
    for file in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if os.readlink(f"/proc/self/fd/{file}").startswith(_GPU_FILES):
                return "a library uses a GPU when it is imported"
    return ""


# --- the process --------------------------------------------------------------------------------------------------


def main(handle: int, app: Path | None) -> None:
    """Fork workers until the server is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    link = socket.socket(fileno=handle)
    if problem := imported(libraries(app) if app is not None else []):
        sys.stderr.write(f"workers import their libraries themselves: {problem}\n")
        os._exit(1)
    gc.collect()
    gc.freeze()  # pages that nobody writes stay shared
    # What threads there are belong to numpy, scipy and pyarrow, which end them before a fork and start them after it.
    warnings.filterwarnings("ignore", message=".*multi-threaded.*", category=DeprecationWarning)
    link.send(msgspec.msgpack.encode(Forked(0)))
    while True:
        data, handles, _, _ = socket.recv_fds(link, MOST_BYTES, 1)
        if not data:
            os._exit(0)
        asked = ASKED.decode(data)
        if isinstance(asked, Reap):
            link.send(msgspec.msgpack.encode(Reaped(reaped(asked.pid))))
            continue
        if not (pid := os.fork()):
            link.close()
            worker(handles[0], asked.environment)
        os.close(handles[0])
        link.send(msgspec.msgpack.encode(Forked(pid)))


def reaped(pid: int) -> int:
    """Return the exit status of a worker that has ended."""
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def worker(handle: int, environment: dict[str, str]) -> None:
    """Be a worker; does not return."""
    try:
        os.setsid()
        os.environ.update(environment)
        if (numpy := sys.modules.get("numpy")) is not None:
            numpy.random.seed()  # else all workers draw the same; the standard library's sees to itself
        serve(handle)
    finally:
        os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)

"""What the weights of a model come from: the application, the modules of one's own that it imported, declared files.

Weights on disk are used by the next server only where all of that is as it was. A model that declares no files is built
anew by each server: nobody knows what its function reads. One that declares them and reads others is not kept either.
"""

import hashlib
import importlib.util
import os
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import headway
from headway.errors import InputError
from headway.program.pipeline import Model

_LENGTH = 16
_LIBRARIES = ("stdlib", "platstdlib", "purelib", "platlib")
_INSTALLED = tuple(
    {
        os.path.join(os.path.realpath(folder), "")
        for folder in (
            *(sysconfig.get_path(name) for name in _LIBRARIES),
            *site.getsitepackages(),
            site.getusersitepackages(),
            os.path.dirname(headway.__file__),
        )
    }
)
_SYSTEM = ("/proc/", "/sys/", "/dev/", "/etc/", "/usr/share/", "/usr/lib/", "/lib/")
"""What libraries read everywhere, and no weights come from."""
_watchers: list[set[str]] = []
_hooked: list[bool] = []


def is_installed(file: str) -> bool:
    """Return whether a file belongs to Python or an installed library, not to the user."""
    return os.path.realpath(file).startswith(_INSTALLED)


class Origins:
    """What the models of an application come from."""

    def __init__(self, app: Path, models: Iterable[Model]) -> None:
        """Look at all files now; raise InputError where one is not there."""
        app = app.resolve()
        modules = {app, *_own_modules()}
        code = hashlib.sha256()
        for path in sorted(modules):
            code.update(f"{path}\0".encode() + path.read_bytes() + b"\0")
        self._declared = {each.name: _declared(app, each) for each in models if each.files is not None}
        self._known = {str(path) for path in modules}
        self.stamps: Mapping[str, str] = {
            name: _digest(code.digest(), *map(_stamp, _files(paths))) for name, paths in self._declared.items()
        }
        """By model that declares its files: what tells its weights from others."""

    def undeclared(self, model: str, opened: Iterable[str]) -> list[str]:
        """Return which of the files that were opened a model does not declare; none where it declares nothing."""
        declared = [str(path) for path in self._declared.get(model, ())]
        below = tuple(os.path.join(path, "") for path in declared)
        known = {*declared, *self._known}
        found = {_source(path) for path in opened if not path.startswith((*_INSTALLED, *_SYSTEM))}
        return sorted(path for path in found - known if not path.startswith(below)) if model in self._declared else []


def run_stamp(app: Path, host_folder: str) -> str:
    """Return what tells weights that one server made from all others."""
    return _digest(app.read_bytes(), Path(host_folder).name.encode())


@contextmanager
def read_files() -> Iterator[set[str]]:
    """Yield the files that Python opens to read them while the body runs, in whatever thread."""
    if not _hooked:
        _hooked.append(True)
        sys.addaudithook(_on_event)  # for the life of the process: there is no way back
    opened: set[str] = set()
    _watchers.append(opened)
    try:
        yield opened
    finally:
        _watchers[:] = [each for each in _watchers if each is not opened]


def _on_event(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "open" or not _watchers:
        return
    with suppress(Exception):  # an error here would be one of whoever opens the file
        path, mode, flags = arguments
        writes = any(letter in mode for letter in "wax") if mode else flags & os.O_ACCMODE == os.O_WRONLY
        if not writes and not isinstance(path, int) and not os.path.isdir(path):
            for opened in list(_watchers):
                opened.add(os.path.realpath(os.fsdecode(path)))


def _own_modules() -> set[Path]:
    """Return the files of the modules that are loaded and not installed: the user's own."""
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    real = {os.path.realpath(file) for file in files if isinstance(file, str)}
    return {Path(file) for file in real if not is_installed(file) and os.path.isfile(file)}


def _declared(app: Path, model: Model) -> tuple[Path, ...]:
    found = tuple((app.parent / Path(file).expanduser()).resolve() for file in model.files or ())
    for path in found:
        if not path.exists():
            raise InputError(f"model {model.name}: files: there is no {path}")
    return found


def _files(paths: Iterable[Path]) -> list[Path]:
    """Return files, and all that lie in folders."""
    return [file for path in paths for file in (sorted(path.rglob("*")) if path.is_dir() else (path,))]


def _stamp(path: Path) -> bytes:
    found = path.stat()
    return f"{path}\0{found.st_size}\0{found.st_mtime_ns}\0{found.st_ino}".encode()


def _source(path: str) -> str:
    """Return the source of a compiled module, any other file as it is."""
    try:
        return importlib.util.source_from_cache(path) if path.endswith(".pyc") else path
    except ValueError:
        return path


def _digest(*parts: bytes) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "little") + part)
    return found.hexdigest()[:_LENGTH]

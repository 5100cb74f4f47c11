"""Identify what the result of a run depends on: its settings, the files that they name, and the code that runs it.

Two runs of one digest give the same numbers, wherever they run and whatever their files are called. The code is this
package without what only shows results or moves them about, and the installed packages that offer parts of policies.
What a policy's own file imports is not looked at. Which settings name files is said by the scale.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from functools import cache, lru_cache, partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import msgspec

import headway
from headway.errors import TraceError
from headway.experiment.domain import Domain
from headway.experiment.files import scale_of
from headway.experiment.measured import with_run
from headway.experiment.registry import domain_of
from headway.files import stamp
from headway.formats import toml
from headway.formats.plugins import GROUP, anchored, rooted

Located = Callable[[str], list[Path]]
_PLUGIN = re.compile(r"(?:^|\+)\s*([^+()]+\.py):")
_WITHOUT = ("cli", "report", "live")
"""Folders of the package that no number depends on."""


def digest(experiment: Any) -> str:
    """Return what the result of an experiment depends on, as 24 characters."""
    domain = domain_of(experiment)
    tables = msgspec.to_builtins(experiment)
    for key, located in domain.file_keys.items():
        _change(tables, key, partial(_or_contents, located))
    for key in domain.policy_keys:
        _change(tables, key, _with_contents)
    for key in ("seeds", "baseline"):
        del tables["measure"][key]
    if not domain.draws(experiment):
        del tables["run"]["seed"]
    text = json.dumps([code(), tables], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _with_contents(spec: str) -> str:
    """Return a policy with the contents of its files instead of their names."""
    for file in _PLUGIN.findall(spec):
        spec = spec.replace(file, _contents(file))
    return spec


def _or_contents(located: Located, value: str) -> str:
    """Return the contents of the files that a value means; the value where it means none."""
    return _all_contents(located(value)) or value


def _all_contents(files: list[Path]) -> str:
    return "+".join(_contents(str(file)) for file in files)


def _change(document: toml.Document, key: str, way: Callable[[Any], Any]) -> None:
    """Put the value of a key another way, each of several where it is a list; what is empty stays."""
    for leaf, value in list(toml.leaves(document)):
        if leaf == key and value:
            toml.put(document, key, [way(each) for each in value] if isinstance(value, list) else way(value))


def _contents(path: str) -> str:
    return _hashed(path, stamp(path)) if path else ""


@lru_cache(maxsize=256)
def _hashed(path: str, _stamp: tuple[int, ...]) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as problem:
        raise TraceError(f"{path}: cannot be read ({problem.strerror or problem})") from None


@cache
def code() -> str:
    """The version, the sources, and who else offers parts of policies; read once a process."""
    return code_of(Path(headway.__file__).parent)


def code_of(package: Path) -> str:
    """The same for a package that lies there."""
    found = hashlib.sha256(headway.__version__.encode())
    for path in _sources(package):
        found.update(f"\n{path.relative_to(package).as_posix()}\n".encode())
        found.update(path.read_bytes())
    for point in sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)):
        version = point.dist.version if point.dist is not None else ""
        found.update(f"\n{point.name}={point.value} {version}".encode())
    return found.hexdigest()


def _sources(package: Path) -> Iterator[Path]:
    for path in sorted((*package.rglob("*.py"), *package.glob("profiles/*.toml"))):
        if path.relative_to(package).parts[0] not in _WITHOUT:
            yield path


# --- paths that mean the same from everywhere ------------------------------------------------------------------


def in_place(experiment: Any) -> Any:
    """Return the same experiment with absolute paths and no folder: it may run in any process on any machine."""
    domain = domain_of(experiment)
    tables = msgspec.to_builtins(with_run(experiment, out=""))
    for key, located in domain.file_keys.items():
        _change(tables, key, partial(_in_place, located))
    for key in domain.policy_keys:
        _change(tables, key, anchored)
    return toml.typed(tables, domain.tables, "settings")


def _in_place(located: Located, value: str) -> str:
    """Return where the file lies that a value means, or the folder of several; the value itself where it means none."""
    files = located(value)
    return str(files[0].resolve()) if len(files) == 1 else str(Path(value).expanduser().resolve()) if files else value


def grid_in_place(document: toml.Document, axes: dict[str, list[Any]]) -> tuple[toml.Document, dict[str, list[Any]]]:
    """Return a grid whose own files can be found from any folder; what goes by a name keeps it."""
    domain = scale_of(document, "sweep")
    named: toml.Document = json.loads(json.dumps(document))
    again = dict(axes)
    for key, way in _ways(domain).items():
        _change(named, key, way)
        if key in axes:
            again[key] = [way(value) if isinstance(value, str) else value for value in axes[key]]
    baseline = next((value for leaf, value in toml.leaves(document) if leaf == "measure.baseline"), "")
    for key, way in _ways(domain).items():
        if baseline and way(baseline) in again.get(key, ()):
            toml.put(named, "measure.baseline", way(baseline))
            break
    return named, again


def _ways(domain: Domain) -> dict[str, Callable[[str], str]]:
    return {**dict.fromkeys(domain.file_keys, _own_file), **dict.fromkeys(domain.policy_keys, rooted)}


def _own_file(value: str) -> str:
    """Return where a file lies; a name, and what no file can be called, stays as it is."""
    if "\0" in value:
        return value
    path = Path(value).expanduser()
    return str(path.resolve()) if path.exists() or path.suffix else value

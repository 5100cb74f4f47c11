"""What the result of a run depends on: its settings, the files that they name, and the code that runs it.

Two runs of one digest give the same numbers, wherever they run and whatever their files are called. The code is this
package without what only shows results or moves them about, and the installed packages that offer parts of policies.
What a policy's own file imports is not looked at.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import msgspec

import headway
from headway.errors import TraceError
from headway.experiment.arrivals import stamp
from headway.experiment.measured import draws
from headway.experiment.parts import PARTS
from headway.formats import pair_file, profile_file, toml
from headway.formats.plugins import GROUP, anchored, rooted
from headway.formats.settings import Experiment

_PLUGIN = re.compile(r"(?:^|\+)\s*([^+()]+\.py):")
_WITHOUT = ("cli", "report", "live")
"""Folders of the package that no number depends on."""


def digest(each: Experiment) -> str:
    """What the result of an experiment with absolute paths depends on, as 24 characters."""
    tables = msgspec.to_builtins(each)
    tables["trace"]["path"] = _contents(each.trace.path)
    tables["cluster"]["file"] = [_contents(file) for file in each.cluster.file]
    tables["cluster"]["interference"] = _contents(_table(each.cluster.interference))
    tables["speed"]["profiles"] = [_contents(str(file)) for file in profile_file.listed(each.speed.profiles)]
    for key in ("seeds", "baseline"):
        del tables["measure"][key]
    if not draws(each):
        del tables["run"]["seed"]
    for key in PARTS:
        for file in _PLUGIN.findall(tables["policy"][key]):
            tables["policy"][key] = tables["policy"][key].replace(file, _contents(file))
    text = json.dumps([code(), tables], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


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


def in_place(each: Experiment) -> Experiment:
    """The same with absolute paths and no folder: it may run in any process on any machine."""
    trace = each.trace
    if trace.path:
        trace = msgspec.structs.replace(trace, path=_absolute(trace.path))
    table = _table(each.cluster.interference)
    cluster = msgspec.structs.replace(each.cluster, file=_all_absolute(each.cluster.file), interference=table)
    speed = msgspec.structs.replace(each.speed, profiles=_all_absolute(each.speed.profiles))
    policy = msgspec.structs.replace(each.policy, **{key: anchored(getattr(each.policy, key)) for key in PARTS})
    run = msgspec.structs.replace(each.run, out="")
    return msgspec.structs.replace(each, trace=trace, cluster=cluster, policy=policy, speed=speed, run=run)


def grid_in_place(document: toml.Document, axes: dict[str, list[Any]]) -> tuple[toml.Document, dict[str, list[Any]]]:
    """A grid whose files can be found from any folder: traces, clusters, profiles, policies, and such a baseline."""
    named: toml.Document = json.loads(json.dumps(document))
    again = dict(axes)
    for key, absolute in _NAMING_FILES.items():
        for leaf, value in toml.leaves(document):
            if leaf == key:
                toml.put(named, key, absolute(value))
        if key in axes:
            again[key] = [absolute(value) for value in axes[key]]
    for leaf, value in toml.leaves(document):
        if leaf == "measure.baseline":
            found = (
                absolute(value) for key, absolute in _NAMING_FILES.items() if absolute(value) in again.get(key, ())
            )
            toml.put(named, leaf, next(found, value))
    return named, again


def _absolute(path: str) -> str:
    return str(Path(path).expanduser().resolve())


def _table(name: str) -> str:
    """Where a table of pairs lies, whatever it is called here."""
    return _absolute(str(pair_file.path_of(name))) if name else ""


def _own_table(name: str) -> str:
    """The same for a file; a table that goes by a name keeps it, and so does what is no table at all."""
    return _absolute(name) if name.endswith(".json") else name


def _all_absolute(files: list[str] | str) -> list[str]:
    return [_absolute(file) for file in ([files] if isinstance(files, str) else files) if file]


def _text(way: Callable[[str], str]) -> Callable[[Any], Any]:
    """The way for a text that says something, and for each of a list of them; what is neither is judged later."""

    def told(value: Any) -> Any:
        if isinstance(value, list):
            return [told(each) for each in value]
        return way(value) if isinstance(value, str) and value else value

    return told


_NAMING_FILES = {
    "trace.path": _text(_absolute),
    "cluster.file": _text(_absolute),
    "cluster.interference": _text(_own_table),
    "speed.profiles": _text(_absolute),
    **{f"policy.{part}": _text(rooted) for part in PARTS},
}

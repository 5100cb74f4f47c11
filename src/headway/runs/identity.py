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
from headway.errors import InputError, TraceError
from headway.files import stamp
from headway.formats import toml
from headway.plugins import GROUP, SITE, anchored, rooted, site_file
from headway.runs.domain import Domain
from headway.runs.measured import with_run
from headway.runs.registry import domain_of
from headway.runs.settings.files import copied, scale_of

Rewrite = Callable[[str], str]
_PLUGIN = re.compile(r"(?:^|\+)\s*([^+()]+\.py):")
_WITHOUT = (
    *("cli", "show", "door", "device", "jobs/live", "jobs/show", "jobs/slurm/live", "jobs/slurm/shadow"),
    *("fleet/live", "fleet/ray", "fleet/show", "gpu/share", "gpu/show"),
)
"""Folders of the package that no number depends on."""
_SHIPPED = ("fleet/scenarios/shipped", "gpu/programs/shipped", "jobs/profiling/shipped", "profiling")
"""Folders of the package whose files runs read by name."""


def digest(experiment: Any) -> str:
    """Return what the result of an experiment depends on, as 24 characters."""
    domain = domain_of(experiment)
    tables = msgspec.to_builtins(experiment)
    for key, value in list(toml.leaves(tables)):
        if key in domain.file_keys and value:
            values = value if isinstance(value, list) else [value]
            toml.put(tables, key, "\n".join(_or_contents(domain, key, each) for each in values))
    for key in domain.policy_keys:
        _change(tables, key, _with_contents)
    for key in ("seeds", "baseline"):
        del tables["measure"][key]
    if not domain.draws(experiment):
        del tables["run"]["seed"]
    text = json.dumps([code(), tables], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _with_contents(spec: str) -> str:
    """Return a policy with the contents of its files instead of their names; of a site's settings what they come to."""
    if spec.startswith(SITE):
        return f"{SITE}{anchored(spec)} {_contents(site_file(spec))}"
    for file in _PLUGIN.findall(spec):
        spec = spec.replace(file, _contents(file))
    return spec


def _or_contents(domain: Domain, key: str, value: str) -> str:
    """Return the contents of the files that a value means, and what is said of them; the value where it means none."""
    before, name, after = domain.split_file_value(value)
    files = domain.file_keys[key](name)
    return before + "\n".join(_contents(str(file)) for file in files) + after if files else value


def _change(document: toml.Document, key: str, rewrite: Rewrite) -> None:
    """Rewrite the value of a key."""
    for leaf, value in list(toml.leaves(document)):
        if leaf == key:
            toml.put(document, key, _changed(value, rewrite))


def _changed(value: Any, rewrite: Rewrite) -> Any:
    """Return a text rewritten, or each of a list of texts; empty values and other types are returned as they are."""
    if isinstance(value, list):
        return [_changed(each, rewrite) for each in value]
    return rewrite(value) if isinstance(value, str) and value else value


def _contents(path: str) -> str:
    return _hashed(path, stamp(path)) if path else ""


@lru_cache(maxsize=256)
def _hashed(path: str, _stamp: tuple[int, ...]) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError) as problem:
        raise TraceError(f"{path}: cannot be read ({getattr(problem, 'strerror', None) or problem})") from None


@cache
def code() -> str:
    """Return a digest of version, sources, and packages that offer parts of policies; read once a process."""
    return code_of(Path(headway.__file__).parent)


def code_of(package: Path) -> str:
    """Return the same digest for the package in a folder."""
    digest = hashlib.sha256(headway.__version__.encode())
    for path in _sources(package):
        digest.update(f"\n{path.relative_to(package).as_posix()}\n".encode())
        digest.update(path.read_bytes())
    for point in sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)):
        version = point.dist.version if point.dist is not None else ""
        digest.update(f"\n{point.name}={point.value} {version}".encode())
    return digest.hexdigest()


def _sources(package: Path) -> Iterator[Path]:
    shipped = (path for folder in _SHIPPED for path in (package / folder).rglob("*") if path.is_file())
    for path in sorted({*package.rglob("*.py"), *shipped}):
        folder = f"{path.relative_to(package).parent.as_posix()}/"
        if not folder.startswith(tuple(f"{name}/" for name in _WITHOUT)) and "__pycache__" not in path.parts:
            yield path


# --- paths that mean the same from everywhere ------------------------------------------------------------------


def with_absolute_paths(experiment: Any) -> Any:
    """Return the same experiment with absolute paths and no folder: it may run in any process on any machine."""
    domain = domain_of(experiment)
    tables = msgspec.to_builtins(with_run(experiment, out=""))
    for key, rewrite in _rewrites(domain, rooted).items():
        _change(tables, key, rewrite)
    return toml.typed(tables, domain.tables, "settings")


def grid_with_absolute_paths(
    document: toml.Document, axes: dict[str, list[Any]]
) -> tuple[toml.Document, dict[str, list[Any]]]:
    """Return a grid whose own files can be found from any folder; what goes by a name keeps it."""
    domain = scale_of(document, "sweep")
    named, again = copied(document), dict(axes)
    rewrites = _rewrites(domain, rooted)
    for key, rewrite in rewrites.items():
        _change(named, key, rewrite)
        if key in axes:
            again[key] = _changed(axes[key], rewrite)
    baseline = next((value for leaf, value in toml.leaves(document) if leaf == "measure.baseline"), "")
    for key, rewrite in rewrites.items():
        if (own := _changed(baseline, rewrite)) and own in again.get(key, ()):
            toml.put(named, "measure.baseline", own)
            break
    return named, again


def _rewrites(domain: Domain, policy: Rewrite) -> dict[str, Rewrite]:
    """Return by key how a value is put: one that may name files, and a policy."""
    files: dict[str, Rewrite] = {key: partial(_own_file, domain, key) for key in domain.file_keys}
    return {**files, **dict.fromkeys(domain.policy_keys, policy)}


def _own_file(domain: Domain, key: str, value: str) -> str:
    """Return where a file or folder lies; a name, and what no file can be called, stays as it is."""
    before, name, after = domain.split_file_value(value)
    try:
        place = Path(name).expanduser().resolve()
        files = [file.resolve() for file in domain.file_keys[key](name)]
    except (InputError, ValueError):  # whoever reads it says what is wrong
        return value
    return f"{before}{place}{after}" if any(place in (file, file.parent) for file in files) else value

"""Read and check the changes of a what-if, and write down what came of it; the same for every scale that has one."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import msgspec

from headway.errors import ExperimentError, TapeError, unknown_name
from headway.files import write_whole
from headway.formats import toml
from headway.runs.domain import Domain, Experiment
from headway.runs.folder.folder import WHATIF_NAME
from headway.runs.registry import DOMAINS, domain
from headway.runs.settings.flags import split_pairs


def given_changes(scale: Domain, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was given; raise where it is no change of this scale, or empty."""
    found = {name: value for name, value in given.items() if value is not None}
    for name, value in found.items():
        if name not in scale.changes:
            others = [other for other in map(domain, DOMAINS) if name in other.changes]
            if not others:
                raise ExperimentError(unknown_name("change", name, scale.changes))
            whose = f"changes runs of {others[0].name}; this is one of {scale.name}"
            raise ExperimentError(f"{_flag(name)} {whose} (valid: {', '.join(map(_flag, scale.changes))})")
        if isinstance(value, str) and not value.strip():
            raise ExperimentError(f"{_flag(name)} is empty: give it a value, or leave it out")
    return found


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def listed(given: Any) -> list[str]:
    """Return one text or several as a list."""
    if given is None:
        return []
    return [str(each) for each in given] if isinstance(given, list | tuple) else [str(given)]


def failures_of(given: Any) -> Mapping[str, str] | None:
    """Read ``mtbf=30d,repair=4h`` or a mapping; empty for ``off``, None where failures stay as they are."""
    if not isinstance(given, str):
        return None if given is None else dict(given)
    return {} if given.strip() == "off" else split_pairs(given, "--failures")


def with_failures(was: Experiment, pairs: Mapping[str, str] | None, told: list[str], subject: str) -> Experiment:
    """Return the tables with other failures, none where ``pairs`` is empty; ``told`` gets a line where they change."""
    if pairs is None:
        return was
    table: Any = was.failures  # type: ignore[attr-defined]
    none = {key: "" for key in ("mtbf", "every") if hasattr(table, key)}
    for key in pairs:
        if not hasattr(table, key):
            raise ExperimentError(f"--failures: {unknown_name('key', key, table.__struct_fields__)}")
    failures = msgspec.structs.replace(table, **{**none, **pairs})
    if failures == table:
        return was
    said = ", ".join(f"{key} {value}" for key, value in pairs.items())
    told.append(f"{subject} fail with {said}" if said else f"{subject} fail no more")
    return msgspec.structs.replace(was, failures=failures)


def overridden(
    was: Experiment, assignments: Sequence[str], settable: Sequence[str], told: list[str], when: str
) -> Experiment:
    """Return the tables with keys set; only those that may change, each told with what it was.

    ``when`` says in the refusal of another key why it cannot: 'in the middle of a run'.
    """
    if not assignments:
        return was
    document: toml.Document = msgspec.convert(msgspec.to_builtins(was), dict[str, Any])
    leaves = dict(toml.leaves(msgspec.to_builtins(was)))
    for assignment in assignments:
        toml.override(document, assignment)
    made = toml.typed(document, type(was), "--set")
    after = dict(toml.leaves(msgspec.to_builtins(made)))
    for key in sorted(key for key in {*leaves, *after} if leaves.get(key) != after.get(key)):
        if not key.startswith(tuple(settable)):
            raise ExperimentError(f"--set {key}: cannot change {when}; what can: {', '.join(settable)}")
        told.append(f"{key} {said(after.get(key))} instead of {said(leaves.get(key))}")
    return made


def said(value: Any) -> str:
    """Return a setting in words."""
    return "none" if value in (None, "") else str(value)


# --- what is kept -------------------------------------------------------------------------------------------------


def check_writable(folder: Path) -> None:
    """Refuse, before any work, a folder that could not be written; nothing of the attempt is left."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as problem:
        raise TapeError(f"--out {folder}: cannot be written ({problem.strerror or problem})") from None
    finally:
        for each in missing:
            with suppress(OSError):
                each.rmdir()


def write_difference(folder: Path, difference: Mapping[str, Any]) -> None:
    """Write the difference, or as much as is known of it, into the folder of what came out."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise TapeError(f"folder {folder}: cannot be written ({problem.strerror or problem})") from None
    write_whole(folder / WHATIF_NAME, msgspec.json.format(msgspec.json.encode(difference)) + b"\n")

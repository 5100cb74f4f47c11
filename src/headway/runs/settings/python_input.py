"""Convert what Python users pass (a frame of jobs, a policy object, any number) to what an experiment file holds."""

import atexit
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from numbers import Integral, Real
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from headway.errors import ExperimentError
from headway.formats import toml
from headway.plugins import GIVEN, offer
from headway.runs.settings.flags import Flag, document_of, split_policies


@dataclass(frozen=True, slots=True)
class Synthetic:
    """Jobs that are drawn instead of read."""

    kind: str
    """synthetic (like Philly's) or synergy."""
    settings: Mapping[str, Any] = field(default_factory=dict)


def trace_table(trace: Any) -> dict[str, Any]:
    """Return the table ``[trace]`` that a file, a frame or drawn jobs stand for."""
    if trace is None:
        return {}
    if isinstance(trace, str | os.PathLike):
        return {"path": os.fspath(trace)}
    if isinstance(trace, Synthetic):
        return {trace.kind: plain(trace.settings, trace.kind)}
    if type(trace).__module__.partition(".")[0] in ("polars", "pandas"):
        return {"path": str(_kept(trace))}
    raise ExperimentError(
        f"a trace is a file, a polars or pandas frame or hw.synthetic(…), not a {type(trace).__name__}"
    )


def _kept(frame: Any) -> Path:
    """Write a frame to a file that goes with the program, and return where it lies: frames are read like any table."""
    if hasattr(frame, "collect"):  # a lazy one
        frame = frame.collect()
    with NamedTemporaryFile(prefix="headway-", suffix=".parquet", delete=False) as file:
        path = Path(file.name)
    atexit.register(path.unlink, missing_ok=True)
    try:
        frame.write_parquet(path) if hasattr(frame, "write_parquet") else frame.to_parquet(path)
    except AttributeError:
        what = type(frame).__name__
        raise ExperimentError(f"a trace is a file, a polars or pandas frame or hw.synthetic(…), not a {what}") from None
    return path


def plain(value: Any, name: str) -> Any:
    """Return a value as experiment files hold it: text, a number, true or false, a list or a table of them.

    Paths become text, spans of time seconds, the numbers of numpy and of frames those of Python.
    """
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, timedelta):
        return f"{value.total_seconds():.9f}s"
    if getattr(value, "shape", None) == ():  # of numpy
        return value.item()
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, Mapping):
        return {str(key): plain(each, f"{name}.{key}") for key, each in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, bytes):
        return [plain(each, name) for each in value]
    raise ExperimentError(f"setting {name}: a {type(value).__name__} is neither text, a number, a list nor a table")


def put_settings(document: toml.Document, flags: Iterable[Flag], settings: Mapping[str, Any]) -> None:
    """Put settings into a document, by the names of flags.

    ``set`` comes last: any keys of an experiment file, as a mapping or as lines like ``cluster.tenancy=walls``.
    """
    flagged = document_of(flags, {name: plain(each, name) for name, each in settings.items() if name != "set"})
    for key, value in toml.leaves(flagged):
        toml.put(document, key, value)
    own = settings.get("set") or ()
    if not isinstance(own, Iterable):
        raise ExperimentError(f"set is {own!r}: it must be a mapping like {{'cluster.tenancy': 'walls'}}, or lines")
    if isinstance(own, Mapping):
        for key, value in own.items():
            toml.put(document, str(key), plain(value, str(key)))
    else:
        for assignment in [own] if isinstance(own, str) else own:
            toml.override(document, str(assignment))


def policy_name(policy: Any) -> str:
    """Return the text of a policy: itself, or the name under which an object of the user's own is known from now on."""
    return policy if isinstance(policy, str) else offer(policy)


def policy_names(policies: Any, example: str = "fifo,srtf+easy") -> list[str]:
    """Return the texts of several policies, or of those in a text with commas between them; none may come twice."""
    if isinstance(policies, str):
        return split_policies(policies, example)
    given = list(policies) if isinstance(policies, Iterable) and not isinstance(policies, type) else [policies]
    names = [policy_name(policy) for policy in given]
    if not names:
        raise ExperimentError("no policies: name at least one")
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ExperimentError(f"policies: {name} is named twice; name each once")
    return names


def axis(key: str, values: Any) -> list[Any]:
    """Return the values of a key that a sweep varies; policies are text: their files say whether a cell is done."""
    if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
        raise ExperimentError(f"vary {key} is {values!r}: it must be a list of values")
    listed = list(values)
    for value in listed if key == "policy.name" else ():
        if not isinstance(value, str) or GIVEN in value:
            what = value if isinstance(value, str) else getattr(value, "__name__", type(value).__name__)
            raise ExperimentError(
                f"policy {what}: a sweep keeps results by the contents of files: put the class into one and name it "
                "./mine.py:MyPolicy"
            )
    return [plain(value, key) for value in listed]


def axes(vary: Any) -> dict[str, list[Any]]:
    """Return the keys that a sweep varies, and their values."""
    if not isinstance(vary, Mapping):
        raise ExperimentError(f"vary is {vary!r}: it must be a mapping like {{'policy.name': ['fifo', 'srtf']}}")
    return {str(key): axis(str(key), values) for key, values in vary.items()}


def path(value: Any, what: str) -> Path:
    """Return where a file or a folder lies."""
    if not isinstance(value, str | os.PathLike):
        raise ExperimentError(f"{what} is {value!r}: it must be a path, as text or as a pathlib.Path")
    return Path(value)


def moment(at: Any) -> str:
    """Return a time in a run as text; a number is in seconds."""
    value = plain(at, "at")
    if isinstance(value, float):
        return f"{value:.9f}"
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ExperimentError(f"at is {at!r}: it must be a time in the run, as text like '2h' or a number of seconds")
    return str(value)


def whole(value: Any, name: str) -> int:
    """Return a number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ExperimentError(f"{name} is {value!r}: it must be a whole number of at least 1")
    return int(value)

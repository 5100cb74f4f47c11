"""Take what Python users give: a table of jobs instead of a file, an object instead of a policy's name."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any
from weakref import finalize

from headway.errors import ExperimentError
from headway.formats.plugins import offer


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
        return {"path": str(trace)}
    if isinstance(trace, Synthetic):
        return {trace.kind: dict(trace.settings)}
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
    finalize(path, path.unlink, missing_ok=True)
    frame.write_parquet(path) if hasattr(frame, "write_parquet") else frame.to_parquet(path)
    _KEPT.append(path)
    return path


_KEPT: list[Path] = []
"""Files of frames: they are removed when the program ends."""


def policy_name(policy: Any) -> str:
    """Return the text of a policy: itself, or the name under which an object of the user's own is known from now on."""
    return policy if isinstance(policy, str) else offer(policy)


def policy_names(policies: Any) -> list[str]:
    """Return the texts of several policies; none may come twice."""
    given = [policies] if isinstance(policies, str) or not isinstance(policies, Sequence) else list(policies)
    found = [policy_name(policy) for policy in given]
    if not found:
        raise ExperimentError("no policies: name at least one")
    for index, name in enumerate(found):
        if name in found[:index]:
            raise ExperimentError(f"policies: {name} is named twice; name each once")
    return found

"""Merge shim traces of one or several programs into one timeline (``headway share run --timeline``).

Every process writes a file of its own beside the timeline's name; they share the machine's clock, so that two programs
on one GPU lie on one axis, with the stretches in which one was held back for the other.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from headway.errors import ProfileError
from headway.files import packed, replacing
from headway.gpu.profiling.kernels import trace_of
from headway.gpu.profiling.recording import Recorded, read
from headway.gpu.show.perfetto import Client, Gated, trace_events


def environment(path: Path) -> Mapping[str, str]:
    """Return what a program needs in its environment so that a timeline of it can be written."""
    check(path)
    return {"HEADWAY_TRACE": str(_stem(path))}


def check(path: Path) -> None:
    """Refuse a name that no viewer knows, and a folder that is not there."""
    if not path.name.endswith((".json", ".json.gz")):
        raise ProfileError(f"timeline {path}: the name must end in .json or .json.gz")
    if not path.absolute().parent.is_dir():
        raise ProfileError(f"timeline {path}: there is no folder {path.absolute().parent}")


def write(path: Path) -> Path:
    """Write the timeline of all programs that were started with this environment and have ended; remove their files."""
    stem = _stem(path)
    files = sorted(file for file in stem.parent.glob(f"{stem.name}.*") if file.suffix[1:].isdigit())
    if not files:
        raise ProfileError(f"timeline {path}: nothing was recorded: no program launched a kernel and ended by itself")
    made = write_recorded(path, [read(file) for file in files])
    for file in files:
        file.unlink(missing_ok=True)
    return made


def write_recorded(path: Path, recorded: Sequence[Recorded], names: Sequence[str] = ()) -> Path:
    """Write a timeline of recorded processes; packed where the name ends in ``.gz``."""
    with replacing(path, ProfileError, f"timeline {path}") as file, packed(file, path) as sink:
        sink.writelines(piece.encode() for piece in trace_events(clients_of(recorded, names), path.name))
    return path


def clients_of(recorded: Sequence[Recorded], names: Sequence[str] = ()) -> list[Client]:
    """Return recorded processes as clients on one axis, which begins with the first launch of any."""
    traces = [trace_of(process, whole=True) for process in recorded]
    first = min(int(trace.metadata["began_ns"]) for trace in traces)
    made = []
    for index, (process, trace) in enumerate(zip(recorded, traces, strict=True)):
        began = int(trace.metadata["began_ns"])
        spans = zip(*(process.gates[key].tolist() for key in ("begin_ns", "end_ns", "reason")), strict=True)
        gated = [Gated(begin - began, end - began, reason) for begin, end, reason in spans]
        name = names[index] if index < len(names) else process.about.get("name", "") or trace.program or "program"
        made.append(Client(f"{name} ({process.process})", trace, began - first, gated))
    return made


def _stem(path: Path) -> Path:
    return path.absolute().with_name(f".{path.name}.trace")

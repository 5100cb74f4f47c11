"""Store profiles made on this machine, keyed by program, data and machine; each written whole or not at all.

They lie in ``$HEADWAY_PROFILES``, or ``headway/profiles`` below ``$XDG_DATA_HOME`` (``~/.local/share``), a file each:
model, time, key. The time stands before the key so that of several of a model the last read is the last made.
"""

import hashlib
import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headway.errors import ProfileError
from headway.files import write_whole
from headway.formats import toml_text

KEY_LENGTH = 16
_LARGEST_SCRIPT = 4 << 20
Document = dict[str, Any]


@dataclass(frozen=True)
class Stored:
    """A profile and where it lies."""

    path: Path
    document: Document

    @property
    def key(self) -> str:
        """Return what it is found by."""
        return str(_measured(self.document).get("key", ""))


def folder() -> Path:
    """Return where profiles are kept."""
    if given := os.environ.get("HEADWAY_PROFILES"):
        return Path(given)
    share = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(share) / "headway" / "profiles"


def _measured(document: Document) -> Mapping[str, Any]:
    measured = document.get("measured")
    return measured if isinstance(measured, dict) else {}


# --- keys -----------------------------------------------------------------------------------------------------------


def key(parts: Mapping[str, Any]) -> str:
    """Return a short name for what was profiled."""
    text = json.dumps(parts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_LENGTH]


def program(command: Sequence[str]) -> dict[str, Any]:
    """Return a command's words and digests of the scripts among them; of a large program its size and time."""
    contents = {}
    for position, word in enumerate(command):
        path = Path(word)
        if position and command[position - 1] == "-m":
            stem = Path(*word.split("."))
            path = next((p for p in (stem.with_suffix(".py"), stem / "__main__.py") if p.is_file()), path)
        with suppress(OSError):
            stat = path.stat()
            if not path.is_file():
                continue
            if stat.st_size <= _LARGEST_SCRIPT:
                contents[word] = hashlib.sha256(path.read_bytes()).hexdigest()[:KEY_LENGTH]
            elif position == 0:  # a large argument may be what the program writes, and change with each run
                contents[word] = f"{stat.st_size} bytes, changed {stat.st_mtime_ns}"
    return {"command": list(command), "contents": contents}


def data_set(path: Path) -> dict[str, Any]:
    """Describe a file or a folder of data: where it is, how large, when last changed."""
    stats = [each.stat() for each in files_of(path)]
    newest = max((stat.st_mtime_ns for stat in stats), default=0)
    size = sum(stat.st_size for stat in stats)
    return {"path": str(path.resolve()), "files": len(stats), "bytes": size, "changed_ns": newest}


def files_of(path: Path) -> list[Path]:
    """Return the files of a data set, in order; a file is its own."""
    return [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())


def hardware(cpus: float, memory_bytes: int) -> dict[str, Any]:
    """Describe the machine: its CPUs, its GPUs, its memory."""
    gpus = []
    for each in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        with suppress(OSError):
            gpus += re.findall(r"^Model:\s*(.+?)\s*$", each.read_text(), re.MULTILINE)
    models = []
    with suppress(OSError):
        models = re.findall(r"^model name\s*:\s*(.+?)\s*$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    share = os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
    return {
        "cpu": models[0] if models else os.uname().machine,
        "cpus": cpus,
        "gpu": ", ".join(gpus),
        "memory_bytes": memory_bytes,
        **({"gpu_percent": share} if share else {}),
    }


# --- finding and writing --------------------------------------------------------------------------------------------


def listed(place: Path | None = None) -> Iterator[Stored]:
    """Yield all profiles that are kept, oldest of a model first; what is no profile is passed over."""
    for path in sorted((place or folder()).glob("*.toml")):
        with suppress(OSError, ValueError):
            document = tomllib.loads(path.read_text(encoding="utf-8"))
            if _measured(document).get("key"):
                yield Stored(path, document)


def find(wanted: str, place: Path | None = None) -> Stored | None:
    """Return the last profile with this key."""
    return max((each for each in listed(place) if each.key == wanted), key=lambda each: each.path.name, default=None)


def keep(document: Document, place: Path | None = None) -> Path:
    """Put a profile among the others; an older one with the same key goes."""
    home = place or folder()
    own = _measured(document)["key"]
    older = [each.path for each in listed(home) if each.key == own]
    name = re.sub(r"[^\w.+-]+", "_", str(document["model"]))
    path = home / f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%S}-{own}.toml"
    write(document, path)
    for each in older:
        if each != path:
            each.unlink(missing_ok=True)
    return path


def check_target(path: Path) -> None:
    """Refuse to overwrite what is no profile, and a folder that is not there."""
    if not path.parent.is_dir():
        raise ProfileError(f"--out {path}: there is no folder {path.parent}")
    if path.exists():
        try:
            there = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            there = {}
        if "throughput" not in there:
            raise ProfileError(f"--out {path}: something is there that is no profile; name another file")


def write(document: Document, path: Path) -> None:
    """Write a profile to a file: all of it, or nothing."""
    text = toml_text.write(document)
    tomllib.loads(text)  # what cannot be read back is not written
    put(path, text, f"profile {path}")


def put(path: Path, text: str, what: str) -> None:
    """Write a file whole or not at all, and make the folders above it; an error begins with ``what``."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise ProfileError(f"{what}: cannot be written ({problem.strerror or problem})") from None
    write_whole(path, text, ProfileError, what)

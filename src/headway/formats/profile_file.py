"""Profile files: what CPUs, memory and storage do for a program, as TOML; a folder of them, or the shipped ones.

A table ``[profile]`` describes the program and its data, ``throughput`` holds a row for each number of CPUs a GPU and
in it a cell for each size of memory a GPU, relative to the throughput at ``reference``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from msgspec import Struct, field

from headway.errors import ProfileError
from headway.formats import toml
from headway.streams import stream
from headway.training.sensitivity import Profile
from headway.units import REFERENCE_SPEED_PPM, parse_size

SHIPPED = Path(__file__).parent.parent / "profiles"
Size = str | int


class ProfileTable(Struct, kw_only=True, forbid_unknown_fields=True):
    """A profile as it is written."""

    model: str
    kind: str = ""
    source: str = ""
    """Where the numbers come from, for a reader."""
    reference: dict[str, float | str] = field(default_factory=dict)
    """CPUs and memory a GPU at which throughput is 1; for a reader."""
    cpus: list[float]
    memory: list[Size]
    throughput: list[list[float]]
    reads_per_second: Size = 0
    dataset: Size = 0
    working_memory: Size = 0
    error: float = 0
    measured: dict[str, object] = field(default_factory=dict)
    """What was measured on the way, and where: kept for a reader and for finding the profile again."""


def load(files: Iterable[str | Path]) -> dict[str, Profile]:
    """The profiles of files and folders, by model; later ones replace earlier ones."""
    found: dict[str, Profile] = {}
    for given in files:
        path = Path(given)
        if path.is_dir():
            listed = sorted(path.glob("*.toml"))
            if not listed:
                raise ProfileError(f"profiles {path}: no .toml file is in that folder")
        elif path.is_file():
            listed = [path]
        else:
            raise ProfileError(f"profiles {path}: there is no such file or folder")
        for each in listed:
            profile = read(each)
            found[profile.model] = profile
    return found


def read(path: Path) -> Profile:
    """One profile."""
    return profile_of(toml.typed(toml.read(path), ProfileTable, str(path)), str(path))


def profile_of(table: ProfileTable, where: str) -> Profile:
    """The profile that a table describes, checked."""
    try:
        return Profile(
            model=table.model,
            kind=table.kind,
            cpu_milli=tuple(round(cpus * 1000) for cpus in table.cpus),
            memory_bytes=tuple(parse_size(str(size), what="memory") for size in table.memory),
            ppm=tuple(tuple(round(cell * REFERENCE_SPEED_PPM) for cell in row) for row in table.throughput),
            read_bytes_per_second=parse_size(str(table.reads_per_second), what="reads_per_second"),
            dataset_bytes=parse_size(str(table.dataset), what="dataset"),
            working_bytes=parse_size(str(table.working_memory), what="working_memory"),
            error_ppm=round(table.error * REFERENCE_SPEED_PPM),
        )
    except ProfileError as problem:
        raise ProfileError(f"{where}: {problem}") from None


@cache
def shipped() -> dict[str, Profile]:
    """The profiles that come with headway: the ten models of the Synergy paper."""
    return load([SHIPPED])


def off_by(profiles: Mapping[str, Profile], error: float, seed: int) -> dict[str, Profile]:
    """The same programs as they might truly be: each step of a matrix up or down by up to this share."""
    wrong: dict[str, Profile] = {}
    for model, profile in sorted(profiles.items()):
        random = stream(seed, f"profile error {model}")
        rows: list[tuple[int, ...]] = []
        for row in profile.ppm:
            cells: list[int] = []
            for column, cell in enumerate(row):
                least = max(rows[-1][column] if rows else 1, cells[-1] if cells else 1)
                cells.append(max(least, round(cell * (1 + random.uniform(-error, error)))))
            rows.append(tuple(cells))
        wrong[model] = replace(profile, ppm=tuple(rows), _memo={})
    return wrong

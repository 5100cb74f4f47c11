"""Read profile files: a program's speed by CPUs, memory and storage, as TOML; a folder of them, or the shipped ones.

``throughput`` holds a row for each number of CPUs a GPU and in it a cell for each size of memory a GPU, relative to the
throughput at ``reference``; the other keys describe the program and its data.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from msgspec import Struct, field

from headway.errors import ExperimentError, InputError, ProfileError
from headway.formats import toml
from headway.jobs.model.sensitivity import Profile
from headway.jobs.tables.cluster import FASTEST, MOST_BYTES, MOST_CPUS_A_NODE
from headway.streams import stream
from headway.units import REFERENCE_SPEED_PPM, format_size, parse_size

SHIPPED = Path(__file__).parents[1] / "profiling" / "shipped"
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
    """Return the profiles of files and folders, by model; later ones replace earlier ones."""
    profiles = (read(path) for path in listed(files))
    return {profile.model: profile for profile in profiles}


def listed(files: Iterable[str | Path]) -> list[Path]:
    """Return the files, and of folders those that are in them."""
    found: list[Path] = []
    for given in files:
        path = Path(given).expanduser()
        if path.is_dir():
            inside = sorted(path.glob("*.toml"))
            if not inside:
                raise ProfileError(f"profiles {path}: no .toml file is in that folder; headway profile job makes one")
            found.extend(inside)
        elif path.exists():
            found.append(path)
        else:
            raise ProfileError(f"profiles {path}: there is no such file or folder; headway profile job makes one")
    return found


def read(path: Path) -> Profile:
    """Read one profile."""
    try:
        table = toml.typed(toml.read(path, "profile"), ProfileTable, f"profile {path}")
    except ExperimentError as problem:
        raise ProfileError(str(problem)) from None
    return profile_of(table, str(path))


def profile_of(table: ProfileTable, where: str) -> Profile:
    """Return the profile that a table describes, checked."""
    try:
        return Profile(
            model=table.model,
            kind=table.kind,
            cpu_milli=tuple(_whole(cpus, 1000, "cpus", MOST_CPUS_A_NODE) for cpus in table.cpus),
            memory_bytes=tuple(_size(size, "memory") for size in table.memory),
            ppm=tuple(tuple(_ppm(cell, "throughput", FASTEST) for cell in row) for row in table.throughput),
            read_bytes_per_second=_size(str(table.reads_per_second).removesuffix("/s"), "reads_per_second"),
            dataset_bytes=_size(table.dataset, "dataset"),
            working_bytes=_size(table.working_memory, "working_memory"),
            error_ppm=_ppm(table.error, "error", 1),
        )
    except InputError as problem:
        raise ProfileError(f"profile {where}: {str(problem).removeprefix(f'profile {table.model}: ')}") from None


def _whole(value: float, unit: int, what: str, most: float) -> int:
    """Return a number in whole parts of a unit; one that is none, or far too large, is refused."""
    if not abs(value) <= most:
        raise ProfileError(f"{what} {value} must be a number up to {most:,.0f}")
    return round(value * unit)


def _ppm(value: float, what: str, most: float) -> int:
    return _whole(value, REFERENCE_SPEED_PPM, what, most)


def _size(value: Size, what: str) -> int:
    size = parse_size(str(value), what=what)
    if size > MOST_BYTES:
        raise ProfileError(f"{what} {value} must not be over {format_size(MOST_BYTES)}")
    return size


@cache
def shipped() -> dict[str, Profile]:
    """Return the profiles that come with headway: the ten models of the Synergy paper."""
    return load([SHIPPED])


def off_by(profiles: Mapping[str, Profile], error: float, seed: int) -> dict[str, Profile]:
    """Return the profiles with each cell of their matrices moved up or down by up to this share."""
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
        wrong[model] = replace(profile, ppm=tuple(rows))
    return wrong

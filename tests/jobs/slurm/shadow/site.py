"""A small site, and what sacct would have printed of it at some times."""

from pathlib import Path

from examples.slurm.site import looks
from examples.slurm.site.__main__ import made

FILES = ("nodes.txt", "partitions.txt", "qos.txt", "assoc.txt")


def dumps(folder: Path, jobs: int = 400, count: int = 8, seed: int = 2, load: float = 1.1) -> list[Path]:
    """Write a site and looks at it; return the looks."""
    made(folder, jobs=jobs, seed=seed, load=load)
    return looks.write(folder / "sacct.txt", folder / "looks", count)


def files(folder: Path) -> list[str]:
    """Return the files of the site but its settings."""
    return [str(folder / name) for name in FILES]


def config(folder: Path) -> str:
    """Return the file of its settings."""
    return str(folder / "config" / "slurm.conf")


def flags(folder: Path) -> list[str]:
    """Return the same as flags."""
    return [*(word for name in files(folder) for word in ("--cluster", name)), "--config", config(folder)]

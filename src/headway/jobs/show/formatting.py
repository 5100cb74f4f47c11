"""Format what only reports on training jobs name: classes of job sizes, CPUs and memory that a job holds."""

from headway.jobs.metrics.sizes import SIZE_CLASSES
from headway.jobs.model.resources import Grant
from headway.show.formatting import listed
from headway.units import format_size


def size_label(size: str) -> str:
    """Return a size class as pages show it."""
    return size.replace("-", "–")


def size_labels() -> list[str]:
    """Return the labels of all size classes, the smallest first."""
    return [size_label(name) for name in SIZE_CLASSES]


def holdings(grant: Grant) -> str:
    """Return what a job holds besides GPUs, as far as it is counted: ``12 CPUs and 125 GB``."""
    cpu_milli, memory_bytes, storage = grant
    told = [f"{cpu_milli / 1000:g} CPU{'' if cpu_milli == 1000 else 's'}"] if cpu_milli else []
    told += [format_size(memory_bytes)] if memory_bytes else []
    told += [f"{format_size(storage)}/s of storage"] if storage else []
    return listed(told) if told else "nothing else"

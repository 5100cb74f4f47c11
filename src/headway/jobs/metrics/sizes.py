"""Classify jobs by the GPUs that they ask for, how many and of which type, for tables, figures and forecasts."""

from headway.jobs.model.job import Job
from headway.units import WHOLE_GPU_MILLI

NO_GPU, PART = "no GPU", "part of a GPU"
LARGEST_GPUS = 64
"""Wider jobs are one class."""
LARGEST = f"{LARGEST_GPUS + 1} GPUs or more"


def size_class(width_milli: int) -> str:
    """Return the class of a job that asks for so many thousandths of a GPU: 1 GPU, 2, 3-4, 5-8, 9-16 … GPUs."""
    if width_milli == 0:
        return NO_GPU
    if width_milli < WHOLE_GPU_MILLI:
        return PART
    gpus = -(-width_milli // WHOLE_GPU_MILLI)
    return LARGEST if gpus > LARGEST_GPUS else _between(1 << (gpus - 1).bit_length())


def _between(most: int) -> str:
    """Return the class that ends at a power of two."""
    least = most // 2 + 1
    return f"{least}-{most} GPUs" if least < most else f"{most} GPU{'s' if most > 1 else ''}"


SIZE_CLASSES = (NO_GPU, PART, *(_between(1 << power) for power in range(LARGEST_GPUS.bit_length())), LARGEST)
"""All of them, the narrowest first."""


NOTHING = "–"
"""Stands for a group without a name."""
ANY_TYPE = "any type"


def gpu_type_of(job: Job) -> str:
    """Return which GPUs a job asks for: ``h100``, ``a100 or h100``, any type, or none."""
    if not job.gpus:
        return NO_GPU
    return " or ".join(job.gpu_types) or ANY_TYPE

"""Read a Slurm queue as it is: the files of ``slurm``, in which jobs that wait or run are kept, up to their time limit.

It is chosen by its name alone: ``slurm`` reads the same files as a record of what has ended.
"""

from pathlib import Path

from headway.formats.head import Head
from headway.jobs.slurm.accounting.reader import read_rows
from headway.jobs.traces.trace import Trace

NAME = "slurm-queue"


def recognises(head: Head) -> bool:
    """Return that no file is of this format unless somebody says so."""
    return False


def read(path: Path, strict: bool) -> Trace:
    """Return the jobs of a file; ``Trace.ran`` tells which of them have not ended."""
    return read_rows(path, strict, unfinished=True)[0]

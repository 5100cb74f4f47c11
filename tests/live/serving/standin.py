"""A worker of a file that is read without checks: ``python -m tests.live.serving.standin FD``."""

import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

from headway.live.serving.worker import serve
from headway.program.pipeline import Model, Task


def read_app(path: Path) -> SimpleNamespace:
    """The models and tasks of a file."""
    values = runpy.run_path(str(path)).values()
    models = tuple(each for each in values if isinstance(each, Model))
    return SimpleNamespace(models=models, tasks=tuple(each for each in values if isinstance(each, Task)))


if __name__ == "__main__":
    serve(int(sys.argv[1]), read_app)

"""What tests of readers share: files to write, and the one line that refuses them."""

from pathlib import Path

import pytest

from headway.errors import InputError
from headway.jobs.traces import load

SAMPLES = Path(__file__).parents[2] / "samples"


def written(folder: Path, content: str | bytes, name: str = "t.csv") -> Path:
    """A file with this content."""
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def refusal(path: Path, format: str = "", strict: bool = False, columns: str = "") -> str:
    """The line with which a trace is refused."""
    with pytest.raises(InputError) as caught:
        load(path, format, strict=strict, columns=columns)
    line = str(caught.value)
    assert "\n" not in line
    return line

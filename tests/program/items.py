"""Data sets for caches: their items, and how often each was really read, counted in a file that all processes share."""

import os
from pathlib import Path
from typing import Any


class Counted:
    """Items by a rule; every read leaves its number in a file."""

    def __init__(self, count: int, log: Path) -> None:
        self.count = count
        self.log = str(log)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < self.count:
            raise IndexError(index)
        file = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(file, b"%d\n" % index)
        os.close(file)
        return self.item(index)

    def item(self, index: int) -> Any:
        """Hundred bytes that name the item."""
        return b"%100d" % index

    def reads(self) -> list[int]:
        """The numbers that were read so far."""
        path = Path(self.log)
        return [int(line) for line in path.read_text().split()] if path.exists() else []


class Mixed(Counted):
    """Items of all kinds and sizes."""

    def item(self, index: int) -> Any:
        """Bytes, text, numbers, nothing."""
        kinds = (b"x" * index, "é" * index, {"index": index, "half": [index / 2] * index}, None, (b"", index))
        return kinds[index % len(kinds)]


def hundred(index: int) -> int:
    """The size of the items of ``Counted``."""
    return 100

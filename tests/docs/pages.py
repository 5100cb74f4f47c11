"""The documents as the tests read them: pages, fenced blocks, code spans, links, headings and tables."""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(
    DOCS.rglob("*.md")
)

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, empty where none is named, and its text."""

    language: str
    text: str


def name(path: Path) -> str:
    """A page as a test's id: ``docs/background/model.md``."""
    return path.relative_to(ROOT).as_posix()


def read(path: str | Path) -> str:
    """The text of a page, by its path in the repository."""
    return (ROOT / path).read_text(encoding="utf-8")


def blocks(text: str, language: str | None = None) -> list[Block]:
    """The fenced blocks of a page."""
    found = [Block(*match.groups()) for match in _FENCE.finditer(text)]
    return [block for block in found if language in (None, block.language)]


def prose(text: str) -> str:
    """A page without its fenced blocks."""
    return _FENCE.sub("", text)


def spans(text: str) -> list[str]:
    """What stands in `code` in the running text and in tables."""
    return _SPAN.findall(prose(text))


def links(text: str) -> list[str]:
    """The targets of all links and images."""
    return _LINK.findall(_SPAN.sub("", prose(text)))


def anchors(text: str) -> set[str]:
    """What ``#`` links can point to: headings, in lower case, with hyphens for blanks and without punctuation."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in _HEADING.findall(prose(text))}


def tables(text: str) -> Iterator[tuple[list[str], list[list[str]]]]:
    """The tables of a page, each as its header and its rows."""
    for found in re.findall(r"(?:^\|.*\|$\n?)+", prose(text), re.MULTILINE):
        lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in found.strip().splitlines()]
        yield lines[0], lines[2:]


def code(text: str) -> str:
    """Everything that is written as code, one piece a line."""
    return "\n".join([*spans(text), *(block.text for block in blocks(text))])


def rows(path: str | Path) -> list[dict[str, str]]:
    """The rows of a CSV file, by its path in the repository."""
    with (ROOT / path).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def table(text: str, heading: str) -> tuple[list[str], list[list[str]]]:
    """The first table under a heading of a page."""
    return next(tables(text.partition(f"\n{heading}\n")[2]))

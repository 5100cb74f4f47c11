"""What a document points to is there, and every document can be found."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, PAGES, ROOT, anchors, links, name, prose

PLACEHOLDER = re.compile(r"^(?:[A-Z]+_[A-Z_]+|TODO.*|TBD.*|XXX.*)$", re.MULTILINE)


def _broken(path: Path, root: Path = ROOT) -> list[str]:
    """Links that lead nowhere, or out of the repository."""
    broken = []
    for link in links(path.read_text(encoding="utf-8")):
        target, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        found = (path.parent / target).resolve() if target else path
        inside = found.exists() and root in (found, *found.parents)
        if not inside or (anchor and anchor not in anchors(found.read_text(encoding="utf-8"))):
            broken.append(link)
    return broken


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_every_link_leads_to_a_file_and_every_anchor_to_a_heading(path: Path) -> None:
    assert _broken(path) == []


def test_a_link_to_nothing_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A heading, here\n[a](missing.md) [b](#a-heading-here) [c](page.md#none) [d](..) `[e](code.md)`\n"
    )
    assert _broken(page, tmp_path) == ["missing.md", "page.md#none", ".."]


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen: set[Path] = set()
    ahead = [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page in seen or page.suffix != ".md" or not page.is_file():
            continue
        seen.add(page)
        found = (link.partition("#")[0] for link in links(page.read_text(encoding="utf-8")))
        ahead += [(page.parent / target).resolve() for target in found if target and not re.match(r"[a-z]+:", target)]
    assert [name(page) for page in sorted(DOCS.rglob("*.md")) if page not in seen] == []


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_no_page_has_a_gap_that_is_still_to_be_filled(path: Path) -> None:
    assert PLACEHOLDER.findall(prose(path.read_text(encoding="utf-8"))) == []

"""The report on a Slurm site in a browser: nothing is cut off, axes have dates, the verdict is beside the headline."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.slurm.site.__main__ import made
from headway.cli import main

CHROMIUM = shutil.which("chromium")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run")
WIDER = """() => [...document.querySelectorAll('body *')]
    .filter(each => each.offsetParent && !each.closest('svg') && !each.classList.contains('unseen'))
    .filter(each => each.getBoundingClientRect().right > document.documentElement.clientWidth + 1
        || (each.scrollWidth > each.clientWidth + 1 && each.clientWidth > 0
            && ['auto', 'scroll', 'hidden'].includes(getComputedStyle(each).overflowX)
            && getComputedStyle(each).textOverflow !== 'ellipsis'))
    .map(each => `${each.tagName}.${each.className} ${each.textContent.slice(0, 40)}`)"""
AXES = """() => [...document.querySelectorAll('.plot')].map(each => each.layout && each.layout.xaxis)
    .filter(axis => axis && axis.type === 'date').length"""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium: scripts/system installs it")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site under its own rules and another policy, as a page."""
    place = tmp_path_factory.mktemp("site")
    made(place, 400, 2)
    names = ("nodes.txt", "partitions.txt", "qos.txt", "assoc.txt", "config/slurm.conf")
    files = [word for name in names for word in ("--cluster", str(place / name))]
    policies = ["--policies", f"slurm:{place / 'config/slurm.conf'},fifo+easy", "--label", "our Slurm"]
    asked = ["jobs", "compare", str(place / "sacct.txt"), *files, *policies, "--out", str(place / "runs")]
    _run(*asked, "--report", str(place / "page.html"))
    _run("whatif", str(place / "runs/our_Slurm"), "--at", "50%", "--add-nodes", "1", "--report", str(place / "if.html"))
    return place / "page.html"


def _run(*words: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    assert ended.value.code == 0


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield started
        started.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 1000])
def test_nothing_is_cut_off_and_the_verdict_stands_beside_the_headline(
    browser: Any, report: Path, width: int, scheme: str
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.goto(report.as_uri())
    page.evaluate("() => headway.ready")
    assert page.evaluate(WIDER) == []
    assert page.evaluate(AXES) >= 1
    verdict = page.locator(".verdict").first.bounding_box()
    assert verdict["y"] + verdict["height"] < 900, "on the first screen"
    assert "Verdict." in page.locator(".verdict").first.inner_text()
    ink, paper = page.evaluate(
        "() => [getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    assert (sum(map(int, ink[4:-1].split(",")[:3])) > sum(map(int, paper[4:-1].split(",")[:3]))) == (scheme == "dark")
    page.close()


@pytest.mark.parametrize("width", [1400, 1000])
def test_the_page_of_a_what_if_is_whole_and_has_one_unit_in_a_column(browser: Any, report: Path, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto(report.with_name("if.html").as_uri())
    page.evaluate("() => headway.ready")
    assert page.evaluate(WIDER) == []
    assert "Verdict." in page.locator(".verdict").first.inner_text()
    waits = page.evaluate(
        "() => [...document.querySelectorAll('#groups table')].map(each => "
        "[...each.querySelectorAll('tbody tr')].map(row => row.cells[2].textContent.split(' ')[1]))"
    )
    assert len(waits) > 3
    assert all(len(set(units)) == 1 for units in waits)
    page.close()

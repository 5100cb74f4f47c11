"""Every part of a policy has its page, with its options as they are; what a document names as a policy is one."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headway.errors import ExperimentError
from headway.fleet.policies import registry as of_serving
from headway.fleet.policies.scalers.registry import SCALERS, build as build_scaler
from headway.gpu.policies import registry as of_kernels
from headway.jobs.model.cluster import uniform
from headway.jobs.model.rows import Kind
from headway.jobs.policies import registry
from headway.jobs.policies.backfills.fit import Fit
from headway.jobs.policies.compose import ComposedPolicy
from headway.jobs.policies.orders.las import Las
from headway.jobs.policies.placements.best_fit import BestFit
from headway.jobs.show.terminal.comparison import parts
from headway.units import SECOND, Duration
from tests.docs.pages import DOCS, PAGES, blocks, code, links, name, read, spans, tables
from tests.drive import World, drive, seconds_of
from tests.jobs.policies.orders.test_published import JOBS

KINDS: dict[str, dict[str, Any]] = {
    "order": registry.ORDERS,
    "backfill": registry.BACKFILLS,
    "placement": registry.PLACEMENTS,
    "migration": registry.MIGRATIONS,
    "allocation": registry.ALLOCATIONS,
}
OWN = {
    kind: {key: part for key, part in table.items() if part.__module__.startswith("headway.")}
    for kind, table in KINDS.items()
}
"""The parts that come with headway; other tests may have registered more."""
PARTS = [(kind, part) for kind, table in OWN.items() for part in table]
OPTIONS = [
    (kind, part, option)
    for kind, part in PARTS
    for option in next(p for p in parts() if (p["kind"], p["name"]) == (kind, part))["options"]
]
OVERVIEW = "docs/reference/policies/jobs/README.md"


def _built(kind: str, term: str) -> Any:
    """A part made from how it is written."""
    policy = registry.build(term if kind == "order" else f"fifo+{term}")
    assert isinstance(policy, ComposedPolicy)
    return getattr(policy, kind)


def _page(kind: str, part: str) -> str:
    """What is said of a part: its page, or, where an allocation shares one with an order, its half of that."""
    page = read(f"docs/reference/policies/jobs/{part}.md")
    before, heading, after = page.partition(f"\n## {part} (allocation)\n")
    if part in OWN["order"] and part in OWN["allocation"]:
        assert heading, f"docs/reference/policies/jobs/{part}.md has no heading of its own for the allocation"
        return before if kind == "order" else f"# {part} ({kind})\n{after}"
    return page


def _documented(page: str) -> dict[str, str]:
    """The options that a page names, with what it says is their default."""
    found: dict[str, str] = {}
    for header, rows in tables(page):
        if header[0] == "option":
            for row in rows:
                names = re.findall(r"`(\w+)`", row[0])
                found |= dict(zip(names, (text.strip() for text in row[1].split(",")), strict=True))
    for span in spans(page):
        if match := re.fullmatch(r"(\w+)=(\S+)", span):
            found.setdefault(*match.groups())
    return found


def test_the_overview_names_exactly_the_registered_parts_and_links_their_pages() -> None:
    header, rows = next(tables(read(OVERVIEW)))
    assert header == [kind for kind in KINDS if kind != "allocation"]
    for column, kind in enumerate(header):
        table = OWN[kind]
        cells = [row[column] for row in rows if row[column]]
        matches = [re.fullmatch(r"\[([\w-]+)\]\(([\w-]+)\.md\)( \(preempts\))?", cell) for cell in cells]
        named = {match[1]: bool(match[3]) for match in matches if match}
        assert all(match[1] == match[2] for match in matches if match), cells
        registered = {part: getattr(table[part], "preempts", False) for part in table}
        assert named == registered, f"the column {kind} of the first table of {OVERVIEW} is not what is registered"
        unlinked = [cell for cell, match in zip(cells, matches, strict=True) if not match]
        assert unlinked == (["off"] if kind == "migration" else [])


def test_the_overview_has_a_table_of_the_allocations_and_says_what_each_promises() -> None:
    rows = next(rows for header, rows in tables(read(OVERVIEW)) if header[0] == "allocation")
    told = {}
    for link, _, promised in rows:
        match = re.fullmatch(r"\[([\w-]+)\]\(([\w-]+)\.md(#[\w-]+)?\)", link)
        assert match is not None, link
        assert match[1] == match[2], link
        assert bool(match[3]) == (match[1] in OWN["order"]), link
        told[match[1]] = promised
    assert told == {part: "yes" if OWN["allocation"][part].guarantees else "no" for part in OWN["allocation"]}


def test_there_is_a_page_for_each_part_and_for_nothing_else() -> None:
    pages = {path.stem for path in (DOCS / "reference/policies/jobs").glob("*.md")} - {"README"}
    assert pages == {part for _, part in PARTS}, "docs/reference/policies/jobs/ has one page for each registered part"
    assert pages == {link.partition(".md")[0] for link in links(read(OVERVIEW))} & pages


@pytest.mark.parametrize(("kind", "part"), PARTS)
def test_a_page_opens_with_its_part_and_names_exactly_its_options(kind: str, part: str) -> None:
    page = _page(kind, part)
    assert page.splitlines()[0] in (f"# {part}", f"# {part} ({kind})")
    assert set(_documented(page)) == {option for which, other, option in OPTIONS if (which, other) == (kind, part)}


@pytest.mark.parametrize(("kind", "part", "option"), OPTIONS)
def test_an_option_has_the_default_that_its_page_gives(kind: str, part: str, option: str) -> None:
    actual = registry.options_of(_built(kind, part))[option]
    said = _documented(_page(kind, part))[option].partition(" (")[0]
    if actual == ():
        assert said == "none" or said.isupper() or ":" in said
    else:
        assert registry.options_of(_built(kind, f"{part}({option}={said})"))[option] == actual


def _of_training(term: str) -> None:
    """A policy of jobs, or a part of one by itself."""
    kind = next(kind for kind, table in OWN.items() if re.split(r"[+(]", term)[0] in table)
    registry.build(term if kind == "order" else f"fifo+{term}")


Build = Callable[[str], Any]
SCALES: dict[tuple[str, ...], tuple[set[str], Build]] = {
    ("docs/reference/policies/jobs/",): ({part for _, part in PARTS}, _of_training),
    (
        "docs/reference/policies/fleet/",
        "docs/reference/scenarios.md",
        "docs/reference/fleet-",
        "docs/guides/fleet-",
        "docs/guides/network-",
        "docs/tutorials/serving.md",
    ): (set(of_serving.POLICIES), of_serving.build),
    (
        "docs/reference/policies/gpu.md",
        "docs/reference/interference.md",
        "docs/guides/gpu-",
        "docs/guides/kernel-",
        "docs/guides/sharing.md",
        "docs/guides/containers.md",
        "docs/tutorials/gpu.md",
    ): (set(of_kernels.POLICIES), of_kernels.build),
    ("docs/reference/autoscaling.md", "docs/background/results/autoscaling.md"): (set(SCALERS), build_scaler),
}
"""Where the pages of a scale lie, the names of its policies, and what builds one.

The same name, ``headway`` say, has other options at another scale.
"""
TERM = r"[a-z][a-z-]*(?:\([a-z_]+=[^()]*\))?"


def _not_built(page: str, text: str) -> list[str]:
    """Policies that a page names and nothing builds: of its own scale, or of any where it is about none."""
    scales = [scale for places, scale in SCALES.items() if page.startswith(places)] or list(SCALES.values())
    wrong = []
    for term in re.findall(rf"(?<![\w./:+-]){TERM}(?:\+{TERM})*(?![\w:/.+(-])", text):
        if "+" in term or "(" in term:
            known = [build for names, build in scales if re.split(r"[+(]", term)[0] in names]
            if known and not any(_builds(build, term) for build in known):
                wrong.append(term)
    return wrong


def _builds(build: Build, term: str) -> bool:
    try:
        build(term)
    except ExperimentError:
        return False
    return True


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_a_policy_that_a_document_names_can_be_built(path: Path) -> None:
    assert _not_built(name(path), code(read(path))) == []


@pytest.mark.parametrize(
    ("page", "right", "wrong"),
    [
        ("docs/guides/gpu-x.md", "headway(slo=1.02)", "headway(drop=off)"),
        ("docs/reference/policies/fleet/x.md", "headway(drop=off)", "headway(slo=1.02)"),
        ("docs/reference/policies/jobs/x.md", "tiresias(thresholds=1h/10h)", "headway(slo=1.02)"),
        ("docs/background/results/x.md", "headway(slo=1.02)", "headway(sloo=1.02)"),
    ],
)
def test_a_policy_is_built_at_the_scale_of_its_page(page: str, right: str, wrong: str) -> None:
    assert _not_built(page, f"{right}\n{wrong}") == [wrong]


def test_the_changelog_counts_and_names_the_parts() -> None:
    text = " ".join(read("CHANGELOG.md").split())
    numbers = dict(enumerate(("four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"), 4))
    numbers |= {13: "thirteen", 14: "fourteen", 15: "fifteen"}
    for kind in ("order", "backfill", "placement"):
        names = list(OWN[kind])
        line = f"{numbers[len(names)]} {kind}s ({', '.join(names)})"
        assert line in text, f"the line 'Policies from parts' of CHANGELOG.md should say: {line}"


def test_the_order_in_the_overview_works() -> None:
    scope = _own_orders()
    order = scope["WidestFirst"]()
    assert order.name == "widest"
    assert "mine.py:WidestFirst" in read(OVERVIEW)


def _own_orders() -> dict[str, Any]:
    """The classes that the overview shows."""
    scope: dict[str, Any] = {}
    for block in blocks(read(OVERVIEW), "python"):
        exec(block.text, scope)
    return scope


def _played(order: Any, round_s: int) -> list[tuple[int, int, int]]:
    """(time, kind, job) of the rows of a run of the common example of ``test_published.py``."""
    jobs = seconds_of(*((at, length, gpus) for at, gpus, length in JOBS))
    policy = ComposedPolicy("own", order, Fit(), BestFit(), round_length=round_s * SECOND)
    return [row[:3] for row in drive(policy, World(uniform(1, 8), jobs)).tape.rows.tolist()]


def test_the_order_in_the_overview_whose_key_moves_with_time_is_las_in_rounds() -> None:
    own = _own_orders()["LeastAttained"]
    rows = _played(own(), 10)
    assert rows == _played(Las(Duration(0)), 10)
    assert sum(kind == Kind.PREEMPT for _, kind, _ in rows) >= 7


def test_the_same_order_is_refused_if_it_does_not_say_that_its_key_moves() -> None:
    own = _own_orders()["LeastAttained"]
    silent = type("Silent", (own,), {"key_moves_with_time": False, "refresh": 0})
    with pytest.raises(
        ExperimentError, match=r"order least-attained: .* write key_moves_with_time = True in the class"
    ):
        _played(silent(), 0)

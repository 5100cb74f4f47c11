"""What a report counts: the measured jobs in every section, and what a difference between runs is worth."""

import re

import polars as pl
import pytest

from headway.jobs.show.page import figures, first_screen as first, page
from headway.jobs.show.page.headline import warnings
from headway.jobs.show.page.measured import Comparison, Measured
from headway.units import HOUR
from tests.show.made import BUSY, leave, opened
from tests.show.pages import Page

WINDOW = slice(50, 120)


@pytest.fixture(scope="module")
def part(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """A run of which some jobs are measured."""
    folder = tmp_path_factory.mktemp("runs") / "las"
    return opened(leave(folder, {**BUSY, "measure": {"jobs": f"{WINDOW.start}:{WINDOW.stop}"}}, "las")).runs[0]


@pytest.fixture(scope="module")
def built(part: Measured) -> str:
    """Its page."""
    return page.build(Comparison((part,)))


@pytest.fixture(scope="module")
def read(built: str) -> Page:
    """What a browser makes of it."""
    return Page(built)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """Two policies, of which the second is far better."""
    place = tmp_path_factory.mktemp("pair")
    crowded = {"trace": {"synthetic": {"jobs": 80, "load": 3.0}}, "cluster": {"nodes": 2, "gpus_per_node": 8}}
    return opened(*(leave(place / policy, crowded, policy) for policy in ("fifo", "srtf")))


# --- measured jobs --------------------------------------------------------------------------------------------


def test_what_was_lost_is_what_measured_jobs_lost(part: Measured, read: Page) -> None:
    lost = sum(part.lost.values()) - part.lost[figures.FAILED]
    assert 0 < lost == pytest.approx(part.summary.lost_gpu_hours)
    assert part.lost[figures.FAILED] == pytest.approx(part.summary.failed_gpu_hours)
    drawn = sum(trace["x"][0] for trace in read.facts()["figures"]["lost"]["data"])
    assert drawn == pytest.approx(part.summary.lost_gpu_hours, rel=2e-3)


@pytest.mark.parametrize("cost", ["0s", "60s"])
def test_preemptions_are_free_where_they_cost_nothing_whatever_else_was_lost(
    tmp_path_factory: pytest.TempPathFactory, cost: str
) -> None:
    busy = {**BUSY, "costs": {"preemption": cost, "migration": "60s"}}
    run = opened(leave(tmp_path_factory.mktemp("runs") / "las", busy, "las")).runs[0]
    assert run.numbers.preemptions
    assert run.numbers.lost_gpu_hours, "failed nodes cost something either way"
    assert ("Preemptions cost nothing here" in " ".join(warnings(Comparison((run,))))) == (cost == "0s")


def test_who_waited_is_who_was_measured(part: Measured, read: Page) -> None:
    drawn = read.facts()["figures"]
    expected = int(part.ledger.wait[WINDOW].sum()) / HOUR
    assert 0 < expected < int(part.ledger.wait.sum()) / HOUR
    for name in ("causes-runs", "causes-tenant-0", "causes-size-0"):
        assert sum(sum(trace["x"]) for trace in drawn[name]["data"]) == pytest.approx(expected, rel=2e-3)


def test_fairness_and_the_longest_waits_are_those_of_measured_jobs(part: Measured, built: str) -> None:
    assert part.tenants["jobs"].sum() == 70
    assert part.table["id"].to_list() == list(range(WINDOW.start, WINDOW.stop))
    waited = part.table.filter(pl.col("wait_s") > 0)["id"].to_list()
    told = [int(job) for job in re.findall(r"headway story las (\d+)", built)]
    assert set(told) <= set(waited)
    assert len(told) == min(len(waited), 50)


def test_the_table_says_how_many_jobs_are_measured_and_figures_over_time_that_they_show_all(read: Page) -> None:
    assert "70 of 150" in read.text[read.text.index("What are the numbers?") : read.text.index("What ran where")]
    assert "The whole run is shown" in read.text[read.text.index("How full was the cluster?") :]


# --- names ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a {x}", "{}", "{0.__class__}", "%s %(x)s", "{{facts}}", "\\g<0> \\1"])
def test_the_name_of_a_run_is_never_a_pattern(pair: Comparison, name: str) -> None:
    runs = tuple(Measured(f"{name} {i}", f"{name}/{i}", run.stored) for i, run in enumerate(pair.runs))
    both = Comparison(runs)
    assert both.best == 1
    assert Page(page.build(both, name)).text.count(f"{name} 1") > 3
    assert f"{name} 0: " in Page(first.hero(both)).text

"""The report of runs of kernels: it says what the runs say, whatever is in them, and asks nothing of a network."""

import dataclasses
import json
import re
from html import unescape

import plotly.graph_objects as go
import pytest
from hypothesis import given, settings, strategies as st

from headway.core.tape import Tape
from headway.gpu.experiment.in_memory import Setting
from headway.gpu.experiment.scene import GpuScene, numbers
from headway.gpu.model.device import Device
from headway.gpu.model.kernel import Kernel
from headway.gpu.model.program import Client, Program
from headway.gpu.show.page import QUESTIONS, Shown, build, figures_of
from headway.units import SECOND
from tests.gpu.worlds import TINY, drive, program, worlds
from tests.jobs.show.page.test_page import EVIL, coloured
from tests.show.pages import Page

ABOVE = Client("h", program((5, 4, 100), (5, 4, 50), name="h"), 0, think=50, requests=8)
BELOW = Client("l", program((6, 4, 80), (6, 2, 30), name="l"), 1, requests=12)


def shown(
    policy: str,
    clients: tuple[Client, ...] = (ABOVE, BELOW),
    device: Device = TINY,
    label: str = "",
    share: float = 1.0,
) -> Shown:
    """A run as the page shows it, or its beginning."""
    whole = drive(policy, clients, device).tape
    tape = whole.until(round(share * int(whole.column("time")[-1])))
    last = int(whole.column("time")[-1]) + 1
    scene = GpuScene(Setting(("h",), policy=policy, seconds=last / SECOND, device=device), clients)
    return Shown(label or policy, numbers(scene, tape) | {"seed": 3}, clients, device, tape)


@pytest.fixture(scope="module")
def runs() -> list[Shown]:
    """The same programs under three policies."""
    return [shown(policy) for policy in ("mps", "strict", "exclusive")]


def renamed(client: Client, name: str) -> Client:
    """The same client, with a name of this text everywhere that it has names."""
    made = client.program
    kernels = tuple(Kernel(f"{name}{index}", each.blocks, each.per_sm) for index, each in enumerate(made.kernels))
    return dataclasses.replace(client, name=name, program=Program(name, kernels, made.launches))


# --- what it says -------------------------------------------------------------------------------------------------


def test_the_same_runs_give_the_same_bytes_with_the_numbers_of_the_runs(runs: list[Shown]) -> None:
    text = build(runs, 0, "a title")
    assert text == build(runs, 0, "a title")
    page = Page(text)
    assert "<title>a title" in text
    for run in runs:
        assert run.label in page.text
        assert f"{run.row['slowdown_p50']:.3f}×" in page.text
        assert f"{1000 * run.row['latency_p99_s']:,.2f} ms" in page.text
    assert "h (priority 0), l (priority 1)" in page.text
    assert "mps baseline" in page.text
    ids = {given_to["id"] for _, given_to in page.elements if given_to.get("id")}
    assert {anchor for anchor, _, _ in QUESTIONS} <= ids


def test_the_answer_names_the_run_that_delays_least_and_still_lets_those_below_work(runs: list[Shown]) -> None:
    strict = next(run for run in runs if run.label == "strict")
    best = min((run for run in runs if run.row["low_share"]), key=lambda run: run.row["slowdown_p50"])
    answer = f"{best.label} delays requests least: {best.row['slowdown_p50']:.2f} times as long as alone"
    assert answer in Page(build(runs)).text
    starved = dataclasses.replace(best, label="starves", row={**best.row, "slowdown_p50": 1.0, "low_share": 0.0})
    assert answer in Page(build([*runs, starved])).text
    alone = Page(build([strict])).text
    assert f"strict: {strict.row['slowdown_p50']:.2f} times as long as alone" in alone
    first = Page(build([best, starved])).text
    assert f"{best.label}, the baseline, delays requests least" in first


def test_who_was_in_the_way_is_named_with_its_kernel(runs: list[Shown]) -> None:
    causes = [cause for each in runs[0].row["clients"] for cause in each["held_up_by"]]
    page = Page(build(runs[:1]))
    assert causes
    for cause in causes:
        assert cause["kernel"] in page.text
        assert f"{1000 * cause['delay_s']:,.2f} ms" in page.text
    lonely = shown("mps", (ABOVE,))
    assert "Nobody waited for another." in Page(build([lonely])).text


def test_nothing_on_it_is_loaded_from_anywhere(runs: list[Shown]) -> None:
    text = build(runs)
    assert "default-src 'none'" in text
    for tag, given_to in Page(text).elements:
        assert not {"src", "srcset", "action", "data"} & set(given_to), tag
        if address := given_to.get("href"):
            assert address.startswith(("#", "data:")), address


def test_every_figure_is_one_that_plotly_draws(runs: list[Shown]) -> None:
    page = Page(build(runs))
    drawn = page.facts()["figures"]
    assert set(drawn) == {"latency", "over-time"} == set(figures_of(runs))
    for name, figure in drawn.items():
        assert go.Figure(coloured(figure)).data  # it checks every property
        assert json.loads(json.dumps(figures_of(runs)[name]())) == figure
    places = {given_to["data-figure"] for _, given_to in page.elements if "data-figure" in given_to}
    assert places == set(drawn)


def test_the_figures_are_of_the_requests_above(runs: list[Shown]) -> None:
    for run, line in zip(runs, figures_of(runs)["over-time"]()["data"], strict=True):
        assert run.above.client is ABOVE
        assert line["name"] == run.label
        assert line["y"] == pytest.approx([each / 1e6 for each in run.above.latency.tolist()], rel=1e-4)
        assert line["x"] == pytest.approx([each / 1e9 for each in run.above.request_ended.tolist()], rel=1e-4)


# --- whatever is in them ------------------------------------------------------------------------------------------


def test_names_are_text_everywhere(runs: list[Shown]) -> None:
    clients = (renamed(ABOVE, EVIL), renamed(BELOW, f"{EVIL}2"))
    evil = [shown(policy, clients, label=f"{EVIL} {policy}") for policy in ("mps", "strict")]
    text = build(evil, 1, EVIL)
    page = Page(text)
    assert len(page.scripts) == len(Page(build(runs)).scripts)
    assert not [tag for tag, _ in page.elements if tag in ("img", "iframe", "object")]
    assert "window.pwned=1</script>" in page.text
    assert not re.search(r"<(?!/?(b|extra)\b)", json.dumps(page.facts()["figures"]))
    labels = [unescape(run["label"]) for run in page.facts()["runs"]]
    assert len(set(labels)) == 2
    assert max(map(len, labels)) <= 40


@settings(max_examples=15)
@given(worlds(), st.sampled_from(["mps", "strict", "headway"]), st.floats(0, 1))
def test_any_run_cut_anywhere_makes_a_page(world: tuple[tuple[Client, ...], Device], policy: str, share: float) -> None:
    both = [shown(policy, *world), shown(policy, *world, label="cut", share=share)]
    page = Page(build(both, 1))
    assert "Infinity" not in page.scripts[0]
    assert "NaN" not in page.scripts[0]
    ids = [given_to["id"] for _, given_to in page.elements if given_to.get("id")]
    assert len(ids) == len(set(ids))
    for _, given_to in page.elements:
        if (address := given_to.get("href") or "").startswith("#"):
            assert address[1:] in ids
    for figure in page.facts()["figures"].values():
        go.Figure(coloured(figure))


def test_a_run_in_which_no_request_ended_says_so(runs: list[Shown]) -> None:
    run = runs[0]
    empty = Tape(run.tape.rows[:1])
    scene = GpuScene(Setting(("h",), policy="mps", seconds=1e-6, device=TINY), tuple(run.clients))
    nothing = dataclasses.replace(run, tape=empty, row=numbers(scene, empty) | {"seed": 0})
    assert "mps: no request ended" in Page(build([nothing])).text
    assert "strict delays requests least" in Page(build([nothing, runs[1]])).text

"""The report in a real browser: it renders, the slider moves the map, and nothing is asked of a network."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headway.jobs.show.page import page as report_page
from headway.jobs.show.page.measured import Comparison, Measured
from headway.runs.folder.folder import open_run
from headway.units import SECOND
from tests.drive import state_at
from tests.show.made import BUSY, leave, opened

CHROMIUM = shutil.which("chromium")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
EVIL = "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=2>"

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium: scripts/system installs it")


@dataclass
class Shown:
    """A page in a browser, and what it asked for and complained about."""

    page: Any
    folders: dict[str, Path]
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def ask(self, script: str) -> Any:
        """What a script comes to."""
        return self.page.evaluate(script)

    def pixels(self) -> str:
        """The map as a picture."""
        return str(self.ask("() => document.querySelector('.map-cells').toDataURL()"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One browser for all tests."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield started
        started.close()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Path]]:
    """A report of two runs with moves, failures, shares of GPUs, and a name that is a script."""
    place = tmp_path_factory.mktemp("browser")
    rows = []
    for i in range(90):
        share = "250" if i % 4 == 0 else ""
        rows.append(
            f'"job {i} {EVIL}",{i * 300},{2000 + 977 * i % 9000},{1 if share else 2 ** (i % 4)},{share},"t{i % 13}"'
        )
    (place / "jobs.csv").write_text("\n".join(["name,submit_s,work_s,gpus,gpu_milli,tenant", *rows, ""]))
    document = {**BUSY, "trace": {"path": str(place / "jobs.csv"), "format": "headway"}}
    document["cluster"] = {"nodes": 3, "gpus_per_node": 8, "levels": [{"name": "rack", "nodes_per_domain": 2}]}
    document["failures"] = {"mtbf": "8h", "repair": "1h"}
    folders = {
        name: leave(place / name, document, policy)
        for name, policy in (("fifo", "fifo"), ("srtf", "srtf"), ("moving", "fifo+fit+spread+migrate-always"))
    }
    (place / "report.html").write_text(report_page.build(opened(*folders.values()), EVIL), encoding="utf-8")
    return place / "report.html", folders


@pytest.fixture(scope="module")
def shown(browser: Any, written: tuple[Path, dict[str, Path]]) -> Iterator[Shown]:
    """The report, opened from its file, once: each test goes to the run and the time that it is about."""
    path, folders = written
    opened_page = browser.new_page(viewport={"width": 1200, "height": 800}, color_scheme="light")
    seen = Shown(opened_page, folders)
    opened_page.on("request", lambda request: seen.requests.append(request.url))
    opened_page.on("console", lambda message: seen.complaints.append(message.text))
    opened_page.on("pageerror", lambda problem: seen.complaints.append(str(problem)))
    opened_page.goto(path.as_uri())
    opened_page.evaluate("() => headway.ready")
    yield seen
    opened_page.close()


def held(folder: Path, time: int) -> tuple[int, int]:
    """GPUs in use and nodes that take no jobs after everything up to a time."""
    stored = open_run(folder)
    scene = stored.scene
    state = state_at(
        scene.cluster, scene.jobs, stored.tape, time, scene.policy(), speed=scene.speed(), costs=scene.costs()
    )
    free = sum(mask.bit_count() for mask in state.pool.free_mask)
    return scene.cluster.gpus - free, len(scene.cluster.nodes) - state.pool.schedulable.bit_count()


def test_it_renders_and_asks_for_nothing_but_itself(shown: Shown) -> None:
    figures = shown.ask(
        """() => [...document.querySelectorAll('.plot')].filter(each => each.offsetParent)
            .map(each => each.querySelectorAll('svg .trace, svg .bars path').length)"""
    )
    assert len(figures) >= 7
    assert min(figures) > 0
    assert len(shown.pixels()) > 2000
    assert [url.partition(":")[0] for url in shown.requests if not url.startswith("blob:")] == ["file"]
    assert shown.complaints == []


def test_what_gets_into_the_page_by_any_way_neither_runs_nor_reaches_a_network(
    browser: Any, written: tuple[Path, dict[str, Path]]
) -> None:
    page = browser.new_page()
    asked: list[Any] = []
    page.goto(written[0].as_uri())
    page.evaluate("() => headway.ready")
    page.on("request", lambda request: asked.append(request))
    refused = page.evaluate(
        """async () => {
            const refused = [];
            document.addEventListener('securitypolicyviolation', event => refused.push(event.effectiveDirective));
            const script = document.createElement('script');
            script.textContent = 'window.pwned = 3';
            document.body.append(script);
            const box = document.createElement('div');
            box.innerHTML = '<img src="http://127.0.0.1:9/seen.png" onerror="window.pwned = 4">';
            document.body.append(box);
            await fetch('http://127.0.0.1:9/told').catch(() => 0);
            await new Promise(done => setTimeout(done, 50));
            return refused;
        }"""
    )
    assert page.evaluate("() => window.pwned") is None
    assert {"script-src-elem", "script-src-attr", "img-src", "connect-src"} <= set(refused)
    assert {request.failure for request in asked} <= {"csp"}  # refused before anything was sent
    page.close()


def test_names_from_a_trace_are_never_run(shown: Shown) -> None:
    assert shown.ask("() => window.pwned") is None
    assert shown.ask("() => document.querySelectorAll('img').length") == 0
    assert "<script>" in shown.ask("() => document.querySelector('#longest').textContent")


def test_the_slider_moves_the_map(shown: Shown) -> None:
    slider = shown.page.locator("#map-time")
    last = int(slider.get_attribute("max"))
    slider.fill(str(last // 5))
    before, when = shown.pixels(), slider.get_attribute("aria-valuetext")
    slider.fill(str(last // 2))
    assert shown.ask("() => headway.map.time") == last // 2
    assert shown.pixels() != before
    assert slider.get_attribute("aria-valuetext") != when
    assert "GPUs in use" in str(slider.get_attribute("aria-valuetext"))


def test_arrow_keys_step_and_with_shift_jump_to_the_next_failure_or_move(shown: Shown) -> None:
    slider = shown.page.locator("#map-time")
    slider.fill("0")
    slider.press("ArrowRight")
    step = shown.ask("() => headway.map.time")
    assert 0 < step <= int(slider.get_attribute("max")) / 100
    slider.press("ArrowLeft")
    assert shown.ask("() => headway.map.time") == 0
    slider.press("Shift+ArrowRight")
    jumped = shown.ask("() => headway.map.time")
    assert jumped > 0
    slider.press("Shift+ArrowRight")
    assert shown.ask("() => headway.map.time") > jumped


@pytest.mark.parametrize("name", ["fifo", "srtf", "moving"])
def test_the_map_counts_what_the_state_counts(shown: Shown, name: str) -> None:
    index = list(shown.folders).index(name)
    shown.ask(f"() => headway.look({index})")
    ticks, tick_s = shown.ask("() => [headway.map.ticks, headway.map.tick_s]")
    tick = round(tick_s * SECOND)
    for part in range(1, 8):
        number = ticks * part // 8
        seen = shown.ask(f"() => headway.map.at({number})")
        busy, down = held(shown.folders[name], (number + 1) * tick - 1)
        assert (seen["busy"], seen["down"]) == (busy, down)


def test_choosing_a_run_shows_its_map_its_causes_and_its_jobs(shown: Shown) -> None:
    picker = shown.page.locator("#run")
    first = int(picker.input_value())
    before = shown.pixels()
    other = (first + 1) % len(shown.folders)
    picker.select_option(str(other))
    shown.page.wait_for_function(f"() => !document.querySelector('#longest [data-run=\"{other}\"]').hidden")
    shown.ask(f"() => headway.look({other})")
    assert shown.pixels() != before
    visible = shown.ask(
        "() => [...document.querySelectorAll('[data-run]')].filter(e => !e.hidden).map(e => e.dataset.run)"
    )
    assert set(visible) == {str(other)}
    assert shown.ask(f"() => document.querySelector('[data-figure=causes-tenant-{other}] svg') !== null")


def test_colours_change_with_the_theme_and_with_what_they_stand_for(shown: Shown) -> None:
    colour = "() => getComputedStyle(document.body).backgroundColor"
    axis = "() => document.querySelector('[data-figure=jct] .xtick text').style.fill"
    light, light_axis, light_map = shown.ask(colour), shown.ask(axis), shown.pixels()
    shown.page.locator("#theme").click()
    shown.page.wait_for_function(f"before => ({axis})() !== before", arg=light_axis)
    assert shown.ask(colour) != light
    dark_map = shown.pixels()
    assert dark_map != light_map
    shown.page.locator("[data-colour=job]").click()
    assert shown.pixels() != dark_map
    shown.page.locator("[data-colour=tenant]").click()
    shown.page.locator("#theme").click()
    assert shown.ask(colour) == light


def test_pointing_at_a_gpu_tells_about_its_job(shown: Shown) -> None:
    shown.page.locator(".map").scroll_into_view_if_needed()
    x, y = shown.ask(
        """() => { const box = document.querySelector('.map-cells').getBoundingClientRect();
            return [box.x + 15, box.y + 28]; }"""
    )
    shown.page.mouse.move(x, y)
    told = shown.page.locator(".map-tip")
    told.wait_for(state="visible")
    text = told.inner_text()
    assert "n0, GPU 0" in text
    assert "job" in text or "free" in text or "node" in text


def test_playing_moves_time_until_it_is_paused(shown: Shown) -> None:
    shown.page.locator("#map-time").fill("0")
    button = shown.page.locator("[data-do=play]")
    button.click()
    shown.page.wait_for_function("() => headway.map.time > 0")
    button.click()
    assert button.get_attribute("aria-label") == "Play"
    assert shown.complaints == []


def test_a_narrow_screen_has_no_sideways_scroll(shown: Shown) -> None:
    shown.page.set_viewport_size({"width": 390, "height": 800})
    shown.page.wait_for_function("() => document.documentElement.scrollWidth <= 390")
    assert shown.ask("() => document.querySelector('.map-cells').clientWidth") < 390
    shown.page.set_viewport_size({"width": 1200, "height": 800})


def test_long_names_fit_a_narrow_screen_and_are_given_in_full(
    browser: Any, written: tuple[Path, dict[str, Path]], tmp_path: Path
) -> None:
    runs = []
    for weight, folder in enumerate(written[1].values()):
        short = f"multifactor(fairshare_weight={weight}, …)+conservative(…)+first-fit"
        full = short.replace("…", "size_weight=200, max_age=3d", 1).replace("…", "depth=200, interval=30s")
        runs.append(Measured(short, "", open_run(folder), name=full))
    (tmp_path / "long.html").write_text(report_page.build(Comparison(tuple(runs))), encoding="utf-8")
    opened_page = browser.new_page(viewport={"width": 390, "height": 800})
    opened_page.goto((tmp_path / "long.html").as_uri())
    opened_page.evaluate("() => headway.ready")
    opened_page.wait_for_function("() => document.documentElement.scrollWidth <= 390")
    bars = "[data-figure=causes-runs] .ytick"
    opened_page.wait_for_function(f"() => document.querySelectorAll('{bars}').length === 3")  # a bar for each run
    title = opened_page.evaluate("() => document.querySelector('#answer h1 b').title")
    assert title in [run.name for run in runs]
    assert runs[2].name in opened_page.locator("#table .whole").inner_text()
    opened_page.close()

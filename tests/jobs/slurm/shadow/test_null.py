"""Shadowing the site's own policy books no saving beyond the backtest's error."""

import gzip
from pathlib import Path

import pytest

from bench.slurm_replay import cluster_files
from examples.slurm.site import looks
from headway.core.audit import Finding
from headway.jobs.ask.backtest import replayed
from headway.jobs.slurm.shadow import dumps
from headway.jobs.slurm.shadow.answer import answer, savings_of
from headway.jobs.slurm.shadow.folder import SITE, Shadow, experiment_of, opened
from headway.runs.play import play
from tests.jobs.slurm.shadow import site

SAMPLES = Path(__file__).parents[3] / "samples"


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shadow of the site's own policy, with all looks taken."""
    folder = tmp_path_factory.mktemp("site")
    paths = site.dumps(folder)
    with opened(folder / "shadow", SITE, site.files(folder), site.config(folder)) as shadow:
        dumps.take(shadow, [str(path) for path in paths], lambda line: None)
    return folder / "shadow"


def _played(shadow: Shadow) -> Shadow:
    shadow.play()
    assert shadow.played is not None
    return shadow


def test_its_own_policy_saves_what_the_backtest_is_off_and_claims_nothing(taken: Path) -> None:
    with opened(taken) as found:
        shadow = _played(found)
        assert shadow.played is not None
        saved = savings_of(shadow, shadow.played)
        experiment = experiment_of(taken, shadow.settings, SITE, shadow.records.first)
        backtest, _ = replayed(experiment)
    assert saved.booked == backtest.compared > 100
    assert saved.open == 0
    assert saved.whole.saved_mean_s == pytest.approx(-backtest.whole.bias_s), "by another way: headway jobs backtest"
    assert saved.whole.error_mean_s == pytest.approx(saved.whole.saved_mean_s)
    for each in (saved.whole, *(group for groups in saved.groups.values() for group in groups)):
        assert each.beyond_error in (False, None), f"{each.group} claims a saving"
    assert saved.whole.wait_real_mean_s > 600, "there is something to save"
    assert abs(saved.whole.saved_mean_s) < 0.3 * saved.whole.wait_real_mean_s


def test_its_tape_is_that_of_a_simulation_of_the_record_and_is_sound(taken: Path) -> None:
    with opened(taken) as found:
        played = _played(found).played
        assert played is not None
    assert played.tape.digest == play(played.scene).tape.digest
    findings: list[Finding] = list(played.scene.audit(played.tape, complete=True))
    assert findings == []


def test_another_policy_is_held_against_the_same_error(taken: Path, tmp_path: Path) -> None:
    root = taken.parent
    paths = sorted((root / "looks").iterdir())
    with opened(tmp_path / "fifo", "fifo", site.files(root), site.config(root)) as shadow:
        dumps.take(shadow, [str(path) for path in paths], lambda line: None)
        record = answer(shadow).record()
    with opened(taken) as found:
        own = answer(_played(found)).record()
    assert record["error_mean_s"] == pytest.approx(own["saved_mean_s"])
    assert record["saved_mean_s"] != own["saved_mean_s"]
    assert record["booked"] == own["booked"]
    assert record["verdict"] == own["verdict"] == "no saving beyond the backtest's error"
    assert record["outran"] > 0, "some ran ahead of what was known on the way"


def test_of_a_real_slurm_its_own_policy_saves_nothing_either(tmp_path: Path) -> None:
    record = SAMPLES / "slurm-lab" / "site" / "run-1"
    sacct = tmp_path / "sacct.txt"
    sacct.write_bytes(gzip.decompress((record / "sacct.txt.gz").read_bytes()))
    paths = looks.write(sacct, tmp_path / "looks", 6)
    with opened(tmp_path / "shadow", SITE, cluster_files(record), str(record / "config.txt")) as shadow:
        dumps.take(shadow, [str(path) for path in paths], lambda line: None)
        played = shadow.played
        assert played is not None
        saved = savings_of(shadow, played)
    whole = play(played.scene).tape
    assert played.tape.digest == whole.until(played.end.time).digest, "as far as the last look goes"
    assert len(played.tape) > 0.9 * len(whole)
    assert (saved.booked > 250, saved.open) == (True, 0)
    assert saved.whole.beyond_error is False
    short = "simulated waits are short by what this Slurm needs between two jobs: half a second each"
    assert abs(saved.whole.saved_mean_s) < 0.15 * saved.whole.wait_real_mean_s, short
    for each in (group for groups in saved.groups.values() for group in groups):
        assert each.beyond_error in (False, None), f"{each.group} claims a saving"

"""Real programs profiled: what they want is found, the profile is found again, and nothing half-made is left."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headway.device import cgroups, limits
from headway.device.limits import Limits
from headway.errors import ProfileError
from headway.jobs.profiling import bandwidth, job, watch
from headway.jobs.profiling.job import profile
from headway.jobs.profiling.matrix import wanted_cpus
from headway.jobs.profiling.options import Options, cpus_of, dataset_of, memory_of, pattern_of
from headway.jobs.tables import profiles as profile_file
from headway.profiling import store
from tests.profiling.programs import HEAD, HUNGRY, SLEEPER, written

HERE = limits.here()
PART = "0.25" if HERE.fractions else "1"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(watch, "LEAST_S", 0.5)
    monkeypatch.setattr(bandwidth, "LONGEST_S", 0.05)
    monkeypatch.setattr(bandwidth, "_TRIAL_BYTES", 4 << 20)
    monkeypatch.setenv("HEADWAY_PROFILES", str(tmp_path / "profiles"))


def test_a_hungry_program_is_told_from_one_that_wants_no_cpu(tmp_path: Path) -> None:
    said: list[str] = []
    hungry = profile(written(tmp_path, HUNGRY, "hungry.py"), cpus=f"{PART}-1", steps=20, say=said.append).document
    sleeper = profile(written(tmp_path, SLEEPER, "sleeper.py"), cpus=f"{PART}-1", steps=20).document
    if HERE.fractions:
        assert wanted_cpus(hungry) == 1
        assert hungry["throughput"][0][0] == pytest.approx(0.25, rel=0.2)
        assert sleeper["throughput"][0][0] > 0.6
    assert hungry["measured"]["limits"] == HERE.means
    assert any("1 CPUs: " in line and "samples/s ±" in line for line in said)
    assert set(profile_file.load([tmp_path / "profiles"])) == {"hungry", "sleeper"}


def test_a_profile_is_found_again_until_the_program_changes_or_more_is_asked(tmp_path: Path) -> None:
    command = written(tmp_path, SLEEPER)
    first = profile(command, cpus="1", steps=20)
    out = tmp_path / "copy.toml"
    second = profile(command, cpus="1", steps=20, out=out)
    assert not first.found_again
    assert second.found_again
    assert second.document == store.find(first.document["measured"]["key"]).document  # type: ignore[union-attr]
    assert profile_file.read(out).model == "train"
    assert not profile(command, cpus="1", steps=20, again=True).found_again
    written(tmp_path, SLEEPER + "# changed\n")
    assert not profile(command, cpus="1", steps=20).found_again


@pytest.mark.parametrize(
    ("before", "now", "again"),
    [
        ({"cpus": (1,), "exactly": True}, {}, False),
        ({"cpus": (1,), "exactly": True}, {"cpus": (1,), "exactly": True}, True),
        ({"cpus": (1, 2), "exactly": True}, {"cpus": (1, 2)}, False),
        ({"cpus": (1, 2)}, {"cpus": (1, 2), "exactly": True}, False),
        ({"cpus": (1, 2)}, {}, False),
        ({"cpus": (1, 4)}, {"cpus": (2, 4)}, True),
        ({}, {"cpus": (2, 4)}, True),
        ({}, {"steps": 50}, True),
        ({}, {"steps": 51}, False),
        ({"steps": 100}, {}, True),
        ({"memory": (10**9,)}, {}, False),
        ({"memory": (10**9, 10**10)}, {"memory": (10**9, 10**10), "memory_range": True}, False),
    ],
)
def test_a_stored_profile_answers_only_what_it_covers(
    before: dict[str, Any], now: dict[str, Any], again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made_up(program: object, offers: object, cpus: float, **_: object) -> watch.Reading:
        return watch.Reading(cpus, watch.Rate(100 * cpus, 0.01, 50, 5, 3.0), 4.0, 4.0, 1 << 20, 0.0)

    room = cgroups.Room(2, dict.fromkeys(("cpu", "memory"), Path("/nowhere")))
    monkeypatch.setattr(job, "watch", made_up)
    monkeypatch.setattr(limits, "here", lambda: Limits(room, (0, 1, 2, 3), 4, 10**12))
    for asked, expected in ((before, False), (now, again)):
        done = job.made(Options(("train",), **asked), out=None, again=False, say=str, tell=None)
        assert done.found_again is expected


def test_the_memory_axis_comes_from_what_the_cache_says(tmp_path: Path) -> None:
    source = f"""{HEAD}
import json
kept = min(int(os.environ["HEADWAY_CACHE_BYTES"]), 10**9)
line = {{"items": 10**4, "item_bytes_mean": 1e5, "dataset_bytes": 10**9, "cached_bytes": kept}}
open(os.environ["HEADWAY_CACHE"], "a").write(json.dumps(line) + "\\n")
while True:
    time.sleep(0.005 if kept else 0.02)
    step()
"""
    document = profile(written(tmp_path, source), cpus="1", steps=20).document
    bandwidths = document["measured"]["bandwidth"]
    assert document["dataset"] == 10**9
    assert bandwidths["bytes_per_sample"] == 100_000
    assert bandwidths["uncached_per_second"] < document["measured"]["samples_per_second"] / 2
    assert document["throughput"][0][0] == pytest.approx(
        bandwidths["uncached_per_second"] / document["measured"]["samples_per_second"], rel=0.02
    )
    assert len(document["memory"]) > 3


def test_data_and_samples_may_be_told_by_flags(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_bytes(bytes(3_000_000))
    document = profile(
        written(tmp_path, SLEEPER), cpus="1", steps=20, dataset=str(tmp_path / "data"), bytes_per_sample=100_000
    ).document
    assert document["dataset"] == 3_000_000
    assert document["measured"]["bandwidth"]["overlap"] == 1
    assert document["measured"]["data"]["files"] == 1


def test_points_to_compare_with_are_not_part_of_the_profile(tmp_path: Path) -> None:
    document = profile(written(tmp_path, SLEEPER), cpus="1", steps=20, check=[1]).document
    (check,) = document["measured"]["checks"]
    assert abs(check["off"]) < 0.5
    assert document["measured"]["cost"]["runs"] == 1


def test_where_throughput_falls_the_points_are_measured_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = iter([100.0, 150.0, 120.0, 118.0])  # at 2 and 1 CPUs, then again at 1 and 2
    asked: list[float] = []

    def made_up(program: object, offers: object, cpus: float, **_: object) -> watch.Reading:
        asked.append(cpus)
        return watch.Reading(cpus, watch.Rate(next(rates), 0.01, 50, 5, 3.0), 4.0, 4.0, 1 << 20, 0.0)

    monkeypatch.setattr(job, "watch", made_up)
    monkeypatch.setattr(limits, "here", lambda: Limits(HERE.room, (0, 1), 2, HERE.memory_bytes))
    document = profile(["train"], cpus="1,2").document
    assert asked == [2, 1, 1, 2]
    assert document["throughput"] == [[1.0], [1.0]]
    assert document["error"] > 0.1
    assert [each["runs"] for each in document["measured"]["points"]] == [2, 2]


def test_nothing_is_stored_of_a_profile_that_fails(tmp_path: Path) -> None:
    source = SLEEPER.replace("while True:", "while os.environ['HEADWAY_CPUS'] == '1':") + "\nsys.exit(5)"
    if HERE.fractions:
        with pytest.raises(ProfileError, match=r"at 0\.5 CPUs: ended with status 5"):
            profile(written(tmp_path, source), cpus="0.5-1", steps=20, out=tmp_path / "x.toml")
    else:
        with pytest.raises(ProfileError, match="whole CPUs"):
            profile(written(tmp_path, source), cpus="0.5-1", steps=20, out=tmp_path / "x.toml")
    assert not (tmp_path / "x.toml").exists()
    assert not (tmp_path / "profiles").exists()


# --- what is asked --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"cpus": "0.5-9999"}, r"--cpus 0\.5-9999: this machine has [\d.]+ CPUs"),
        ({"cpus": "4-1"}, "--cpus 4-1: the lower end comes first"),
        ({"cpus": "0.001-1"}, r"--cpus 0\.001-1: at least 0\.05 CPUs"),
        ({"cpus": "many"}, "--cpus 'many' is not understood: write 0.5-16"),
        ({"cpus": "nan"}, r"--cpus nan: at least 0\.05 CPUs"),
        ({"check": [1, 9999]}, r"--check 9999: this machine has [\d.]+ CPUs"),
        ({"check": [0]}, r"--check 0: at least 0\.05 CPUs"),
        ({"check": [-1]}, r"--check -1: at least 0\.05 CPUs"),
        ({"check": [float("nan")]}, r"--check nan: at least 0\.05 CPUs"),
        ({"memory": "lots"}, "--memory 'lots' is not understood"),
        ({"memory": "9TB-1GB"}, "--memory 9TB-1GB: the lower end comes first"),
        ({"memory": "1GB-900TB"}, "a memory limit of 900 TB: this machine has|cannot be set"),
        ({"memory": "900TB", "gpus": 2}, "for each of 2 GPUs: this machine has"),
        ({"memory": "0"}, "sizes must be above 0"),
        ({"dataset": "/nowhere/at/all"}, "--dataset /nowhere/at/all: there is no such file or folder"),
        ({"dataset": "0"}, "--dataset 0: must be above 0"),
        ({"pattern": "step ("}, r"--pattern 'step \(' is no regular expression"),
        ({"pattern": ".*"}, "matches nothing at all"),
        ({"steps": 3}, "--steps 3: at least 10"),
        ({"gpus": 0}, "--gpus 0: at least 1"),
        ({"timeout_s": 0}, "--timeout 0: must be above 0"),
        ({"out": Path("/nowhere/at/all.toml")}, "there is no folder /nowhere/at"),
    ],
)
def test_what_cannot_be_done_is_one_line_before_anything_runs(given: dict[str, object], line: str) -> None:
    with pytest.raises(ProfileError, match=line):
        profile(["no-such-program"], **given)  # type: ignore[arg-type]
    with pytest.raises(ProfileError, match="there is no such program"):
        profile(["no-such-program"], cpus="1")
    with pytest.raises(ProfileError, match="no program was given"):
        profile([])


def test_ranges_and_lists_are_read() -> None:
    assert cpus_of("0.5-16") == ((0.5, 16), False)
    assert cpus_of("2, 1") == ((1, 2), True)
    assert cpus_of("1-1") == ((1,), True)
    assert memory_of("20GB-250GB") == ((20 * 10**9, 250 * 10**9), True)
    assert memory_of("60GB,20GB") == ((20 * 10**9, 60 * 10**9), False)
    assert dataset_of("140GB") == (None, 140 * 10**9)
    assert pattern_of(r"step (\d+)").search("step 12")


def test_a_machine_with_one_cpu_needs_quotas() -> None:
    one = Limits(None, (0,), 1, HERE.memory_bytes)
    with pytest.raises(ProfileError, match=r"one CPU, and no control group .* run as root"):
        Options(("train",)).ends(one)
    if HERE.room is not None:
        assert Options(("train",)).ends(Limits(HERE.room, (0,), 1, HERE.memory_bytes)) == (0.25, 1)
    two = Limits(None, (0, 1), 2, HERE.memory_bytes)
    assert Options(("train",)).ends(two) == (1, 2)
    with pytest.raises(ProfileError, match=r"0\.5 CPUs: .*only whole CPUs"):
        Options(("train",), cpus=(0.5, 2)).ends(two)


def test_the_name_of_a_model_is_the_scripts() -> None:
    assert Options(("python", "-u", "a/resnet.py", "--x")).name == "resnet"
    assert Options(("python", "-m", "pkg.lm")).name == "lm"
    assert Options(("./train",), model="mine").name == "mine"


def test_profiling_needs_neither_msgspec_nor_polars(tmp_path: Path) -> None:
    code = (
        "import sys\nfor name in ('msgspec', 'polars', 'plotly', 'typer', 'rich'): sys.modules[name] = None\n"
        "import headway.jobs.profiling.job\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

"""The store of kernel profiles: what was saved comes back, files are whole or not there, strangers are refused."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from headway.errors import ProfileError
from headway.gpu.programs import store as kernel_store
from headway.gpu.programs.store import KernelStore, stores

KERNELS = [
    {"id": "00ff", "name": "alpha", "work_ns": 10, "samples": 3, "longest_ns": 12, "blocks": 1, "per_sm": 2, "kind": 1}
]
STEPS = [{"key": "0a", "gap_ns": 5, "think_ns": 0, "alone_ns": 0, "slack_ns": 1, "samples": 2, "waits": 0, "alone": 0}]


@pytest.fixture
def store(tmp_path: Path) -> KernelStore:
    return KernelStore("NVIDIA H200", "580.1", tmp_path)


def pair(program: str = "a", co_runner: str = "b", share: int = 500_000, **more: Any) -> dict[str, Any]:
    row = {"program": program, "co_runner": co_runner, "sm_share_ppm": share}
    return {**row, "slowdown_ppm": 1_050_000, "harvest_ppm": 600_000, "measured": True, **more}


def test_what_was_saved_comes_back(store: KernelStore, tmp_path: Path) -> None:
    assert store.load("api") is None
    store.save("api", KERNELS, STEPS, {"busy_share": 0.25})
    assert store.load("api") == (KERNELS, STEPS)
    assert (store.entry("api") or {})["summary"] == {"busy_share": 0.25}
    assert store.path("api") == tmp_path / "NVIDIA_H200" / "580.1" / "api.json"
    assert json.loads(store.path("api").read_text())["version"] == 1
    assert store.programs() == ["api"]
    assert [(each.gpu, each.driver, each.programs()) for each in stores(tmp_path)] == [
        ("NVIDIA_H200", "580.1", ["api"])
    ]


def test_the_broker_saves_without_a_summary_and_the_measured_one_stays(store: KernelStore) -> None:
    store.save("api", KERNELS, STEPS, {"busy_share": 0.25})
    store.save("api", [], STEPS)
    assert store.load("api") == ([], STEPS)
    assert (store.entry("api") or {})["summary"] == {"busy_share": 0.25}


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b c", "pairs", "", ".hidden", "é" * 300])
def test_a_program_of_any_name_stays_inside_the_store(store: KernelStore, name: str) -> None:
    store.save(name, KERNELS, STEPS)
    assert store.load(name) == (KERNELS, STEPS)
    assert store.path(name).parent == store.folder
    assert store.pairs() == []


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ('{"version": 9}', "is of version 9, this headway reads 1"),
        ("[]", "is of version None"),
        ("{", "is not JSON"),
    ],
)
def test_a_file_of_another_version_or_a_broken_one_is_refused(store: KernelStore, content: str, line: str) -> None:
    store.save("api", KERNELS, STEPS)
    store.path("api").write_text(content)
    with pytest.raises(ProfileError, match=line) as said:
        store.load("api")
    assert "\n" not in str(said.value)
    assert store.programs() == []
    store.save("api", KERNELS, STEPS)  # what is learnt again replaces it
    assert store.load("api") == (KERNELS, STEPS)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    store: KernelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save("api", KERNELS, STEPS)

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(ProfileError, match=r"cannot be written .No space left"):
        store.save("api", [], [])
    assert store.load("api") == (KERNELS, STEPS)
    assert [path.name for path in store.folder.iterdir()] == ["api.json"]


def test_a_newer_pair_replaces_the_older_but_a_guess_never_a_measurement(store: KernelStore) -> None:
    store.add_pairs([pair(), pair(share=1_000_000, measured=False)])
    store.add_pairs([pair(slowdown_ppm=1_100_000), pair(share=1_000_000, slowdown_ppm=2_000_000, measured=False)])
    assert [(row["sm_share_ppm"], row["slowdown_ppm"]) for row in store.pairs()] == [
        (500_000, 1_100_000),
        (1_000_000, 2_000_000),
    ]
    store.add_pairs([pair(slowdown_ppm=9, measured=False)])
    assert store.pairs()[0]["slowdown_ppm"] == 1_100_000
    assert store.programs() == []


@pytest.mark.parametrize(
    ("row", "line"),
    [
        (pair(program=""), "program must be a name"),
        (pair(co_runner=3), "co_runner must be a name"),
        (pair(slowdown_ppm=1.05), "slowdown_ppm 1.05 must be a whole number"),
        (pair(harvest_ppm=-1), "harvest_ppm -1 must be a whole number"),
    ],
)
def test_a_pair_that_is_none_is_refused(store: KernelStore, row: dict[str, Any], line: str) -> None:
    with pytest.raises(ProfileError, match=line):
        store.add_pairs([row])


def test_the_folder_is_the_one_that_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HEADWAY_PROFILES", str(tmp_path / "mine"))
    assert kernel_store.folder() == tmp_path / "mine"
    monkeypatch.delenv("HEADWAY_PROFILES")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert kernel_store.folder() == tmp_path / "cache" / "headway" / "kernels"


def test_the_boldness_of_pairs_is_kept_beside_the_profiles(tmp_path: Path) -> None:
    store = KernelStore("NVIDIA H200", "580.1", tmp_path)
    assert store.learnt() == {}
    store.save_learnt({("api", "train"): {"boldness_ppm": 700_000, "holds": 7}, ("api", "fft"): {"boldness_ppm": 0}})
    store.save_learnt({("api", "train"): {"boldness_ppm": 900_000}})
    assert KernelStore("NVIDIA H200", "580.1", tmp_path).learnt() == {
        ("api", "train"): {"boldness_ppm": 900_000, "holds": 7},
        ("api", "fft"): {"boldness_ppm": 0},
    }
    assert store.programs() == []
    assert store.path("boldness").name == "boldness_.json"
    file = store.folder / "boldness.json"
    file.write_text(file.read_text().replace("900000", "-1"))
    assert store.learnt() == {("api", "fft"): {"boldness_ppm": 0}, ("api", "train"): {"holds": 7}}, "not what cannot be"
    file.write_text("{")
    with pytest.raises(ProfileError, match="is not JSON"):
        store.learnt()
    store.save_learnt({("a", "b"): {"boldness_ppm": 1}})
    assert store.learnt() == {("a", "b"): {"boldness_ppm": 1}}, "a broken file is replaced"

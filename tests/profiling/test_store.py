"""Stored profiles: keys that change with what matters, files that are whole or not there."""

import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from headway.errors import InputError, ProfileError
from headway.formats import toml_text
from headway.profiling import store

texts = st.text(st.characters(codec="utf-8"), max_size=8)
leaves = st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | texts
inline = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3), max_leaves=5)
documents = st.recursive(
    st.dictionaries(texts, inline, max_size=4),
    lambda inner: st.dictionaries(texts, inner | inline | st.lists(st.dictionaries(texts, leaves), max_size=2)),
    max_leaves=6,
)


@given(documents)
def test_what_is_written_is_read_back(document: dict[str, Any]) -> None:
    assert tomllib.loads(toml_text.write(document)) == document


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        store.write({"model": object()}, tmp_path / "x.toml")
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_is_interrupted_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.toml"
    store.write({"model": "old"}, path)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        store.write({"model": "new"}, path)
    assert [each.name for each in tmp_path.iterdir()] == ["x.toml"]
    assert tomllib.loads(path.read_text()) == {"model": "old"}


def test_the_key_changes_with_the_command_and_with_the_script(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("a")
    command = ["python", str(script), "--lr", "0.1"]
    first = store.key(store.program(command))
    assert store.key(store.program(command)) == first
    assert store.key(store.program([*command[:-1], "0.2"])) != first
    script.write_text("b")
    assert store.key(store.program(command)) != first


def test_the_key_changes_with_a_program_that_is_run_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.sh").write_text("a")
    first = store.key(store.program(["./train.sh"]))
    (tmp_path / "train.sh").write_text("b")
    assert store.key(store.program(["./train.sh"])) != first
    (tmp_path / "large").write_bytes(bytes((4 << 20) + 1))
    large = store.program(["./large"])
    assert store.program(["./large"]) == large
    os.utime("large", (1, 1))
    assert store.program(["./large"]) != large
    assert store.program(["train", "large"])["contents"] == {}  # it may be what the program writes


def test_a_module_is_found_below_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "train.py").write_text("a")
    assert list(store.program(["python", "-m", "pkg.train"])["contents"]) == ["pkg.train"]


def test_the_key_changes_with_the_data(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1234")
    first = store.data_set(tmp_path)
    assert (first["files"], first["bytes"]) == (1, 4)
    (tmp_path / "b").write_text("12")
    assert store.data_set(tmp_path) != first
    assert store.data_set(tmp_path / "a")["bytes"] == 4


def test_the_hardware_names_the_cpu_and_a_share_of_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    assert store.hardware(2, 10)["cpu"]
    monkeypatch.setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "50")
    assert store.hardware(2, 10)["gpu_percent"] == "50"


def test_a_newer_profile_replaces_the_one_with_its_key_and_no_other(tmp_path: Path) -> None:
    def document(key: str, value: int) -> dict[str, Any]:
        return {"model": "my model/x", "value": value, "measured": {"key": key}}

    (tmp_path / "my_model_x-20200101T000000-k.toml").write_text(toml_text.write(document("k", 1)))
    (tmp_path / "broken.toml").write_text("model = ")
    (tmp_path / "foreign.toml").write_text("model = 'x'")
    store.keep(document("other", 2), tmp_path)
    path = store.keep(document("k", 3), tmp_path)
    assert path.name.startswith("my_model_x-")
    found = store.find("k", tmp_path)
    assert found is not None
    assert (found.document["value"], found.path) == (3, path)
    assert sorted(each.document["value"] for each in store.listed(tmp_path)) == [2, 3]
    assert store.find("nothing", tmp_path) is None
    assert (tmp_path / "broken.toml").exists()


def test_where_profiles_lie(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HEADWAY_PROFILES", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert store.folder() == tmp_path / "headway" / "profiles"
    monkeypatch.delenv("XDG_DATA_HOME")
    assert store.folder().parts[-4:] == (".local", "share", "headway", "profiles")
    monkeypatch.setenv("HEADWAY_PROFILES", str(tmp_path))
    assert store.folder() == tmp_path


def test_only_a_profile_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "notes.toml").write_text("a = 1")
    (tmp_path / "train.py").write_text("x")
    (tmp_path / "mine.toml").write_text("throughput = [[1]]")
    for name in ("notes.toml", "train.py"):
        with pytest.raises(ProfileError, match="is no profile"):
            store.check_target(tmp_path / name)
    store.check_target(tmp_path / "mine.toml")
    with pytest.raises(ProfileError, match="there is no folder"):
        store.check_target(tmp_path / "none" / "mine.toml")

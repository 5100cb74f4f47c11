"""The library is found where it was built from these sources, built by a compiler, and refused in one line."""

import shutil
from pathlib import Path

import pytest

from headway.errors import ShareError
from headway.live.kernels import build
from tests.native.harness import ROOT, Built


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_sources_are_those_of_the_checkout() -> None:
    assert build.sources() == ROOT / "native"
    names = {file.name for file in build.parts(build.sources())}
    assert {"hooks.cpp", "gate.cpp", "share.cpp"} <= names
    assert not names & build.APART


def test_a_library_of_these_sources_is_found_and_an_older_one_is_not(built: Built, cache: Path) -> None:
    assert build.find() is None
    folder = build.cached(build.digest(build.sources()))
    folder.mkdir(parents=True)
    shutil.copy(built.shim, folder / build.LIBRARY)
    (folder / build.DIGEST).write_text("0123456789abcdef\n")
    assert build.find() is None
    (folder / build.DIGEST).write_text(build.digest(build.sources()) + "\n")
    assert build.library() == build.find() == folder / build.LIBRARY


def test_without_a_compiler_one_line_says_what_to_do(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(ShareError, match=r"^no C\+\+ compiler .* apt-get install g\+\+$"):
        build.build()
    with pytest.raises(ShareError, match=r"^no C\+\+ compiler 'icc'"):
        build.build("icc")


def test_a_compiler_that_fails_is_quoted_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ShareError, match=r"\A[^\n]*could not build the shim[^\n]*\Z"):
        build.build("false", tmp_path)
    assert not (tmp_path / build.LIBRARY).exists()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ShareError, match="cannot write the shim to"):
        build.build("g++", tmp_path / "file" / "below")

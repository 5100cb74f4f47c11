"""The library is found where it was built from these sources, built by a compiler, and refused in one line."""

import hashlib
import os
import shutil
import stat
from pathlib import Path

import pytest

from headway.errors import ShareError
from headway.gpu.share.shim import build, preload
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


def place(built: Built, *, sources: str = "", content: bytes = b"") -> Path:
    """A library in the cache, as a build leaves it."""
    folder = build.cached(build.digest(build.sources()))
    preload.make_folder(folder)
    made = folder / build.LIBRARY
    shutil.copy(built.shim, made)
    of_library = hashlib.sha256(content or made.read_bytes()).hexdigest()
    (folder / build.DIGEST).write_text(f"{sources or build.digest(build.sources())} {of_library}\n")
    return made


def test_a_library_of_these_sources_is_found_and_an_older_one_is_not(built: Built, cache: Path) -> None:
    assert build.find() is None
    place(built, sources="0123456789abcdef")
    assert build.find() is None
    made = place(built)
    assert build.library() == build.find() == made


def test_a_library_that_is_not_the_one_that_was_built_is_not_loaded(built: Built, cache: Path) -> None:
    made = place(built)
    assert build.find() == made
    with made.open("ab") as file:
        file.write(b"more")
    assert build.find() is None
    place(built, content=b"of other bytes")
    assert build.find() is None
    made.with_name(build.DIGEST).write_text(build.digest(build.sources()) + "\n")  # as earlier versions wrote it
    assert build.find() is None


def test_what_a_build_leaves_is_found_with_both_digests(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "_compile", lambda command, origin, made, extra: made.write_bytes(b"a library"))
    before = os.umask(0o002)
    try:
        made = build.build("g++")
    finally:
        os.umask(before)
    assert build.find() == made
    words = made.with_name(build.DIGEST).read_text().split()
    assert words == [build.digest(build.sources()), hashlib.sha256(b"a library").hexdigest()]
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (made, made.parent, made.parents[1], cache)]
    assert modes == [0o755, 0o700, 0o700, 0o700]
    assert sorted(path.name for path in made.parent.iterdir()) == sorted([build.LIBRARY, build.DIGEST])


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777])
def test_a_folder_that_others_may_write_to_is_refused(built: Built, cache: Path, mode: int) -> None:
    made = place(built)
    made.parent.chmod(mode)
    assert build.find() is None
    with pytest.raises(ShareError, match=rf"others may write to {made.parent}: chmod go-w {made.parent}, or set XDG"):
        build.library()
    with pytest.raises(ShareError, match=f"{made} is not loaded: others may write to {made.parent}"):
        preload.checked(made)


def test_on_the_way_only_a_sticky_folder_of_everybody_is_passed(built: Built, cache: Path) -> None:
    made = place(built)
    cache.chmod(0o1777)
    assert build.find() == preload.checked(made) == made
    cache.chmod(0o777)
    assert build.find() is None
    with pytest.raises(ShareError, match=f"others may write to {cache}"):
        preload.checked(made)


def test_a_file_that_others_may_write_is_refused(built: Built, cache: Path) -> None:
    made = place(built)
    made.chmod(0o666)
    assert build.find() is None
    with pytest.raises(ShareError, match=f"others may write to {made}"):
        preload.checked(made)


@pytest.mark.parametrize("which", ["file", "folder"])
def test_what_belongs_to_another_user_is_refused(
    built: Built, cache: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    made = place(built)
    path = made if which == "file" else made.parent
    real = os.lstat

    def theirs(each: Path) -> os.stat_result:
        about = real(each)
        return os.stat_result((*about[:4], 4321, *about[5:])) if each == path else about

    monkeypatch.setattr(preload.os, "lstat", theirs)
    assert build.find() is None
    with pytest.raises(ShareError, match=rf"{path} belongs to another user \(4321\)"):
        preload.checked(made)


def test_the_path_that_is_loaded_has_no_links(built: Built, cache: Path, tmp_path: Path) -> None:
    made = place(built)
    (tmp_path / "link.so").symlink_to(made)
    assert preload.checked(tmp_path / "link.so") == made
    made.chmod(0o757)
    with pytest.raises(ShareError, match=f"others may write to {made}"):
        preload.checked(tmp_path / "link.so")
    with pytest.raises(ShareError, match=r"none\.so: No such file or directory: headway share build makes one"):
        preload.checked(tmp_path / "none.so")
    with pytest.raises(ShareError, match="is not a library: it is not a regular file"):
        preload.checked(tmp_path)


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

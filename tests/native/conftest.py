"""What the tests of the shim share: everything compiled once a session, for all its processes."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.native.harness import Built, built as build_into
from tests.native.mini_broker import MiniBroker


def _root(factory: pytest.TempPathFactory, worker: str) -> Path:
    """A folder for this session: of all its processes where there are several."""
    base = factory.getbasetemp()
    return (base if worker == "master" else base.parent) / "native"


@pytest.fixture(scope="session")
def native_folder(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """Where things are compiled; with HEADWAY_NATIVE_TESTS=FOLDER they are kept there for the next session."""
    if kept := os.environ.get("HEADWAY_NATIVE_TESTS"):
        return Path(kept)
    worker = getattr(request.config, "workerinput", {}).get("workerid", "master")
    folder = _root(tmp_path_factory, worker)
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def built(native_folder: Path) -> Built:
    """The shim as users have it, and what drives it."""
    return build_into(native_folder, "plain")


@pytest.fixture(scope="session", params=["asan", "tsan"])
def sanitized(native_folder: Path, request: pytest.FixtureRequest) -> Built:
    """The same with a sanitizer in it: addresses and undefined behaviour, or threads."""
    return build_into(native_folder, request.param)


@pytest.fixture
def share(tmp_path: Path) -> Path:
    """Where a block would be."""
    return tmp_path / "block"


@pytest.fixture
def broker(share: Path) -> Iterator[MiniBroker]:
    """A broker with the usual rules."""
    with MiniBroker(share) as one:
        yield one

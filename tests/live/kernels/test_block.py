"""The shared block as a file: whole from its first moment, new each time, and nobody else's."""

import errno
import os
import stat
from pathlib import Path

import pytest

from headway.errors import ShareError
from headway.live.kernels import block as blocks
from headway.live.kernels.block import BLOCK_BYTES, FREE, LIVE, SharedBlock
from tests.live.kernels.shares import join


def test_all_of_its_memory_is_there_from_the_first_moment(short: Path) -> None:
    path = short / "block"
    SharedBlock.create(path, 132, 1).close()
    about = path.stat()
    assert about.st_blocks * 512 >= about.st_size == BLOCK_BYTES
    assert stat.S_IMODE(about.st_mode) == 0o600
    assert list(short.iterdir()) == [path]


def test_where_there_is_no_room_it_is_said_and_nothing_is_left(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(blocks.os, "posix_fallocate", full)
    with pytest.raises(ShareError, match=r"no room for the shared block in .*: it takes .*MB, .* are free: make room"):
        SharedBlock.create(short / "block", 132, 1)
    assert list(short.iterdir()) == []


def test_a_new_block_is_another_file_and_has_no_client_of_the_old_one(short: Path) -> None:
    path = short / "block"
    old = SharedBlock.create(path, 132, 1)
    held = os.open(path, os.O_RDWR)
    slot = join(old, 0, name="a", priority=3)
    new = SharedBlock.create(path, 132, 2)
    assert os.fstat(held).st_ino != path.stat().st_ino
    assert os.fstat(held).st_nlink == 0
    os.close(held)
    assert {each.state for each in new.slots} == {FREE}
    new.header.beat_ns = 77
    assert (slot.state, old.header.beat_ns, SharedBlock.open(path).header.beat_ns) == (LIVE, 1, 77)


def test_it_gets_its_name_only_when_it_is_filled_in(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, seen = short / "block", []
    real = Path.replace

    def looked_at(self: Path, target: Path) -> Path:
        assert not path.exists()
        seen.append(SharedBlock.open(self).header.sms)
        return real(self, target)

    monkeypatch.setattr(Path, "replace", looked_at)
    SharedBlock.create(path, 132, 1)
    assert seen == [132]


def test_a_link_in_its_place_is_replaced_by_the_broker_and_followed_by_nobody(short: Path) -> None:
    theirs, path = short / "theirs", short / "block"
    theirs.write_text("precious")
    path.symlink_to(theirs)
    with pytest.raises(ShareError, match="is a symbolic link"):
        SharedBlock.open(path)
    SharedBlock.create(path, 132, 1)
    assert theirs.read_text() == "precious"
    assert not path.is_symlink()


def test_what_cannot_be_made_or_is_none_is_one_line(short: Path) -> None:
    (short / "folder").mkdir()
    with pytest.raises(ShareError, match="folder cannot be made: Is a directory"):
        SharedBlock.create(short / "folder", 132, 1)
    with pytest.raises(ShareError, match=r"no shared block at .*none: No such file"):
        SharedBlock.open(short / "none")
    (short / "other").write_text("x")
    with pytest.raises(ShareError, match="is not a shared block of this version"):
        SharedBlock.open(short / "other")

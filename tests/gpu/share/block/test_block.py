"""The shared block: whole from its first moment, of a size that nobody changes, new each time, nobody else's."""

import errno
import os
import socket
import stat
from pathlib import Path

import pytest

from headway.errors import ShareError
from headway.gpu.share.block.block import BLOCK_BYTES, FREE, LIVE, SharedBlock
from headway.gpu.share.block.socket import BlockListener
from tests.gpu.share.shares import join


def test_all_of_its_memory_is_there_from_the_first_moment(short: Path) -> None:
    path = short / "block"
    block = SharedBlock.create(path, 132, 1)
    about = os.fstat(block.handle)
    assert about.st_blocks * 512 >= about.st_size == BLOCK_BYTES
    listener = path.lstat()
    assert stat.S_ISSOCK(listener.st_mode)
    assert stat.S_IMODE(listener.st_mode) == 0o600
    assert list(short.iterdir()) == [path]
    block.close()


def test_nobody_can_truncate_it(short: Path) -> None:
    path = short / "block"
    block = SharedBlock.create(path, 132, 1)
    theirs = SharedBlock.open(path)
    for handle in (block.handle, theirs.handle):
        for size in (0, BLOCK_BYTES - 4096, BLOCK_BYTES + 4096):
            with pytest.raises(PermissionError):
                os.ftruncate(handle, size)
            with pytest.raises(PermissionError):
                os.truncate(f"/proc/self/fd/{handle}", size)
    with pytest.raises(OSError, match=r"No such device or address|Invalid argument"):
        os.truncate(path, 0)
    with pytest.raises(OSError, match="No such device or address"):
        path.write_bytes(b"")
    theirs.header.beat_ns = 5
    assert block.header.beat_ns == 5
    theirs.close()
    block.close()


def test_what_could_be_truncated_is_not_mapped(short: Path) -> None:
    path = short / "block"
    block = SharedBlock.create(path, 132, 1)
    handle = os.memfd_create("loose", os.MFD_ALLOW_SEALING)
    os.write(handle, bytes(block._memory))
    listener = BlockListener(short / "loose", handle)
    with pytest.raises(ShareError, match="loose is not a shared block of this version"):
        SharedBlock.open(short / "loose")
    listener.close()
    os.close(handle)
    with pytest.raises(ShareError, match=r"no shared block at .*loose: Connection refused"):
        SharedBlock.open(short / "loose")
    block.close()


def test_a_broker_that_does_not_answer_is_one_line(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.gpu.share.block.socket._ANSWER_S", 0.05)
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(short / "mute"))
        mute.listen()
        with pytest.raises(ShareError, match="mute: the broker does not answer: headway share stop --kill ends it"):
            SharedBlock.open(short / "mute")


def test_a_path_longer_than_an_address_will_do(short: Path) -> None:
    deep = short / ("d" * 100)
    deep.mkdir()
    block = SharedBlock.create(deep / "block", 132, 1)
    assert SharedBlock.open(deep / "block").header.sms == 132
    block.close()


def test_where_there_is_no_room_it_is_said_and_nothing_is_left(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(ShareError, match=r"^no memory for the shared block: it takes 41.29 MB: free some"):
        SharedBlock.create(short / "block", 132, 1)
    assert list(short.iterdir()) == []


def test_a_new_block_is_other_memory_and_has_no_client_of_the_old_one(short: Path) -> None:
    path = short / "block"
    old = SharedBlock.create(path, 132, 1)
    before = os.fstat(old.handle).st_ino
    slot = join(old, 0, name="a", priority=3)
    new = SharedBlock.create(path, 132, 2)
    assert os.fstat(new.handle).st_ino != before
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

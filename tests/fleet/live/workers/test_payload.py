"""Values travel as they are; large buffers lie in blocks that can be removed by prefix."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headway.fleet.live.workers import payload
from headway.fleet.live.workers.payload import (
    FOLDER,
    LEAST_SHARED_BYTES,
    Packer,
    Payload,
    release,
    sweep,
    sweep_dead,
    unpack,
)


@pytest.fixture
def packer() -> Iterator[Packer]:
    """A packer whose blocks are removed."""
    made = Packer(f"headway-test-{os.getpid()}-{os.urandom(4).hex()}")
    yield made
    sweep(made.prefix)


@pytest.mark.parametrize("value", [None, 3, 2.5, True, "word", b"bytes", [1, {"a": (2, 3)}], {"x": None}])
def test_small_values_travel_inside_the_message(packer: Packer, value: Any) -> None:
    packed = packer.pack(value)
    assert not packed.block
    assert unpack(packed) == value


def test_large_arrays_lie_in_one_block(packer: Packer) -> None:
    value = {"a": np.arange(LEAST_SHARED_BYTES, dtype=np.int64), "b": [np.ones((300, 301)), "rest"]}
    packed = packer.pack(value)
    assert len(packed.data) < 2_000
    assert packed.sizes == (LEAST_SHARED_BYTES * 8, 300 * 301 * 8)
    found = unpack(packed)
    assert np.array_equal(found["a"], value["a"])
    assert np.array_equal(found["b"][0], value["b"][0])
    assert found["b"][1] == "rest"


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(200_000, dtype=torch.float32).reshape(100, 2000),
        torch.arange(200_000).to(torch.bfloat16),
        torch.arange(90_000).reshape(300, 300).t(),
        torch.tensor(3.5),
        torch.zeros(0, 4),
        torch.tensor([True, False]),
        torch.ones(3, requires_grad=True),
    ],
    ids=str,
)
def test_tensors_come_back_with_type_shape_and_values(packer: Packer, tensor: torch.Tensor) -> None:
    packed = packer.pack([tensor])
    assert bool(packed.block) == (tensor.numel() * tensor.element_size() >= LEAST_SHARED_BYTES)
    (found,) = unpack(packed)
    assert found.dtype == tensor.dtype
    assert torch.equal(found, tensor.detach())


def test_who_writes_to_an_unpacked_array_changes_its_own_copy_alone(packer: Packer) -> None:
    packed = packer.pack(np.zeros(LEAST_SHARED_BYTES, dtype=np.uint8))
    unpack(packed)[:] = 7
    assert not unpack(packed).any()


def test_a_released_block_is_gone_and_stays_readable_where_it_is_mapped(packer: Packer) -> None:
    packed = packer.pack(np.full(LEAST_SHARED_BYTES, 5, dtype=np.uint8))
    found = unpack(packed)
    release(packed)
    release(packed)
    assert not (FOLDER / packed.block).exists()
    assert (found == 5).all()
    with pytest.raises(FileNotFoundError):
        unpack(packed)


def test_sweeping_a_prefix_removes_its_blocks_and_no_others(packer: Packer) -> None:
    other = Packer(f"{packer.prefix}x")
    array = np.zeros(LEAST_SHARED_BYTES, dtype=np.uint8)
    kept = other.pack(array)
    packer.pack(array)
    packer.pack(array)
    assert sweep(packer.prefix) == 2
    assert (FOLDER / kept.block).exists()
    assert sweep(other.prefix) == 1


def test_full_shared_memory_is_an_error_and_leaves_no_block(
    packer: Packer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(payload, "FOLDER", tmp_path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        packer.pack(np.zeros(LEAST_SHARED_BYTES, dtype=np.uint8))
    assert list(tmp_path.iterdir()) == []


def test_without_a_prefix_all_of_a_value_is_in_its_bytes() -> None:
    value = {"array": np.arange(LEAST_SHARED_BYTES), "tensor": torch.ones(LEAST_SHARED_BYTES)}
    packed = Packer("").pack(value)
    assert (packed.block, packed.sizes) == ("", ())
    found = unpack(packed)
    assert np.array_equal(found["array"], value["array"])
    assert torch.equal(found["tensor"], value["tensor"])
    found["array"][0] = 5  # as in a block, it is the reader's own


def test_a_payload_without_a_block_is_released_by_doing_nothing() -> None:
    release(Payload(b"x"))
    assert unpack(Payload(b"N.")) is None


def test_what_a_killed_server_left_is_removed_and_that_of_a_living_one_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(payload, "FOLDER", tmp_path)
    dead, ours = tmp_path / "headway-4999999-a-0", tmp_path / f"headway-{os.getpid()}-b-0"
    (tmp_path / "headway-4999999-a-host").mkdir()
    for path in (dead, ours):
        path.touch()
    assert sweep_dead() == 2
    assert not list(tmp_path.glob("headway-4999999-*"))
    assert ours.exists()

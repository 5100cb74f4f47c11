"""Whatever becomes of the broker or of the shared memory, a program goes on, and says why once."""

import fcntl
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic_ns

import pytest

from headway.gpu.share.block.block import BLOCK_BYTES, LIVE, SLOTS, SharedBlock
from headway.gpu.share.block.socket import SEALS, BlockListener
from tests.native.harness import Built, Run, broker_process
from tests.native.mini_broker import MiniBroker

HELD = {5: {"hold": 1, "silence_ns": 2_000_000_000}}


def test_without_a_block_a_program_goes_on_and_says_so_once(built: Built, share: Path, tmp_path: Path) -> None:
    run = built.run(tmp_path, share, "--threads", "4", priority=5, name="low")
    assert (run.status, run.did["launches"], run.did["intact"]) == (0, 400, True)
    assert run.said == f"headway: no broker here (start one: headway share run); low goes on ungated ({share})\n"


def test_without_the_variable_nothing_is_said(built: Built, tmp_path: Path) -> None:
    run = built.run(tmp_path, None, "--verb", "every", "--launch", "2")
    assert (run.status, run.did["errors"], run.did["intact"], run.said) == (0, 0, True, "")


def of_another_version(path: Path) -> Callable[[], None]:
    """A block of a later version."""
    block = SharedBlock.create(path, 132, 0)
    block.header.version = 99
    return block.close


def handed_out(path: Path, content: bytes, *, sealed: bool = True) -> Callable[[], None]:
    """Something that is no block, as a broker hands it out."""
    handle = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.write(handle, content)
    if sealed:
        fcntl.fcntl(handle, fcntl.F_ADD_SEALS, SEALS)
    return BlockListener(path, handle).close


def whole(path: Path) -> bytes:
    """A good block."""
    block = SharedBlock.create(path, 132, monotonic_ns())
    content = bytes(block._memory)
    block.close()
    return content


def of_another_size(path: Path) -> Callable[[], None]:
    """One that is shorter."""
    return handed_out(path, whole(path)[:-4096])


def without_a_mark(path: Path) -> Callable[[], None]:
    """One whose mark is not ours."""
    return handed_out(path, b"\xff" * BLOCK_BYTES)


def empty(path: Path) -> Callable[[], None]:
    """Nothing at all."""
    return handed_out(path, b"")


def not_sealed(path: Path) -> Callable[[], None]:
    """A good one, which somebody could truncate."""
    return handed_out(path, whole(path), sealed=False)


def a_file(path: Path) -> Callable[[], None]:
    """A good one in a file, as earlier versions had it."""
    content = whole(path)
    path.unlink()
    path.write_bytes(content)
    return lambda: None


@pytest.mark.parametrize("make", [of_another_version, of_another_size, without_a_mark, empty, not_sealed, a_file])
def test_a_block_of_another_kind_is_not_joined(
    built: Built, share: Path, tmp_path: Path, make: Callable[[Path], Callable[[], None]]
) -> None:
    close = make(share)
    run = built.run(tmp_path, share, priority=5)
    close()
    assert (run.status, run.did["launches"]) == (0, 100)
    assert run.said.count("\n") == 1
    assert "of another version (restart it with this headway)" in run.said


def test_a_broker_that_does_not_answer_is_not_waited_for(built: Built, share: Path, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(share))
        mute.listen()
        run = built.run(tmp_path, share, "--launch", "500", priority=5)
    assert (run.status, run.did["launches"]) == (0, 500)
    assert run.said == "headway: the broker is gone or hangs; test goes on ungated (no answer)\n"


def test_a_link_to_a_broker_is_not_followed(built: Built, share: Path, tmp_path: Path) -> None:
    with MiniBroker(tmp_path / "real"):
        share.symlink_to(tmp_path / "real")
        run = built.run(tmp_path, share, priority=5)
    assert (run.status, run.did["launches"]) == (0, 100)
    assert "no broker here" in run.said


@pytest.mark.parametrize("how", ["truncate", "unlink", "replace"])
def test_nobody_takes_the_block_from_under_programs_that_run(
    built: Built, share: Path, tmp_path: Path, how: str
) -> None:
    with MiniBroker(share) as broker:
        enough = tmp_path / "enough"
        flags = ("--until", str(enough), "--kernel", "a:5", "--sync-every", "20")
        clients = [built.start(tmp_path, share, *flags, priority=5 * n, name=f"c{n}") for n in range(2)]
        for client in ("c0", "c1"):
            broker.until(lambda slot: slot.ledger.kernels > 100, client)
        if how == "truncate":
            with pytest.raises(PermissionError):
                os.truncate(f"/proc/self/fd/{broker.block.handle}", 0)
            with pytest.raises(OSError, match=r"No such device|Invalid argument"):
                os.truncate(share, 0)
        else:
            share.unlink()
        if how == "replace":
            share.write_bytes(b"")
        late = built.run(tmp_path, share, priority=5, name="late")
        enough.touch()
        runs = [client.end() for client in clients]
        assert all(seen.left for seen in broker.wait(2))
    for run in (*runs, late):
        assert (run.status, run.did["errors"], run.did["intact"]) == (0, 0, True), run.said
    assert [run.said for run in runs] == ["", ""]  # they go on as before
    said = {"truncate": "", "unlink": "no broker here", "replace": "of another version"}[how]
    assert said in late.said
    assert bool(late.said) == (how != "truncate")


def test_a_broker_that_has_been_dead_for_long_is_not_waited_for(built: Built, share: Path, tmp_path: Path) -> None:
    block = SharedBlock.create(share, 132, 1)
    run = built.run(tmp_path, share, priority=5)
    block.close()
    assert (run.status, run.did["launches"]) == (0, 100)
    assert run.said.startswith("headway: the broker is gone or hangs; test goes on ungated")


def test_where_all_slots_are_taken_a_program_goes_on(built: Built, share: Path, tmp_path: Path) -> None:
    with MiniBroker(share) as broker:
        broker.frozen = True
        for slot in broker.block.slots:
            slot.state = LIVE
        run = built.run(tmp_path, share, priority=5)
        assert broker.block.listener is not None
        assert list(broker.block.listener.heard) == [run.pid]  # what status tells
    assert (run.status, run.did["launches"]) == (0, 100)
    assert "no slot is free" in run.said


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_broker_that_is_killed_or_hangs_lets_everybody_go(
    built: Built, share: Path, tmp_path: Path, number: signal.Signals
) -> None:
    with broker_process(share, HELD) as process:
        block = SharedBlock.open(share)
        MiniBroker.neighbour(_Open(block))
        low = built.start(tmp_path, share, priority=5, name="low")
        MiniBroker.until(_Open(block), lambda slot: slot.want.fill_ns > 0, "low")
        process.send_signal(number)
        run = low.end()
        block.close()
        process.kill()
    assert (run.status, run.did["launches"]) == (0, 100)
    assert run.said == "headway: the broker is gone or hangs; low goes on ungated (no sign of life)\n"


def test_who_came_while_the_broker_hung_joins_when_it_is_back(built: Built, share: Path, tmp_path: Path) -> None:
    with broker_process(share) as process:
        block = SharedBlock.open(share)
        process.send_signal(signal.SIGSTOP)
        block.header.beat_ns = monotonic_ns() - 60_000_000_000
        low = built.start(tmp_path, share, "--for-ms", "20000", "--gap-us", "100", priority=5, name="low")
        assert low.process.stderr is not None
        assert "the broker is gone or hangs; low goes on ungated" in low.process.stderr.readline()
        assert not any(slot.state == LIVE for slot in block.slots)
        process.send_signal(signal.SIGCONT)
        MiniBroker.until(_Open(block), lambda slot: slot.ledger.kernels > 100, "low")
        low.process.kill()
        low.process.communicate()
        block.close()
        process.kill()


class _Open(MiniBroker):
    """Another process's block, seen from here."""

    def __init__(self, block: SharedBlock) -> None:
        self.block = block


@pytest.mark.parametrize("spoilt", ["magic", "version", "slot", "stopping"])
def test_a_block_that_is_written_over_lets_everybody_go(built: Built, share: Path, tmp_path: Path, spoilt: str) -> None:
    with MiniBroker(share, HELD) as broker:
        broker.neighbour()
        low = built.start(tmp_path, share, priority=5, name="low")
        broker.until(lambda slot: slot.want.fill_ns > 0, "low")
        broker.frozen = True  # lest it mend what is spoilt here
        if spoilt == "slot":
            broker.block.slots[0].owner = 1
        else:
            setattr(broker.block.header, spoilt, 7)
        run = low.end()
    assert (run.status, run.did["launches"]) == (0, 100)
    damaged = "headway: the shared memory is damaged; low goes on ungated"
    assert run.said.startswith("" if spoilt == "stopping" else damaged)
    assert run.said.count("\n") == (0 if spoilt == "stopping" else 1)


def spoil(block: SharedBlock, where: str, noise: random.Random) -> None:
    """Random bytes over a part of the block."""
    memory = block._memory
    slot = 4096 + noise.randrange(SLOTS) * ((len(memory) - 4096) // SLOTS)
    places = {"anywhere": noise.randrange(len(memory)), "header": 0, "slots": slot, "first": 4096}
    begin = places[where] + noise.randrange(1024)
    content = noise.randbytes(noise.choice([4, 8, 64, 4096]))
    memory[begin : begin + len(content)] = content[: max(0, len(memory) - begin)]


@pytest.mark.parametrize("field", ["launch_ns", "busy_ns", "end_ns", "seen_ns"])
def test_nobody_waits_for_a_neighbour_of_impossible_numbers(
    built: Built, share: Path, tmp_path: Path, field: str
) -> None:
    with MiniBroker(share) as broker:
        slot = broker.block.slots[broker.neighbour(priority=3, busy_s=0)]
        slot.rules.gate, slot.want.fill_ns = 1, 1
        for name in ("launch_ns", "busy_ns"):
            setattr(slot.pulse, name, 1)
        setattr(slot.pulse if hasattr(slot.pulse, field) else slot.want, field, 2**62)
        run = built.run(tmp_path, share, "--launch", "50", priority=5)
    assert (run.status, run.did["launches"], run.did["errors"]) == (0, 50, 0)


@pytest.mark.parametrize("where", ["anywhere", "header", "slots", "first"])
@pytest.mark.parametrize("beats", [False, True])
def test_programs_end_while_random_bytes_rain_on_the_block(
    built: Built, share: Path, tmp_path: Path, where: str, beats: bool
) -> None:
    noise = random.Random(f"{where} {beats}")
    with MiniBroker(share) as broker:
        enough = tmp_path / "enough"
        flags = ("--until", str(enough), "--kernel", "a:5", "--kernel", "b:20", "--sync-every", "20")
        clients = [
            built.start(tmp_path, share, *flags, "--threads", str(1 + n % 2), priority=3 * n, name=f"c{n}")
            for n in range(3)
        ]
        broker.until(lambda slot: slot.ledger.kernels > 100, "c0")
        broker.frozen = True
        end = time.monotonic() + 0.5
        while any(client.process.poll() is None for client in clients):
            if time.monotonic() > end:
                enough.touch()
            for _ in range(50):
                spoil(broker.block, where, noise)
            if beats:
                broker.block.header.beat_ns = monotonic_ns()
        for client in clients:
            run = client.end()
            assert (run.status, run.did["errors"], run.did["intact"]) == (0, 0, True), run.said


@contextmanager
def flipping(built: Built, broker: MiniBroker, seed: int, seconds: float) -> Iterator[None]:
    """Let another process write at random into the block for so long; the broker does nothing but beat."""
    broker.frozen = True
    handle = broker.block.handle
    program = built.folder / "flip"
    with subprocess.Popen(
        [program, str(handle), str(seed)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=(handle,)
    ) as flip:
        assert flip.stdout is not None
        assert flip.stdout.readline() == "ready\n"
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            broker.block.header.beat_ns = monotonic_ns()
            time.sleep(0.002)
        yield
        flip.communicate("")
    assert flip.returncode == 0


def run_while_values_flip(built: Built, share: Path, folder: Path, seed: int) -> list[Run]:
    """Three programs, at the same time, of different priority, whose every value changes under them."""
    with MiniBroker(share) as broker:
        enough = folder / "enough"
        flags = ("--until", str(enough), "--kernel", "a:5", "--kernel", "b:20", "--sync-every", "20")
        clients = [
            built.start(folder, share, *flags, "--threads", str(1 + n % 2), priority=4 * n, name=f"c{n}")
            for n in range(3)
        ]
        for n in range(3):
            broker.until(lambda slot: slot.seeded and slot.ledger.kernels > 0, f"c{n}")
        with flipping(built, broker, seed, seconds=1.0):
            enough.touch()
            return [client.end() for client in clients]


def test_a_divisor_that_another_process_flips_ends_no_program(built: Built, share: Path, tmp_path: Path) -> None:
    with MiniBroker(share) as broker:
        enough = tmp_path / "enough"
        flags = ("--until", str(enough), "--kernel", "a:1", "--sync-every", "50")
        client = built.start(tmp_path, share, *flags, priority=5)
        broker.until(lambda slot: slot.ledger.kernels > 50)
        with flipping(built, broker, 0, seconds=1.4):
            enough.touch()
            run = client.end()
    assert (run.status, run.did["errors"], run.did["intact"]) == (0, 0, True), run.said
    assert run.did["launches"] > 500


@pytest.mark.parametrize("seed", range(1, 4))
def test_programs_end_while_another_process_flips_every_value(
    built: Built, share: Path, tmp_path: Path, seed: int
) -> None:
    for run in run_while_values_flip(built, share, tmp_path, seed):
        assert (run.status, run.did["errors"], run.did["intact"]) == (0, 0, True), run.said

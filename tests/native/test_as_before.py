"""A launch that comes as it came last time is not looked up: and where it is another one after all, it is."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.native.harness import Built
from tests.native.mini_broker import MiniBroker

DRIVER = """
import ctypes, threading
cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0
cuda.stubFunction.restype = ctypes.c_void_p
def kernel(name, micro):
    return ctypes.c_void_p(cuda.stubFunction(name, ctypes.c_int64(micro * 1000), ctypes.c_int64(0), 0))
word = ctypes.c_uint64(1)
at = ctypes.cast(ctypes.byref(word), ctypes.c_void_p)
words = (ctypes.c_void_p * 2)(at, at)
def launch(function, blocks=8):
    return cuda.cuLaunchKernel(function, blocks, 1, 1, 64, 1, 1, 0, None, words, None)
"""


def run(built: Built, broker: MiniBroker, body: str, priority: int = 5) -> str:
    """A program in Python on the stub driver, with the shim in it; what it printed."""
    environment = built.environment(broker.path, priority, "test", STUB_LOG="/dev/null")
    call = [sys.executable, "-c", DRIVER + body]
    ran = subprocess.run(call, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


def test_another_kernel_at_the_same_place_is_another_kernel(built: Built, broker: MiniBroker) -> None:
    body = """
a, b = kernel(b"alpha", 5), kernel(b"beta", 9)
for turn in range(30):
    for each in ((a, b, a), (a, a, b), (b, a))[turn % 3]:
        assert launch(each) == 0
    assert launch(a, 8 + turn % 2) == 0
    assert cuda.cuCtxSynchronize() == 0
"""
    run(built, broker, body)
    counts = Counter({name: row["launches"] for name, row in broker.wait(1)[0].kernels.items()})
    assert {name.split()[0] for name in counts} == {"alpha", "beta"}
    assert sorted(counts.values()) == [15, 30, 65]
    assert sum(counts.values()) == 30 * 4 - 10


def test_more_launches_than_are_remembered(built: Built, broker: MiniBroker) -> None:
    body = """
a, b = kernel(b"alpha", 1), kernel(b"beta", 1)
for turn in range(2):
    for each in range(5000):
        assert launch((a, b)[each % 2]) == 0
    assert cuda.cuCtxSynchronize() == 0
"""
    run(built, broker, body, priority=0)
    assert sorted(row["launches"] for row in broker.wait(1)[0].kernels.values()) == [5000, 5000]


def test_no_function_is_the_drivers_error_and_nothing_worse(built: Built, broker: MiniBroker) -> None:
    body = """
room, other = ctypes.create_string_buffer(2 << 20), ctypes.create_string_buffer(2 << 20)
for turn in range(3):
    to, size = ctypes.c_uint64(ctypes.addressof(other)), ctypes.c_size_t(2 << 20)
    assert cuda.cuMemcpyHtoDAsync_v2(to, room, size, None) == 0
    assert cuda.cuCtxSynchronize() == 0
print(cuda.cuLaunchKernel(None, 0, 0, 0, 0, 0, 0, 0, None, None, None))
"""
    assert run(built, broker, body).strip() == "400"


def test_who_only_waits_has_not_launched(built: Built, broker: MiniBroker) -> None:
    body = """
for _ in range(5):
    waiting = threading.Thread(target=cuda.cuCtxSynchronize)
    waiting.start()
    waiting.join()
assert launch(kernel(b"alpha", 5)) == 0
"""
    run(built, broker, body)
    ledger = broker.wait(1)[0].ledger
    assert (ledger["threads"], ledger["kernels"], ledger["syncs"]) == (1, 1, 5)


def test_who_comes_back_into_its_own_slot_begins_anew(built: Built, broker: MiniBroker, tmp_path: Path) -> None:
    flags = ("--for-ms", "20000", "--gap-us", "100", "--kernel", "a:5", "--kernel", "b:20", "--sync-every", "10")
    low = built.start(tmp_path, broker.path, *flags, priority=5, name="low")
    broker.until(lambda slot: slot.ledger.kernels > 300, "low")
    index = next(i for i, slot in enumerate(broker.block.slots) if slot.name == b"low")
    broker.block.clear(index)
    broker.until(lambda slot: slot.ledger.kernels > 1_000, "low")
    slot = broker.block.slots[index]
    used = [row for row in slot.kernels if row.launches > 64]  # so many may go on before it is noticed
    rows = [(row.id, row.name, row.blocks) for row in used]
    keyless = sum(step.samples for step in slot.steps if not step.key)
    keyed = sum(step.samples for step in slot.steps if step.key)
    low.process.kill()  # the broker clears the slot then
    low.process.communicate()
    assert len(rows) == 2
    assert all(all(row) for row in rows), rows
    assert keyless <= 64
    assert keyed > 500


def kept(built: Built, share: Path, body: str) -> int:
    """How many steps a program has left in its slot."""
    with MiniBroker(share, patience_ns=60_000_000_000) as broker:
        broker.frozen = True  # it clears nothing away
        run(built, broker, body)
        return sum(1 for step in broker.block.slots[0].steps if step.key)


def test_a_thread_that_never_waits_begins_anew_when_the_program_has_waited(built: Built, share: Path) -> None:
    body = """
names = [kernel(b"k%d" % n, 100) for n in range(50)]
def backward():
    for _ in range(100):
        go.acquire()
        for each in names:
            assert launch(each) == 0
        done.release()
go, done = threading.Semaphore(0), threading.Semaphore(0)
threading.Thread(target=backward).start()
for turn in range(100):
    assert launch(names[0]) == 0
    go.release()
    done.acquire()
    assert cuda.cuCtxSynchronize() == 0
"""
    # By place and by pair, fifty of one thread and one of the other (a few more where the machine is late to wait); it
    # would be pairs alone if no launch ever came back to its place, or five thousand places.
    assert 95 < kept(built, share, body) < 600


def test_what_comes_once_at_a_place_takes_no_room_there(built: Built, share: Path) -> None:
    body = """
a, b = kernel(b"alpha", 1), kernel(b"beta", 1)
for each in range(3000):
    assert launch((a, b)[each % 2]) == 0
assert cuda.cuCtxSynchronize() == 0
for turn in range(5):
    for each in (a, b, a, b):
        assert launch(each) == 0
    assert cuda.cuCtxSynchronize() == 0
"""
    assert kept(built, share, body) < 20


def test_requests_that_take_turns_are_known_by_their_places_too(built: Built, share: Path) -> None:
    body = """
names = [kernel(b"k%d" % n, 1) for n in range(40)]
for turn in range(20):
    for each in (names, names[::-1])[turn % 2]:
        assert launch(each) == 0
    assert cuda.cuCtxSynchronize() == 0
"""
    assert kept(built, share, body) > 2 * 40 + 2 * 35  # a place and a pair each, both ways


def test_every_place_of_a_long_request_is_known(built: Built, share: Path) -> None:
    body = """
a, b = kernel(b"alpha", 1), kernel(b"beta", 1)
for turn in range(6):
    for each in range(2000):
        assert launch((a, b)[each % 2]) == 0
    assert cuda.cuCtxSynchronize() == 0
"""
    assert kept(built, share, body) > 1990


def test_what_is_asked_for_by_an_older_version_is_another_function(built: Built, broker: MiniBroker) -> None:
    body = """
def asked(name, version, flags=0):
    found, status = ctypes.c_void_p(), ctypes.c_int()
    at, state = ctypes.byref(found), ctypes.byref(status)
    assert cuda.cuGetProcAddress_v2(name, at, version, ctypes.c_uint64(flags), state) == 0
    return found.value
assert asked(b"cuMemcpyHtoD", 3020) == asked(b"cuMemcpyHtoD", 13000) != asked(b"cuMemcpyHtoD", 3010)
assert asked(b"cuStreamBeginCapture", 10010) != asked(b"cuStreamBeginCapture", 10000)
assert asked(b"cuCtxDestroy", 4000) != asked(b"cuCtxDestroy", 3020)
assert asked(b"cuDevicePrimaryCtxReset", 11000) != asked(b"cuDevicePrimaryCtxReset", 7000)
for name in (b"cuEventSynchronize", b"cuStreamSynchronize", b"cuModuleUnload", b"cuStreamCreate"):
    assert asked(name, 2000) == asked(name, 12000)
assert asked(b"cuStreamSynchronize", 7000, 2) != asked(b"cuStreamSynchronize", 7000)
"""
    run(built, broker, body)

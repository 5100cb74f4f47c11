"""What a program says in its pauses of the request to come: how much delay that one absorbs, if it is sure of it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.native.harness import Built
from tests.native.mini_broker import MiniBroker

PROGRAM = """
import ctypes, json, sys, threading, time
from pathlib import Path
from headway.gpu.share.block.block import SharedBlock

from tests.native.stub_driver import Stub

stub = Stub()
cuda, launch = stub.cuda, stub.launch
short, long = stub.kernel("short", 20_000), stub.kernel("long", 6_000_000)

def idle():  # four gaps of two milliseconds in which the GPU has nothing to do
    for _ in range(5):
        launch(short)
        time.sleep(0.002)
    stub.wait()

def busy():  # a kernel, and the wait for it
    launch(long)
    stub.wait()

idle()
slot = next(slot for slot in SharedBlock.open(Path(sys.argv[1])).slots if slot.name == b"test")
"""
ALTERNATE = """
seen = {"idle": [], "busy": []}
for _ in range(12):
    for name, request in (("busy", busy), ("idle", idle)):
        seen[name].append(slot.pulse.slack_ns)
        request()
print(json.dumps(seen))
"""
TWICE = """
seen = {"idle": [], "busy": []}
for at in range(32):
    name, request = (("idle", idle), ("busy", busy))[at % 4 // 2]
    seen[name].append(slot.pulse.slack_ns)
    request()
print(json.dumps(seen))
"""
TWO_WAITS = """
event = ctypes.c_void_p()
assert cuda.cuEventCreate(ctypes.byref(event), 0) == 0
during, done = [], []

def watch():
    while not done:
        if waits:
            during.append(slot.pulse.slack_ns)
        time.sleep(0.0005)

waits = []
thread = threading.Thread(target=watch)
thread.start()
for _ in range(12):
    for _ in range(5):
        launch(short)
        time.sleep(0.002)
    assert cuda.cuEventRecord(event, None) == 0
    launch(long)
    cuda.cuEventSynchronize(event)
    waits.append(1)
    stub.wait()
    waits.clear()
    time.sleep(0.003)
done.append(1)
thread.join()
print(json.dumps(during))
"""
WAITING = """
seen, done, waits = {"waits": [], "works": []}, [], []

def watch():
    while not done:
        if waits:
            seen[waits[0]].append(slot.pulse.waiting_ns)
        time.sleep(0.0005)

thread = threading.Thread(target=watch)
thread.start()
for turn in range(12):
    waits[:] = ["works"]
    for _ in range(3):
        launch(long)
        time.sleep(0.002)
    waits[:] = ["waits"]
    stub.wait()
    waits.clear()
done.append(1)
thread.join()
print(json.dumps(seen))
"""
TOGETHER = """
barrier = threading.Barrier(3)
left = []

def both():
    for _ in range(300):
        launch(short)
        barrier.wait()
        stub.wait()
        barrier.wait()

threads = [threading.Thread(target=both) for _ in range(2)]
for thread in threads:
    thread.start()
for _ in range(300):
    barrier.wait()
    barrier.wait()
    left.append(slot.pulse.waiting_ns)
for thread in threads:
    thread.join()
print(json.dumps([left, slot.pulse.waiting_ns]))
"""
THREADS = """
def other():
    while not done:
        busy()
done = []
thread = threading.Thread(target=other)
thread.start()
seen = []
for _ in range(12):
    idle()
    seen.append(slot.pulse.slack_ns)
done.append(1)
thread.join()
print(json.dumps(seen))
"""


@pytest.fixture
def program(built: Built, broker: MiniBroker, share: Path):
    def run(text: str) -> object:
        environment = built.environment(share, 0, "test", PYTHONPATH="src:.", STUB_LOG="/dev/null")
        ran = subprocess.run(
            [sys.executable, "-c", PROGRAM + text, share], env=environment, capture_output=True, text=True, timeout=60
        )
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)

    return run


def test_it_is_that_of_the_request_to_come_and_not_of_the_last_one(program) -> None:
    seen = program(ALTERNATE)
    assert max(seen["busy"]) < 1_000_000, "a request that waits for its one kernel absorbs nothing"
    assert min(seen["idle"][6:]) > 4_000_000, "one that idles for eight milliseconds does"


def test_who_does_not_know_what_comes_says_nothing(program) -> None:
    """Each twice: after one that idles either may come, after one that waits it shows by what was before it."""
    assert max(program(TWICE)["busy"]) < 1_000_000


def test_while_another_thread_waits_for_the_gpu_nothing_is_absorbed(program) -> None:
    seen = program(THREADS)
    assert sorted(seen)[len(seen) // 2] < 1_000_000


def test_a_second_wait_in_a_row_is_one_too(program) -> None:
    seen = program(TWO_WAITS)
    assert len(seen) > 12
    # A sample may fall between the test's mark and the wait itself.
    assert sum(each > 1_000_000 for each in seen) < len(seen) // 4


def test_those_below_are_told_that_a_program_waits(program) -> None:
    seen = program(WAITING)
    assert min(map(len, seen.values())) > 12
    # A sample may fall between the test's mark and the wait itself.
    assert sum(each > 0 for each in seen["waits"]) > len(seen["waits"]) * 3 // 4
    assert sum(each == 0 for each in seen["works"]) > len(seen["works"]) * 3 // 4


def test_threads_that_wait_together_leave_nobody_waiting(program) -> None:
    between, after = program(TOGETHER)
    assert after == 0
    assert sum(each != 0 for each in between) < len(between) // 4, "read while the next wait may have begun"

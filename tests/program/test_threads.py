"""Threads of libraries: as many as were asked for, also in a library that is loaded later."""

import subprocess
import sys

import pytest

PROGRAM = """
import numpy, sys
from threadpoolctl import threadpool_info
from headway.program.threads import Threads

def counts(of):
    return [each["num_threads"] for each in threadpool_info() if each["user_api"] == of]

threads = Threads()
assert counts("blas")
for count, asked in ((1, 1), (2, 2), (1, 0)):
    threads.use(asked)
    assert counts("blas") == [count] * len(counts("blas")), counts("blas")
before = len(counts("blas"))
import scipy.linalg
threads.use(1)
assert len(counts("blas")) > before or "openblas" not in str(threadpool_info())
assert set(counts("blas")) == {1}, counts("blas")
print("bounded")
"""
OF_TORCH = """
import torch
from headway.program.threads import Threads
for count in (1, 2, 1):
    Threads().use(count)
    assert torch.get_num_threads() == count
print("bounded")
"""


@pytest.mark.parametrize("program", [PROGRAM, OF_TORCH], ids=["linear-algebra", "torch"])
def test_libraries_compute_with_as_many_threads_as_asked(program):
    """In a process of its own: libraries keep their counts."""
    if program is OF_TORCH:
        pytest.importorskip("torch")
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert ended.stdout == "bounded\n", ended.stderr

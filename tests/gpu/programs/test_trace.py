"""Kernel traces are read back as they were written, what is wrong with one is said in a line, and each is a program."""

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headway.errors import TraceError
from headway.gpu.model.alone import requests
from headway.gpu.model.device import Device
from headway.gpu.model.program import Client, Launch
from headway.gpu.programs import load as kernel_programs, trace as kernel_trace
from headway.gpu.programs.profile import from_profile, mix
from headway.gpu.programs.trace import KernelTrace

META = {"program": "tiny", "gpu": "H200", "driver": "580", "sms": 132, "command": "python x", "version": "0"}


def longs(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def trace() -> KernelTrace:
    """Two requests of two launches each, 20 ns between launches, and long thinking after the first wait."""
    return KernelTrace(
        launch_ns=longs(0, 20, 1_000, 1_020),
        start_ns=longs(6, 26, 1_006, 1_026),
        end_ns=longs(16, 36, 1_016, 1_036),
        kernel=np.array(["a", "b", "a", "b"]),
        blocks=np.array([1, 2, 1, 2], dtype=np.int32),
        per_sm=np.array([1, 1, 1, 1], dtype=np.int32),
        kind=np.array([1, 2, 1, 2], dtype=np.int8),
        wait_ns=longs(0, 40, 0, 1_040),
        metadata=META,
    )


def test_a_trace_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    kernel_trace.write(tmp_path / "t.parquet", trace())
    back = kernel_trace.read(tmp_path / "t.parquet")
    for entry in dataclasses.fields(KernelTrace):
        mine, theirs = getattr(back, entry.name), getattr(trace(), entry.name)
        assert mine == theirs if entry.name == "metadata" else (mine == theirs).all(), entry.name
    assert back.program == "tiny"
    assert len(back) == 4


@pytest.mark.parametrize(
    ("column", "values", "said"),
    [
        ("launch_ns", longs(0, 20, 10, 30), "launch 2 is launched before the one above it"),
        ("start_ns", longs(6, 19, 1_006, 1_026), "launch 1 starts before it is launched"),
        ("end_ns", longs(5, 36, 1_016, 1_036), "launch 0 ends before it starts"),
        ("wait_ns", longs(0, 1, 0, 1_040), "launch 1 has a wait that ended before its launch"),
        ("blocks", np.array([1, -2, 1, 2], dtype=np.int32), "launch 1 has a negative number of blocks"),
        ("blocks", np.array([1, 2, 0, 2], dtype=np.int32), "launch 2 is a kernel of 0 blocks: it needs at least 1"),
        ("kind", np.array([1, 2, 1, 9], dtype=np.int8), "launch 3 is of a kind other than"),
    ],
)
def test_a_broken_trace_is_refused_in_one_line(tmp_path: Path, column: str, values: np.ndarray, said: str) -> None:
    with pytest.raises(TraceError, match=said) as caught:
        kernel_trace.write(tmp_path / "t.parquet", dataclasses.replace(trace(), **{column: values}))
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="there is no such file"):
        kernel_trace.read(tmp_path / "none.parquet")
    (tmp_path / "text.parquet").write_text("hello")
    with pytest.raises(TraceError, match="it is not Parquet"):
        kernel_trace.read(tmp_path / "text.parquet")
    pq.write_table(pa.table({"launch_ns": [1]}), str(tmp_path / "short.parquet"))
    with pytest.raises(TraceError, match="column start_ns is missing"):
        kernel_trace.read(tmp_path / "short.parquet")
    kernel_trace.write(tmp_path / "t.parquet", trace())
    whole = pq.read_table(str(tmp_path / "t.parquet"))
    pq.write_table(whole.replace_schema_metadata({b"headway": b"{"}), str(tmp_path / "meta.parquet"))
    with pytest.raises(TraceError, match="is not JSON"):
        kernel_trace.read(tmp_path / "meta.parquet")
    pq.write_table(whole.slice(0, 0), str(tmp_path / "empty.parquet"))
    with pytest.raises(TraceError, match="it has no launch"):
        kernel_trace.read(tmp_path / "empty.parquet")


def test_a_trace_as_a_program(tmp_path: Path) -> None:
    kernel_trace.write(tmp_path / "t.parquet", trace())
    program = kernel_programs.load(str(tmp_path / "t.parquet"))
    assert [kernel.name for kernel in program.kernels] == ["a", "b"]
    assert program.launches == (
        Launch(0, 20, 10),
        Launch(1, 20, 10, True, 940),
        Launch(0, 20, 10),
        Launch(1, 20, 10, True),
    )
    assert program.request_starts == (0, 2)


def test_every_shipped_program_can_be_played() -> None:
    names = kernel_programs.shipped()
    assert {"resnet50", "vgg16", "vit", "gpt2", "resnet101-b64", "matmul", "graph"} <= set(names)
    for name in names:
        program = kernel_programs.load(name)
        assert program == kernel_programs.load(name)
        client = Client(name, program, requests=len(program.request_starts))
        assert len(list(requests(client, Device()))) == sum(launch.waits for launch in program.launches)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("launch = 3", "unknown key 'launch'; did you mean 'launches'?"),
        ("launches = 'many'", "launches = 'many' is not a int"),
        ("launches = 3\ngpu_us = -1", "gpu_us = -1 is negative"),
        ("launches = 3", "gpu_us = 0.0 must be above 0"),
        ("launches = 3\ngpu_us = nan", "gpu_us = nan is not a finite number"),
        ("launches = 3\ngpu_us = 9\nlaunch_us = inf", "launch_us = inf is not a finite number"),
        ("launches = 3\ngpu_us = 9\nkind = 7", "kind = 7 must be 1 "),
        ("launches = ", "it is not TOML"),
    ],
)
def test_a_wrong_recipe_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "r.toml").write_text(text)
    with pytest.raises(TraceError, match=said.replace("?", r"\?")):
        kernel_programs.load(str(tmp_path / "r.toml"))


def test_an_unknown_program_is_told_from_the_shipped_ones() -> None:
    with pytest.raises(TraceError, match="did you mean 'resnet50'"):
        kernel_programs.load("resnet5")


def test_the_tables_of_a_profile_as_a_program() -> None:
    a, b, c = 0xA1, 0xB2, 0xC3
    rows = [
        {"id": f"{k:016x}", "name": n, "work_ns": 100 * w, "blocks": 4, "per_sm": 1, "kind": 1}
        for k, n, w in ((a, "a", 1), (b, "b", 2), (c, "c", 3))
    ]
    order = [(c, a, 10, 0), (a, b, 20, 0), (b, b, 30, 0), (b, c, 0, 1)]
    steps = [
        {"key": f"{mix(x, y):016x}", "gap_ns": gap, "think_ns": 7, "samples": 50, "waits": waits}
        for x, y, gap, waits in order
    ]
    program = from_profile("mine", rows, steps)
    names = [program.kernels[launch.kernel].name for launch in program.launches]
    assert names[:4] == ["a", "b", "b", "c"]
    assert names == ["a", "b", "b", "c"] * (len(names) // 4)
    assert [launch.waits for launch in program.launches[:4]] == [False, False, False, True]
    assert [launch.gap for launch in program.launches[:4]] == [7, 10, 20, 30]
    assert [launch.duration for launch in program.launches[:4]] == [100, 200, 200, 300]


def test_a_folder_is_no_trace(tmp_path: Path) -> None:
    (tmp_path / "d.parquet").mkdir()
    with pytest.raises(TraceError, match=r"d\.parquet: it is a folder"):
        kernel_trace.read(tmp_path / "d.parquet")

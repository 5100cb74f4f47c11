"""``headway profile kernels``: turn a recording of a program's launches into a kernel trace and a stored profile.

The shim (``native/trace.cpp``) records every launch and every wait; CUPTI, where it can be loaded, records when each
kernel started and ended. Without CUPTI the durations are those that the shim sampled, and the times on the GPU are
computed from them. The first launch of a kernel also loads its code, which takes milliseconds: such launches are left
out.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway import __version__
from headway.errors import ProfileError
from headway.gpu.profiling.cupti import Joined, join
from headway.gpu.profiling.recording import Recorded
from headway.gpu.programs.trace import KernelTrace

LATENCY_NS = 6_000
"""Assumed time from a launch to its start on an idle GPU."""
_FEW = 4
"""Number of samples that a traced step counts as: tracing slows launches, so later samples should outweigh it."""
_MOST_BLOCKS = 2**31 - 1
Ints = NDArray[np.int64]


def times_of(recorded: Recorded) -> Joined:
    """Return when each launch ran on the GPU: as recorded by CUPTI, else computed from sampled durations."""
    if len(recorded.activities):
        return join(recorded)
    work = {int(row["id"]): int(row["work_ns"]) for row in recorded.kernels if int(row["samples"])}
    if not work:
        why = recorded.about.get("why", "") or "CUPTI recorded no kernel"
        raise ProfileError(f"no times of the GPU: {why}, and no kernel was timed by the shim; run the program longer")
    unknown = int(np.median(list(work.values())))
    start = np.empty(len(recorded.launches), np.int64)
    end = np.empty_like(start)
    free = 0
    for place, (kernel, launch) in enumerate(
        zip(recorded.launches["kernel"].tolist(), recorded.launches["launch_ns"].tolist(), strict=True)
    ):
        start[place] = max(launch + LATENCY_NS, free)
        free = end[place] = start[place] + work.get(kernel, unknown)
    return Joined(start, end, 0, 0)


def trace_of(
    recorded: Recorded,
    command: Sequence[str] = (),
    *,
    program: str = "",
    gpu: str = "",
    driver: str = "",
    whole: bool = False,
    times: Joined | None = None,
) -> KernelTrace:
    """Return the trace of a recorded process after its kernels are loaded (``whole``: all of it); it begins at 0.

    Launches that had not ended are left out. ``began_ns`` in the metadata is the machine's monotonic clock at 0: by it,
    traces of one run can be aligned.
    """
    times = times or times_of(recorded)
    launches = recorded.launches
    kept = times.start_ns >= 0
    if not whole:
        kept &= steady(launches["kernel"])
    if not kept.any():
        raise ProfileError("the trace is empty: every kernel was launched once; run the program longer")
    launch = launches["launch_ns"][kept]
    zero = int(launch[0])
    start = np.maximum(times.start_ns[kept], launch)  # the clocks agree to a microsecond or so
    ended = waits_after(launches["launch_ns"], recorded)[kept]
    names, blocks, per_sm = _described(recorded, launches["kernel"][kept])
    metadata = {
        "program": program or recorded.about.get("program", ""),
        "gpu": gpu or recorded.about.get("gpu", ""),
        "driver": driver,
        "sms": recorded.number("sms"),
        "command": list(command),
        "version": __version__,
        "began_ns": zero,
        "times": "cupti" if len(recorded.activities) else "sampled",
    }
    return KernelTrace(
        launch_ns=launch - zero,
        start_ns=start - zero,
        end_ns=np.maximum(times.end_ns[kept], start) - zero,
        kernel=names,
        blocks=np.maximum(blocks, launches["kind"][kept] == 1, dtype=np.int32),  # one that was not identified has some
        per_sm=per_sm,
        kind=launches["kind"][kept].astype(np.int8),
        wait_ns=np.where(ended > 0, np.maximum(ended - zero, 1), 0),
        metadata=metadata,
    )


def _described(
    recorded: Recorded, kernels: NDArray[np.uint64]
) -> tuple[NDArray[np.str_], NDArray[np.int32], NDArray[np.int32]]:
    """Return name, blocks and blocks an SM of each launch; one that the shim could not identify is "unnamed"."""
    rows = {int(row["id"]): row for row in recorded.kernels}
    numbers, place = np.unique(kernels, return_inverse=True)
    described = [rows.get(number) for number in numbers.tolist()]
    names = np.array(["unnamed" if row is None else name_of(row) for row in described], np.str_)
    blocks = np.array([0 if row is None else min(int(row["blocks"]), _MOST_BLOCKS) for row in described], np.int32)
    per_sm = np.array([1 if row is None else int(row["per_sm"]) for row in described], np.int32)
    return names[place], blocks[place], per_sm[place]


def name_of(row: Any) -> str:
    """Return what a kernel is called; one without a name by its number."""
    name: str = row["name"].decode(errors="replace")
    return name or f"{int(row['id']):016x}"


def steady(kernels: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return a mask of the launches after loading.

    A program loads its kernels at its beginning: everything up to the last first launch of a kernel in its first half
    is left out. A kernel that comes later loses only its first launch.
    """
    _, first = np.unique(kernels, return_index=True)
    kept = np.ones(len(kernels), bool)
    kept[first] = False
    early = first[first < len(kernels) // 2]
    if len(early):
        kept[: int(early.max()) + 1] = False
    return kept


def waits_after(launch_ns: Ints, recorded: Recorded) -> Ints:
    """Return when the wait that followed each launch ended; 0 where none followed before the next launch."""
    ended = np.zeros(len(launch_ns), np.int64)
    place = np.searchsorted(launch_ns, recorded.waits["begin_ns"], side="right") - 1
    known = place >= 0
    np.maximum.at(ended, place[known], recorded.waits["end_ns"][known])
    return ended


def kernel_rows(recorded: Recorded, times: Joined | None = None) -> list[dict[str, Any]]:
    """Return the rows of the store: the run times of each kernel, without its first launch."""
    if not len(recorded.activities):
        rows = [_row(row, int(row["work_ns"]), int(row["samples"]), int(row["longest_ns"])) for row in recorded.kernels]
        return [row for row in rows if row["samples"]]
    times = times or join(recorded)
    numbers = recorded.launches["kernel"]
    kept = times.start_ns >= 0
    kept[np.unique(numbers, return_index=True)[1]] = False
    took = times.end_ns - times.start_ns
    measured = []
    for row in recorded.kernels:
        durations = took[kept & (numbers == row["id"])]
        if len(durations):
            measured.append(_row(row, max(1, int(durations.mean())), len(durations), int(durations.max())))
    return measured


def _row(row: Any, work_ns: int, samples: int, longest_ns: int) -> dict[str, Any]:
    return {
        "id": f"{int(row['id']):016x}",
        "name": name_of(row),
        "work_ns": work_ns,
        "samples": samples,
        "longest_ns": longest_ns,
        "blocks": int(row["blocks"]),
        "per_sm": int(row["per_sm"]),
        "kind": int(row["kind"]),
    }


def step_rows(recorded: Recorded) -> list[dict[str, Any]]:
    """Return the steps that the shim learnt."""
    return [
        {
            "key": f"{int(row['key']):016x}",
            "gap_ns": int(row["gap_ns"]),
            "think_ns": int(row["think_ns"]),
            "slack_ns": int(row["slack_ns"]),
            "samples": min(int(row["samples"]), _FEW),
            "waits": int(row["waits"]),
        }
        for row in recorded.steps
    ]

"""Each program alone, traced: does the shim see what CUPTI counts, and what does it look like to a simulation?

python -m bench.gpu_share_solo MARKS.json        (started by ``solo`` below, with the shim in it)
"""

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

REQUESTS = 14


def main() -> None:
    """Every program in turn, requests one after another, and when each program began and ended."""
    import torch

    from bench.gpu_share_programs import HIGH, LOW

    os.sched_setaffinity(0, {2, 3})
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    marks = []
    for name, maker in (*HIGH.items(), *LOW.items()):
        request = maker()
        for _ in range(4):
            request()
        torch.cuda.synchronize()
        time.sleep(0.03)
        begin = time.monotonic_ns()
        for _ in range(REQUESTS):
            request()
            torch.cuda.synchronize()
        marks.append((name, begin, time.monotonic_ns(), name in HIGH))
        time.sleep(0.03)
    Path(sys.argv[1]).write_text(json.dumps(marks))


def solo(state: Path, library: Path, gpu: str, driver: str) -> list[dict[str, Any]]:
    """Trace all programs; a kernel trace a program into ``state``, and a row a program: seen, counted, busy."""
    from headway.gpu.profiling.cupti import COPY, CUPTI_KERNEL, join
    from headway.gpu.profiling.kernels import trace_of
    from headway.gpu.profiling.run import run
    from headway.gpu.programs import trace as kernel_trace

    file = state / "marks.json"
    command = [sys.executable, "-m", "bench.gpu_share_solo", str(file)]
    recorded = run(command, library=library, program="solo", environment={"PYTHONPATH": f"src:{Path.cwd()}"})
    print({**recorded.about}, len(recorded.launches), len(recorded.activities), flush=True)
    times = join(recorded)
    launch = recorded.launches["launch_ns"]
    kernels = recorded.activities[recorded.activities["kind"] == CUPTI_KERNEL]
    whole = trace_of(recorded, whole=True, times=times, gpu=gpu, driver=driver)
    zero = int(whole.metadata["began_ns"])
    rows = []
    for name, begin, end, high in json.loads(file.read_text()):
        mine = (launch >= begin) & (launch < end) & (recorded.launches["kind"] != COPY)
        inside = kernels[(kernels["start_ns"] >= begin) & (kernels["start_ns"] < end)]
        counted = len(np.unique(inside["correlation"]))
        kept = (whole.launch_ns >= begin - zero) & (whole.launch_ns < end - zero)
        busy = int((whole.end_ns[kept] - whole.start_ns[kept]).sum())
        rows.append(
            {
                "program": name,
                "high": high,
                "seen": int(mine.sum()),
                "counted": counted,
                "kernels": len(inside),
                "busy_share": busy / (end - begin),
                "request_ms": (end - begin) / REQUESTS / 1e6,
                "ns_a_launch": recorded.number("hook_ns") / max(1, recorded.number("hooked")),
            }
        )
        if kept.any():
            shift = int(whole.launch_ns[kept][0])
            wait = whole.wait_ns[kept]
            trace = replace(
                whole,
                launch_ns=whole.launch_ns[kept] - shift,
                start_ns=whole.start_ns[kept] - shift,
                end_ns=whole.end_ns[kept] - shift,
                kernel=whole.kernel[kept],
                blocks=whole.blocks[kept],
                per_sm=whole.per_sm[kept],
                kind=whole.kind[kept],
                wait_ns=np.where(wait > 0, wait - shift, 0),
                metadata={**whole.metadata, "program": name, "command": [name]},
            )
            (state / "traces").mkdir(exist_ok=True)
            kernel_trace.write(state / "traces" / f"{name}.parquet", trace)
        print(rows[-1], flush=True)
    return rows


if __name__ == "__main__":
    main()

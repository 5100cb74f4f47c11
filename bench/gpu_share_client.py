"""One process of a pair: holds its programs ready, does requests of one of them, writes when each began and ended.

    python -m bench.gpu_share_client FOLDER NAME CORE PROGRAM[,PROGRAM…]

FOLDER/NAME.control is eight int64: program, think_ns, state (0 pause, 1 run, 2 quit), requests done, ready, spare…;
FOLDER/NAME.log pairs of int64 (begin, end) on the monotonic clock, a ring.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

RING = 1 << 18
PROGRAM, THINK, STATE, DONE, READY, STREAM = range(6)


def main() -> None:
    """Make the programs, warm them up, then do what the control says."""
    folder, name, core, wanted = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4].split(",")
    os.sched_setaffinity(0, {core, core + 1})
    import torch

    from bench.gpu_share_programs import HIGH, LOW

    torch.set_num_threads(1)
    torch.backends.cudnn.benchmark = False
    low = not name.startswith("high")
    makers = LOW if low else HIGH
    control = np.memmap(folder / f"{name}.control", dtype=np.int64, mode="r+", shape=(8,))
    log = np.memmap(folder / f"{name}.log", dtype=np.int64, mode="r+", shape=(RING, 2))
    torch.set_grad_enabled(False)
    requests = []
    digests = {}
    for program in wanted:
        request = makers[program]()
        for _ in range(3 if program != "compiled" else 4):
            result = request()
        torch.cuda.synchronize()
        digests[program] = _digest(result) if program != "training" else ""
        requests.append(request)
    (folder / f"{name}.digests.json").write_text(json.dumps(digests))
    control[READY] = 1
    _serve(control, log, requests, low, folder / f"{name}.after.json", wanted)


def _digest(result: Any) -> str:
    import hashlib

    import torch

    torch.cuda.synchronize()
    return hashlib.sha256(result.float().cpu().numpy().tobytes()).hexdigest()[:16]


def _serve(control: Any, log: Any, requests: list[Any], low: bool, after: Path, wanted: list[str]) -> None:
    import torch

    from bench.gpu_share_programs import marked

    last: dict[str, str] = {}
    while control[STATE] != 2:
        if control[STATE] == 0:
            time.sleep(0.001)
            continue
        request, program = requests[int(control[PROGRAM])], wanted[int(control[PROGRAM])]
        if low:
            result = _stream_of(control, log, request)
        else:
            result = _requests(control, log, request)
        torch.cuda.synchronize()
        if program != "training":
            last[program] = _digest(result)
        elif found := marked():
            last[program] = found
        after.write_text(json.dumps(last))
        control[READY] += 1


def _requests(control: Any, log: Any, request: Any) -> Any:
    """Latency-critical: one at a time, waited for, then a pause."""
    import torch

    program, done = int(control[PROGRAM]), int(control[DONE])
    result, first = None, torch.cuda.Stream(priority=-5)
    while control[STATE] == 1 and control[PROGRAM] == program:
        begin = time.monotonic_ns()
        if control[STREAM]:
            with torch.cuda.stream(first):
                result = request()
        else:
            result = request()
        torch.cuda.synchronize()
        log[done % RING] = (begin, time.monotonic_ns())
        done += 1
        control[DONE] = done
        think = int(control[THINK])
        if think:
            time.sleep(think / 1e9)
    return result


def _stream_of(control: Any, log: Any, request: Any) -> Any:
    """Batch work: the next one is launched while the one before still runs, as a loop over a data set does."""
    import torch

    program, done = int(control[PROGRAM]), int(control[DONE])
    before, result = None, None
    begin = time.monotonic_ns()
    while control[STATE] == 1 and control[PROGRAM] == program:
        result = request()
        event = torch.cuda.Event()
        event.record()
        if before is not None:
            before.synchronize()
            now = time.monotonic_ns()
            log[done % RING] = (begin, now)
            begin = now
            done += 1
            control[DONE] = done
        before = event
    return result


if __name__ == "__main__":
    main()

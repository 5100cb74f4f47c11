"""Export a run of kernels: tables for notebooks, and a timeline for Perfetto."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import polars as pl

from headway.core.tape import Tape
from headway.gpu.model.program import Client
from headway.gpu.programs.trace import KernelTrace
from headway.gpu.show import perfetto as kernel_perfetto
from headway.gpu.show.history import NEVER, ProgramHistory, program_histories
from headway.gpu.show.perfetto import Gated, reason_name
from headway.units import SECOND


def tables(clients: Sequence[Client], tape: Tape) -> Mapping[str, Callable[[], pl.DataFrame]]:
    """Return each table by name; times are seconds since the run began."""
    programs = program_histories(clients, tape)
    return {
        "requests": lambda: pl.concat([_requests(program) for program in programs]),
        "kernels": lambda: pl.concat([_kernels(program) for program in programs]),
        "delays": lambda: pl.concat([_delays(program, clients) for program in programs]),
    }


def _requests(history: ProgramHistory) -> pl.DataFrame:
    count = len(history.request_ended)
    return pl.DataFrame(
        {
            "client": pl.Series([history.client.name] * count, dtype=pl.String),
            "request": pl.Series(range(count), dtype=pl.Int64),
            "began_s": history.request_began / SECOND,
            "ended_s": history.request_ended / SECOND,
            "latency_s": history.latency / SECOND,
        }
    )


def _kernels(history: ProgramHistory) -> pl.DataFrame:
    program, count = history.client.program, len(history.launched)
    launches = [history.client.launch(number) for number in range(count)]
    started, ended = (
        pl.Series(np.where(times == NEVER, np.nan, times / SECOND), nan_to_null=True)
        for times in (history.started, history.ended)
    )
    return pl.DataFrame(
        {
            "client": pl.Series([history.client.name] * count, dtype=pl.String),
            "launch": pl.Series(range(count), dtype=pl.Int64),
            "kernel": pl.Series([program.kernels[kernel].name for kernel in history.kernel.tolist()], dtype=pl.String),
            "launched_s": history.launched / SECOND,
            "started_s": started,
            "ended_s": ended,
            "alone_s": pl.Series([launch.duration / SECOND for launch in launches], dtype=pl.Float64),
            "gated_s": history.gated / SECOND,
            "reason": pl.Series([reason_name(number) for number in history.reason.tolist()], dtype=pl.String),
        }
    )


def _delays(history: ProgramHistory, clients: Sequence[Client]) -> pl.DataFrame:
    held = history.held.tolist()
    return pl.DataFrame(
        {
            "client": pl.Series([history.client.name] * len(held), dtype=pl.String),
            "launch": pl.Series([launch for launch, _, _, _ in held], dtype=pl.Int64),
            "by": pl.Series([clients[by].name for _, by, _, _ in held], dtype=pl.String),
            "kernel": pl.Series(
                [clients[by].program.kernels[kernel].name for _, by, kernel, _ in held], dtype=pl.String
            ),
            "delay_s": pl.Series([delay / SECOND for _, _, _, delay in held], dtype=pl.Float64),
        }
    )


def trace_events(clients: Sequence[Client], tape: Tape, title: str = "") -> Iterator[str]:
    """Yield the file for Perfetto, piece by piece."""
    return kernel_perfetto.trace_events([_drawn(history) for history in program_histories(clients, tape)], title)


def _drawn(history: ProgramHistory) -> kernel_perfetto.Client:
    """Return the launches that ended as a recorded trace."""
    count = int(np.count_nonzero(history.ended != NEVER))
    kernels = history.client.program.kernels
    used = [kernels[number] for number in history.kernel[:count].tolist()]
    wait = np.zeros(count, dtype=np.int64)
    waits = [number for number in range(count) if history.client.launch(number).waits][: len(history.request_ended)]
    wait[waits] = history.request_ended[: len(waits)]
    trace = KernelTrace(
        history.launched[:count],
        history.started[:count],
        history.ended[:count],
        np.array([kernel.name for kernel in used]),
        np.array([kernel.blocks for kernel in used], dtype=np.int32),
        np.array([kernel.per_sm for kernel in used], dtype=np.int32),
        np.array([kernel.kind for kernel in used], dtype=np.int8),
        wait,
    )
    held = zip(history.reached.tolist(), history.launched.tolist(), history.reason.tolist(), strict=True)
    return kernel_perfetto.Client(history.client.name, trace, 0, [Gated(*span) for span in held if span[1] > span[0]])

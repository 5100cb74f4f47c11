"""Export a run of kernels: tables for notebooks, and a timeline for Perfetto."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import polars as pl

from headway.core.tape import Tape
from headway.formats.kernels.trace import KernelTrace
from headway.kernels.program import Client
from headway.report.kernels import perfetto as kernel_perfetto
from headway.report.kernels.passages import NEVER, Passage, passages
from headway.report.kernels.perfetto import Gated, reason_name
from headway.units import SECOND


def tables(clients: Sequence[Client], tape: Tape) -> Mapping[str, Callable[[], pl.DataFrame]]:
    """Return each table by name; times are seconds since the run began."""
    found = passages(clients, tape)
    return {
        "requests": lambda: pl.concat([_requests(each) for each in found]),
        "kernels": lambda: pl.concat([_kernels(each) for each in found]),
        "delays": lambda: pl.concat([_delays(each, clients) for each in found]),
    }


def _requests(each: Passage) -> pl.DataFrame:
    count = len(each.request_ended)
    return pl.DataFrame(
        {
            "client": pl.Series([each.client.name] * count, dtype=pl.String),
            "request": pl.Series(range(count), dtype=pl.Int64),
            "began_s": each.request_began / SECOND,
            "ended_s": each.request_ended / SECOND,
            "latency_s": each.latency / SECOND,
        }
    )


def _kernels(each: Passage) -> pl.DataFrame:
    program, count = each.client.program, len(each.launched)
    launches = [each.client.launch(number) for number in range(count)]
    started, ended = (
        pl.Series(np.where(times == NEVER, np.nan, times / SECOND), nan_to_null=True)
        for times in (each.started, each.ended)
    )
    return pl.DataFrame(
        {
            "client": pl.Series([each.client.name] * count, dtype=pl.String),
            "launch": pl.Series(range(count), dtype=pl.Int64),
            "kernel": pl.Series([program.kernels[kernel].name for kernel in each.kernel.tolist()], dtype=pl.String),
            "launched_s": each.launched / SECOND,
            "started_s": started,
            "ended_s": ended,
            "alone_s": pl.Series([launch.duration / SECOND for launch in launches], dtype=pl.Float64),
            "gated_s": each.gated / SECOND,
            "reason": pl.Series([reason_name(number) for number in each.reason.tolist()], dtype=pl.String),
        }
    )


def _delays(each: Passage, clients: Sequence[Client]) -> pl.DataFrame:
    held = each.held.tolist()
    return pl.DataFrame(
        {
            "client": pl.Series([each.client.name] * len(held), dtype=pl.String),
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
    return kernel_perfetto.trace_events([_drawn(each) for each in passages(clients, tape)], title)


def _drawn(each: Passage) -> kernel_perfetto.Client:
    """Return the launches that ended as a recorded trace."""
    count = int(np.count_nonzero(each.ended != NEVER))
    kernels = each.client.program.kernels
    used = [kernels[number] for number in each.kernel[:count].tolist()]
    wait = np.zeros(count, dtype=np.int64)
    waits = [number for number in range(count) if each.client.launch(number).waits][: len(each.request_ended)]
    wait[waits] = each.request_ended[: len(waits)]
    trace = KernelTrace(
        each.launched[:count],
        each.started[:count],
        each.ended[:count],
        np.array([kernel.name for kernel in used]),
        np.array([kernel.blocks for kernel in used], dtype=np.int32),
        np.array([kernel.per_sm for kernel in used], dtype=np.int32),
        np.array([kernel.kind for kernel in used], dtype=np.int8),
        wait,
    )
    held = zip(each.reached.tolist(), each.launched.tolist(), each.reason.tolist(), strict=True)
    return kernel_perfetto.Client(each.client.name, trace, 0, [Gated(*span) for span in held if span[1] > span[0]])

"""Define requests to served models as a trace holds them: arrival time, tokens in and out."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headway.jobs.traces.trace import Dropped

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class RequestTrace:
    """Requests in order of arrival, a column a property. The first arrives at 0, the moment the run begins."""

    arrival: IntArray
    """Nanoseconds since the first."""
    input_tokens: IntArray
    output_tokens: IntArray
    hash_ids: tuple[tuple[int, ...], ...]
    """The blocks of each prompt by content: equal prefixes have equal ids. Empty where the trace has none."""
    format: str
    rows: int
    """Rows of data in the file, dropped ones included, blank lines not."""
    dropped: tuple[Dropped, ...] = ()
    notes: tuple[str, ...] = ()
    graphs: tuple[str, ...] = ()
    """The model or graph that each request is for; empty, like the next two, where the trace has none."""
    tenants: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return int(self.arrival.size)


def in_order(
    columns: tuple[IntArray, IntArray, IntArray],
    hash_ids: tuple[tuple[int, ...], ...],
    format: str,
    dropped: tuple[Dropped, ...],
    notes: Iterable[str],
    **names: tuple[str, ...],
) -> RequestTrace:
    """Build a trace from arrival times and tokens as a file has them: sorted where it is not, the first at 0.

    ``names``: graphs, tenants and classes, where the file has them.
    """
    arrival, input_tokens, output_tokens = columns
    told = list(notes)
    if (np.diff(arrival) < 0).any():
        told.append("the file is not sorted by arrival: sorted")
        order = np.argsort(arrival, kind="stable")
        arrival, input_tokens, output_tokens = arrival[order], input_tokens[order], output_tokens[order]
        hash_ids = tuple(hash_ids[position] for position in order) if hash_ids else ()
        names = {key: tuple(values[position] for position in order) for key, values in names.items() if values}
    rows = int(arrival.size) + len(dropped)
    return RequestTrace(
        arrival - arrival[0],
        input_tokens,
        output_tokens,
        hash_ids,
        format,
        rows,
        dropped,
        tuple(told),
        *(names.get(key, ()) for key in ("graphs", "tenants", "classes")),
    )

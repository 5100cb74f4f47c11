"""Split a kernel tape by program: its launches, its requests, and what delayed them. numpy only."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from headway.core.tape import Tape
from headway.gpu.model.program import Client
from headway.gpu.model.rows import Kind

Longs = npt.NDArray[np.int64]
NEVER = -1
_LEASE, _PLACE, _DETAIL, _VALUE = 3, 4, 5, 6


@dataclass(frozen=True)
class ProgramHistory:
    """One program on the tape: an entry a launch, and an entry a request."""

    client: Client
    launched: Longs
    """When each launch went to the GPU."""
    kernel: Longs
    reached: Longs
    """When its thread came to the gate; the time of the launch where there was none."""
    reason: Longs
    """Why it was let go, as ``Reason`` numbers it."""
    started: Longs
    """When it ran; NEVER where the tape ends before."""
    ended: Longs
    request_began: Longs
    request_ended: Longs
    held: Longs
    """Rows: launch, the other client, its kernel, the delay."""

    @cached_property
    def latency(self) -> Longs:
        """Return how long each request took."""
        return self.request_ended - self.request_began

    @cached_property
    def gated(self) -> Longs:
        """Return how long each launch waited at the gate."""
        return self.launched - self.reached

    def within(self, request: int) -> tuple[int, int]:
        """Return the first launch of a request, and the one after its last."""
        began, ended = int(self.request_began[request]), int(self.request_ended[request])
        return int(np.searchsorted(self.reached, began)), int(np.searchsorted(self.launched, ended))


def program_histories(clients: Sequence[Client], tape: Tape) -> list[ProgramHistory]:
    """Return each program's launches and requests."""
    return [_history_of(client, tape.rows[tape.column("subject") == index]) for index, client in enumerate(clients)]


def _history_of(client: Client, rows: Longs) -> ProgramHistory:
    kind = rows[:, 1]
    went = rows[(kind == Kind.LAUNCHED) | (kind == Kind.LET_GO)]
    finished, ends, held = (rows[kind == event] for event in (Kind.FINISHED, Kind.REQUEST_ENDED, Kind.HELD_UP))
    reached = went[:, 0].copy()
    asked = rows[kind == Kind.REACHED]
    known = asked[asked[:, _LEASE] < len(went)]
    reached[known[:, _LEASE]] = known[:, 0]
    started, ended = np.full(len(went), NEVER), np.full(len(went), NEVER)
    started[finished[:, _LEASE]], ended[finished[:, _LEASE]] = finished[:, _VALUE], finished[:, 0]
    reason = np.where(went[:, 1] == Kind.LET_GO, went[:, _DETAIL], 0)
    return ProgramHistory(
        client,
        went[:, 0],
        went[:, _PLACE],
        reached,
        reason,
        started,
        ended,
        ends[:, _VALUE],
        ends[:, 0],
        held[:, [_LEASE, _DETAIL, _PLACE, _VALUE]],
    )

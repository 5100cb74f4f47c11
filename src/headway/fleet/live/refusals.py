"""Say why a server does not take a request, and when to come again."""

from headway.errors import RequestRefusedError, ServeError
from headway.fleet.live.workers import payload
from headway.fleet.state.state import ServingState
from headway.units import SECOND


def retry_after_s(state: ServingState) -> float:
    """Return how long the shortest queue takes, at least a second."""
    queues = [worker.queued + worker.reserved for worker in state.workers if worker.up]
    return max(1.0, min(queues, default=0) / SECOND)


def unpacked(problem: Exception, retry_s: float) -> Exception:
    """Return why an input cannot be handed to workers: memory is full, or it is a value that does not travel."""
    if isinstance(problem, OSError):
        return RequestRefusedError(f"no room in {payload.FOLDER}: {problem.strerror}", retry_s)
    return ServeError(f"the input does not travel: {type(problem).__name__}: {problem}")

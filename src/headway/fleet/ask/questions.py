"""Answer questions about a stored run of a fleet: why a request was late, and what made late requests late."""

from headway.errors import ExperimentError, TapeError
from headway.fleet.ask.breakdown import Breakdown
from headway.fleet.ask.explanation import LateExplanation, RequestExplanation
from headway.fleet.experiment.scene import FleetScene
from headway.fleet.scenarios.tables.settings import warmup_share
from headway.fleet.show.story import drop_reason
from headway.runs.domain import StoredRun


def request_number(stored: StoredRun, subject: str) -> int:
    """Return the number of a request of a run."""
    count = len(stored.scene.requests)
    if not subject.isdecimal() or len(subject) > len(str(count)) or int(subject) >= count:
        raise TapeError(f"request {subject!r} is not in this run: its {count:,} requests go from 0 to {count - 1}")
    return int(subject)


def explain(stored: StoredRun, subject: str, at: str | None, draws: int | None) -> RequestExplanation | LateExplanation:
    """Say why a request was late or dropped; without one, what made late requests late."""
    for flag, given in (("--at", at), ("--draws", draws)):
        if given is not None:
            raise ExperimentError(f"{flag} is about jobs that wait; a request of a fleet is explained as a whole")
    scene: FleetScene = stored.scene
    number = request_number(stored, subject) if subject else -1
    breakdown = Breakdown(scene.built.catalogue, scene.built.fleet, scene.requests, stored.tape, scene.latency())
    if number < 0:
        return _late(scene, breakdown)
    if number not in breakdown.history.arrived:
        raise TapeError(f"request {number} had not arrived when the run ended; headway story says when it was due")
    dropped = number in breakdown.history.dropped
    built = scene.built
    reason = drop_reason(built.catalogue, built.fleet, scene.requests, stored.tape, number) if dropped else ""
    return RequestExplanation(breakdown, breakdown.of(number), reason)


def _late(scene: FleetScene, breakdown: Breakdown) -> LateExplanation:
    """Explain all late requests that are measured, or all that are measured where none has a deadline."""
    skip = int(warmup_share(scene.experiment) * len(scene.requests) + 1e-9)
    arrived = [request for request in scene.requests if request.id in breakdown.history.arrived]
    bound = any(request.deadline for request in arrived)
    measured = [request.id for request in arrived if request.id >= skip]
    chosen = [breakdown.of(number) for number in measured if not bound or breakdown.is_late(number)]
    dropped = sum(each.outcome == "dropped" for each in chosen)
    early = sum(breakdown.is_late(request.id) for request in arrived if request.id < skip) if bound else 0
    return LateExplanation(len(measured), chosen, dropped, bound, early)

"""Estimates of job speeds: the grants worth considering for each job, and its estimated speed with each.

Estimates come from profiles until a job is observed to differ. From then on observed speeds are used for all jobs of
its model, and bound the estimates for grants that were not observed. All grants keep a job at least as fast as its
proportional share would.
"""

from functools import cache

from headway.jobs.model.job import Job
from headway.jobs.model.proportional_share import scaled
from headway.jobs.model.resources import Grant
from headway.jobs.model.sensitivity import Matrix, grant_per_gpu
from headway.jobs.policies.allocations.headway.candidates import CandidateGrants, grant_of_share, undominated
from headway.jobs.policies.allocations.headway.knapsack import Choices, NodeKnapsack
from headway.jobs.policies.allocations.shared.demands import Demands, exceeds, fallback_grant
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.state import TrainingState
from headway.units import REFERENCE_SPEED_PPM, WHOLE_GPU_MILLI

_MOST_CHOICES = 32
_TOLERANCE = 100
"""An observed speed agrees with an estimate if it differs by at most 1/_TOLERANCE of it."""


@cache
def _probe(model: str) -> Job:
    """Return a job of one GPU that trains a model."""
    return Job(0, 0, 1, 1, model=model)


class Estimates:
    """Estimated speeds and possible grants of jobs on one cluster."""

    def __init__(self, state: TrainingState) -> None:
        self.demands = Demands(state)
        self.effective = self.demands.shares.effective
        self._matrix = Matrix(state.speed.profiles)
        kind = type(state.speed.sensitivity)
        self._model = kind(state.speed.profiles) if issubclass(kind, Matrix) else self._matrix
        """The cluster's kind of sensitivity model on the profiles; the true speeds behind it are not read."""
        self._choices: dict[tuple[object, ...], Choices] = {}
        self._observed: dict[tuple[str, int], dict[Grant, int]] = {}
        """Observed speed by grant, for each (model, pace of the GPUs) that differed from its profile."""
        self._observed_grants: set[tuple[str, Grant]] = set()

    def choices(self, js: JobState, proportional: Grant, pace: int, knapsack: NodeKnapsack) -> Choices:
        """Return the grants per GPU that a job may choose from; ``proportional`` is its proportional share per GPU."""
        job = js.job
        profile = self.demands.profile(job)
        key: tuple[object, ...] = (job.model, js.width, proportional, pace, knapsack)
        if profile is None:
            key = (job.cpu_milli, job.memory_bytes, js.width, proportional)
        found = self._choices.get(key)
        if found is None:
            found = (
                self._unknown(job, proportional)
                if profile is None
                else self._known(job.model, js.width, proportional, pace, knapsack)
            )
            self._choices[key] = found
        return found

    def speed(self, js: JobState, grant: Grant, pace: int) -> int:
        """Return the estimated speed of a job with a grant."""
        if self.demands.profile(js.job) is None:
            return REFERENCE_SPEED_PPM
        return self._estimated(js.job.model, grant_per_gpu(grant, js.width), pace)

    def guaranteed_speed(self, js: JobState, proportional: Grant, pace: int) -> int:
        """Return the estimated speed of a job with its proportional share, which is given per GPU."""
        return (
            REFERENCE_SPEED_PPM
            if self.demands.profile(js.job) is None
            else self._estimated(js.job.model, proportional, pace)
        )

    # --- observations -----------------------------------------------------------------------------------------

    def observe(self, js: JobState, pace: int) -> bool:
        """Record the speed of a job with its grant; return whether that changes the estimates."""
        model, grant = js.job.model, grant_per_gpu(js.grant, js.width)
        self._observed_grants.add((model, grant))
        if (model, pace) not in self._observed:
            believed = self._estimated(model, grant, pace)
            if abs(js.speed - believed) * _TOLERANCE <= believed:
                return False
            self._observed[(model, pace)] = {}
        seen = self._observed[(model, pace)]
        if grant in seen and abs(js.speed - seen[grant]) * _TOLERANCE <= seen[grant]:
            return False
        seen[grant] = js.speed
        self._choices = {key: choices for key, choices in self._choices.items() if key[0] != model}
        return True

    def is_observed(self, js: JobState) -> bool:
        """Return whether a job of the same model was observed with the same grant; True where there is no profile."""
        if self.demands.profile(js.job) is None:
            return True
        return (js.job.model, grant_per_gpu(js.grant, js.width)) in self._observed_grants

    def is_profile_wrong(self, js: JobState) -> bool:
        """Return whether an observation contradicted the job's profile."""
        return any(model == js.job.model for model, _ in self._observed)

    # --- jobs without a profile -------------------------------------------------------------------------------

    def _unknown(self, job: Job, proportional: Grant) -> Choices:
        """Return a single grant: the proportional share, or what the job asked for if that is within the share."""
        own = scaled(proportional, job.gpus * job.gpu_milli)
        grant = fallback_grant(self.demands.demand(job, proportional), own)
        if job.gpus > 1:
            own, grant = proportional, Grant(*(amount // job.gpus for amount in grant))
        return Choices([grant], [REFERENCE_SPEED_PPM], own)

    # --- jobs with one ----------------------------------------------------------------------------------------

    def _estimated(self, model: str, per_gpu: Grant, pace: int) -> int:
        """Return the speed observed with this grant; else that of the profile, bounded from below by the speeds
        observed with smaller grants and from above by those observed with larger ones."""
        speed = self._model.of(_probe(model), self.effective(per_gpu), pace)
        for grant, value in self._observed.get((model, pace), {}).items():
            if not exceeds(grant, per_gpu):
                speed = max(speed, value)
            if not exceeds(per_gpu, grant):
                speed = min(speed, value)
        return speed

    def _known(self, model: str, width: int, proportional: Grant, pace: int, knapsack: NodeKnapsack) -> Choices:
        share = min(width, WHOLE_GPU_MILLI)
        own = scaled(proportional, share)
        at_proportional = self._estimated(model, grant_per_gpu(own, share), pace)
        if (model, pace) in self._observed and grant_per_gpu(own, share) not in self._observed[(model, pace)]:
            # The profile is wrong: only the proportional share, until the speed with it was observed.
            return Choices([own], [at_proportional], own)
        candidates = CandidateGrants(_probe(model), self._matrix, self.demands.shares, pace, knapsack)
        speeds: dict[Grant, int] = {}
        for per_gpu in candidates.all(width // WHOLE_GPU_MILLI, proportional):
            grant = per_gpu if share == WHOLE_GPU_MILLI else grant_of_share(per_gpu, proportional, own, share)
            if (speed := self._estimated(model, grant_per_gpu(grant, share), pace)) >= at_proportional or not speeds:
                speeds[grant] = speed  # the proportional share itself comes first
        grants = sorted(speeds, key=lambda grant: (speeds[grant], grant))
        kept = undominated(grants, [speeds[grant] for grant in grants])
        if len(kept) > _MOST_CHOICES:
            every = -(-len(kept) // _MOST_CHOICES)
            fallback = (index for index in kept if not exceeds(grants[index], own))
            kept = sorted({*kept[::every], kept[-1], *fallback})
        return Choices([grants[index] for index in kept], [speeds[grants[index]] for index in kept], own)

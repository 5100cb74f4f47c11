"""What is believed of jobs: the grants that are worth considering for each, and how fast it is with them.

A profile says it, until it is seen otherwise: what jobs of a model were seen to do with a grant counts from then on,
for all of them, and what was not seen lies between what was. The least on a menu keeps a job at least as fast as its
due would.
"""

from functools import cache

from headway.training.actions import Grant
from headway.training.job import Job
from headway.training.jobstate import JobState
from headway.training.policies.allocations.headway.candidates import CandidateGrants, share_of, undominated
from headway.training.policies.allocations.headway.knapsack import Choices, NodeKnapsack
from headway.training.policies.allocations.shared.demands import Demands, exceeds, fallback_grant
from headway.training.proportional_share import scaled
from headway.training.sensitivity import Matrix, grant_per_gpu
from headway.training.state import TrainingState
from headway.units import REFERENCE_SPEED_PPM, WHOLE_GPU_MILLI

_MOST_CHOICES = 32
_TOLERANCE = 100
"""What is seen agrees with what was believed to this part of it."""


@cache
def _probe(model: str) -> Job:
    """Return a job of one GPU that trains a model."""
    return Job(0, 0, 1, 1, model=model)


class Estimates:
    """Menus of jobs on one cluster."""

    def __init__(self, state: TrainingState) -> None:
        self.demands = Demands(state)
        self.effective = self.demands.shares.effective
        self._matrix = Matrix(state.speed.profiles)
        kind = type(state.speed.sensitivity)
        self._model = kind(state.speed.profiles) if issubclass(kind, Matrix) else self._matrix
        """How speed follows from a profile, as it does on this cluster; the truth of it is not looked at."""
        self._choices: dict[tuple[object, ...], Choices] = {}
        self._observed: dict[tuple[str, int], dict[Grant, int]] = {}
        """By model and pace of the GPUs, for those that were seen to differ from their profile: speeds with grants."""
        self._observed_grants: set[tuple[str, Grant]] = set()

    def choices(self, js: JobState, proportional: Grant, pace: int, knapsack: NodeKnapsack) -> Choices:
        """Return what a job may be granted a GPU, of which its due is ``due``, on GPUs of a pace."""
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
        """Return how fast a job is believed to be with a grant."""
        if self.demands.profile(js.job) is None:
            return REFERENCE_SPEED_PPM
        return self._estimated(js.job.model, grant_per_gpu(grant, js.width), pace)

    def guaranteed_speed(self, js: JobState, proportional: Grant, pace: int) -> int:
        """Return how fast it is believed to be with its due, which is so much a GPU."""
        return (
            REFERENCE_SPEED_PPM
            if self.demands.profile(js.job) is None
            else self._estimated(js.job.model, proportional, pace)
        )

    # --- what was seen ----------------------------------------------------------------------------------------

    def observe(self, js: JobState, pace: int) -> bool:
        """Note how fast a job has become with what it holds; whether that changes what is believed."""
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
        """Return whether a job of its kind was seen with what it holds."""
        return (js.job.model, grant_per_gpu(js.grant, js.width)) in self._observed_grants or self.demands.profile(
            js.job
        ) is None

    def is_profile_wrong(self, js: JobState) -> bool:
        """Return whether its profile was seen to be wrong."""
        return any(model == js.job.model for model, _ in self._observed)

    # --- jobs without a profile -------------------------------------------------------------------------------

    def _unknown(self, job: Job, proportional: Grant) -> Choices:
        """Its due, or what it asked for where that is nowhere above: there is nothing to choose by."""
        own = scaled(proportional, job.gpus * job.gpu_milli)
        grant = fallback_grant(self.demands.demand(job, proportional), own)
        if job.gpus > 1:
            own, grant = proportional, Grant(*(amount // job.gpus for amount in grant))
        return Choices([grant], [REFERENCE_SPEED_PPM], own)

    # --- jobs with one ----------------------------------------------------------------------------------------

    def _estimated(self, model: str, per_gpu: Grant, pace: int) -> int:
        """What was seen with this grant; else what the profile says, no less than was seen with less of everything,
        and no more than with more."""
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
            return Choices(
                [own], [at_proportional], own
            )  # the profile is wrong: its due, until it was seen what that is good for
        offers = CandidateGrants(_probe(model), self._matrix, self.demands.shares, pace, knapsack)
        found: dict[Grant, int] = {}
        for per_gpu in offers.all(width // WHOLE_GPU_MILLI, proportional):
            grant = per_gpu if share == WHOLE_GPU_MILLI else share_of(per_gpu, proportional, own, share)
            if (speed := self._estimated(model, grant_per_gpu(grant, share), pace)) >= at_proportional or not found:
                found[grant] = speed  # the due itself comes first
        grants = sorted(found, key=lambda grant: (found[grant], grant))
        kept = undominated(grants, [found[grant] for grant in grants])
        if len(kept) > _MOST_CHOICES:
            every = -(-len(kept) // _MOST_CHOICES)
            fallback = (index for index in kept if not exceeds(grants[index], own))
            kept = sorted({*kept[::every], kept[-1], *fallback})
        return Choices([grants[index] for index in kept], [found[grants[index]] for index in kept], own)

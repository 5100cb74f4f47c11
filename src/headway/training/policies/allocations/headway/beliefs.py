"""What is believed of jobs: the grants that are worth considering for each, and how fast it is with them.

A profile says it, until it is seen otherwise: what jobs of a model were seen to do with a grant counts from then on,
for all of them, and what was not seen lies between what was. The least on a menu keeps a job at least as fast as its
due would.
"""

from functools import cache

from headway.training.actions import Grant
from headway.training.job import Job
from headway.training.jobstate import JobState
from headway.training.policies.allocations.headway.knapsack import Basin, Menu
from headway.training.policies.allocations.headway.offers import Offers, share_of, undominated
from headway.training.policies.allocations.shared.wants import Wants, above, least
from headway.training.sensitivity import Matrix, a_gpu
from headway.training.shares import times
from headway.training.state import TrainingState
from headway.units import REFERENCE_SPEED_PPM, WHOLE_GPU_MILLI

_MOST_CHOICES = 32
_TOLERANCE = 100
"""What is seen agrees with what was believed to this part of it."""


@cache
def _probe(model: str) -> Job:
    """Return a job of one GPU that trains a model."""
    return Job(0, 0, 1, 1, model=model)


class Beliefs:
    """Menus of jobs on one cluster."""

    def __init__(self, state: TrainingState) -> None:
        self.wants = Wants(state)
        self.felt = self.wants.dues.felt
        self._matrix = Matrix(state.speed.profiles)
        kind = type(state.speed.sensitivity)
        self._model = kind(state.speed.profiles) if issubclass(kind, Matrix) else self._matrix
        """How speed follows from a profile, as it does on this cluster; the truth of it is not looked at."""
        self._menus: dict[tuple[object, ...], Menu] = {}
        self._seen: dict[tuple[str, int], dict[Grant, int]] = {}
        """By model and pace of the GPUs, for those that were seen to differ from their profile: speeds with grants."""
        self._certain: set[tuple[str, Grant]] = set()

    def menu(self, js: JobState, due: Grant, pace: int, basin: Basin) -> Menu:
        """Return what a job may be granted a GPU, of which its due is ``due``, on GPUs of a pace."""
        job = js.job
        profile = self.wants.profile(job)
        key: tuple[object, ...] = (job.model, js.width, due, pace, basin)
        if profile is None:
            key = (job.cpu_milli, job.memory_bytes, js.width, due)
        found = self._menus.get(key)
        if found is None:
            found = self._unknown(job, due) if profile is None else self._known(job.model, js.width, due, pace, basin)
            self._menus[key] = found
        return found

    def speed(self, js: JobState, grant: Grant, pace: int) -> int:
        """Return how fast a job is believed to be with a grant."""
        if self.wants.profile(js.job) is None:
            return REFERENCE_SPEED_PPM
        return self._believed(js.job.model, a_gpu(grant, js.width), pace)

    def owed(self, js: JobState, due: Grant, pace: int) -> int:
        """Return how fast it is believed to be with its due, which is so much a GPU."""
        return REFERENCE_SPEED_PPM if self.wants.profile(js.job) is None else self._believed(js.job.model, due, pace)

    # --- what was seen ----------------------------------------------------------------------------------------

    def see(self, js: JobState, pace: int) -> bool:
        """Note how fast a job has become with what it holds; whether that changes what is believed."""
        model, grant = js.job.model, a_gpu(js.grant, js.width)
        self._certain.add((model, grant))
        if (model, pace) not in self._seen:
            believed = self._believed(model, grant, pace)
            if abs(js.speed - believed) * _TOLERANCE <= believed:
                return False
            self._seen[(model, pace)] = {}
        seen = self._seen[(model, pace)]
        if grant in seen and abs(js.speed - seen[grant]) * _TOLERANCE <= seen[grant]:
            return False
        seen[grant] = js.speed
        self._menus = {key: menu for key, menu in self._menus.items() if key[0] != model}
        return True

    def certain(self, js: JobState) -> bool:
        """Return whether a job of its kind was seen with what it holds."""
        return (js.job.model, a_gpu(js.grant, js.width)) in self._certain or self.wants.profile(js.job) is None

    def doubts(self, js: JobState) -> bool:
        """Return whether its profile was seen to be wrong."""
        return any(model == js.job.model for model, _ in self._seen)

    # --- jobs without a profile -------------------------------------------------------------------------------

    def _unknown(self, job: Job, due: Grant) -> Menu:
        """Its due, or what it asked for where that is nowhere above: there is nothing to choose by."""
        own = times(due, job.gpus * job.gpu_milli)
        grant = least(self.wants.demand(job, due), own)
        if job.gpus > 1:
            own, grant = due, Grant(*(amount // job.gpus for amount in grant))
        return Menu([grant], [REFERENCE_SPEED_PPM], own)

    # --- jobs with one ----------------------------------------------------------------------------------------

    def _believed(self, model: str, per_gpu: Grant, pace: int) -> int:
        """What was seen with this grant; else what the profile says, no less than was seen with less of everything,
        and no more than with more."""
        speed = self._model.of(_probe(model), self.felt(per_gpu), pace)
        for grant, value in self._seen.get((model, pace), {}).items():
            if not above(grant, per_gpu):
                speed = max(speed, value)
            if not above(per_gpu, grant):
                speed = min(speed, value)
        return speed

    def _known(self, model: str, width: int, due: Grant, pace: int, basin: Basin) -> Menu:
        share = min(width, WHOLE_GPU_MILLI)
        own = times(due, share)
        at_due = self._believed(model, a_gpu(own, share), pace)
        if (model, pace) in self._seen and a_gpu(own, share) not in self._seen[(model, pace)]:
            return Menu([own], [at_due], own)  # the profile is wrong: its due, until it was seen what that is good for
        offers = Offers(_probe(model), self._matrix, self.wants.dues, pace, basin)
        found: dict[Grant, int] = {}
        for per_gpu in offers.all(width // WHOLE_GPU_MILLI, due):
            grant = per_gpu if share == WHOLE_GPU_MILLI else share_of(per_gpu, due, own, share)
            if (speed := self._believed(model, a_gpu(grant, share), pace)) >= at_due or not found:
                found[grant] = speed  # the due itself comes first
        grants = sorted(found, key=lambda grant: (found[grant], grant))
        kept = undominated(grants, [found[grant] for grant in grants])
        if len(kept) > _MOST_CHOICES:
            every = -(-len(kept) // _MOST_CHOICES)
            modest = (index for index in kept if not above(grants[index], own))
            kept = sorted({*kept[::every], kept[-1], *modest})
        return Menu([grants[index] for index in kept], [found[grants[index]] for index in kept], own)

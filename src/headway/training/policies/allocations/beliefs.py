"""What is believed of jobs: the grants that are worth considering for each, and how fast it is with them.

A profile says it, until it is seen otherwise: what jobs of a model were seen to do with a grant counts from then on,
for all of them, and what was not seen lies between what was. The least on a menu keeps a job at least as fast as its
due would.
"""

from collections.abc import Iterator

import numpy as np

from headway.training.actions import Grant
from headway.training.job import Job
from headway.training.jobstate import JobState
from headway.training.policies.allocations.wants import Wants, above
from headway.training.policies.allocations.water import Basin, Menu
from headway.training.pool import UNCOUNTED
from headway.training.sensitivity import Matrix, Profile, a_gpu
from headway.training.shares import times
from headway.training.state import TrainingState
from headway.units import REFERENCE_SPEED_PPM, WHOLE_GPU_MILLI

_MOST_CHOICES = 32
_TOLERANCE = 100
"""What is seen agrees with what was believed to this part of it."""
_FINEST = 2
"""Jobs on several GPUs are given parts of a unit a GPU, down to this part."""


class Beliefs:
    """Menus of jobs on one cluster."""

    def __init__(self, state: TrainingState) -> None:
        self.wants = Wants(state)
        self.felt = self.wants.dues.felt
        self._matrix = Matrix(state.speed.profiles)
        kind = type(state.speed.sensitivity)
        self._model = kind(state.speed.profiles) if issubclass(kind, Matrix) else self._matrix
        """How speed follows from a profile, as it does on this cluster; the truth of it is not looked at."""
        self._probes: dict[str, Job] = {}
        self._menus: dict[tuple[object, ...], Menu] = {}
        self._seen: dict[tuple[str, int], dict[Grant, int]] = {}
        """By model and pace of the GPUs, for those that were seen to differ from their profile: speeds with grants."""
        self._certain: set[tuple[str, Grant]] = set()

    def menu(self, js: JobState, due: Grant, pace: int, basin: Basin) -> Menu:
        """What a job may be granted a GPU, of which its due is ``due``, on GPUs of a pace."""
        job = js.job
        key: tuple[object, ...]
        profile = self.wants.profile(job)
        if profile is None:
            key = (job.cpu_milli, job.memory_bytes, js.width, due)
        else:
            key = (job.model, js.width, due, pace, basin)
        found = self._menus.get(key)
        if found is None:
            found = self._unknown(job, due) if profile is None else self._known(profile, js.width, due, pace, basin)
            self._menus[key] = found
        return found

    def speed(self, js: JobState, grant: Grant, pace: int) -> int:
        """How fast a job is believed to be with a grant."""
        if self.wants.profile(js.job) is None:
            return REFERENCE_SPEED_PPM
        return self._believed(js.job.model, a_gpu(grant, js.width), pace)

    def owed(self, js: JobState, due: Grant, pace: int) -> int:
        """How fast it is believed to be with its due, which is so much a GPU."""
        return REFERENCE_SPEED_PPM if self.wants.profile(js.job) is None else self._believed(js.job.model, due, pace)

    # --- what was seen ----------------------------------------------------------------------------------------

    def see(self, js: JobState, due: Grant, pace: int) -> bool:
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
        """Whether a job of its kind was seen with what it holds."""
        return (js.job.model, a_gpu(js.grant, js.width)) in self._certain or self.wants.profile(js.job) is None

    def doubts(self, js: JobState) -> bool:
        """Whether its profile was seen to be wrong."""
        return any(model == js.job.model for model, _ in self._seen)

    # --- jobs without a profile -------------------------------------------------------------------------------

    def _unknown(self, job: Job, due: Grant) -> Menu:
        """Its due, or what it asked for where that is less; where there is enough, all that it asked for."""
        width = job.gpus * job.gpu_milli
        asked, own = self.wants.demand(job, due), times(due, width)
        most = asked if not above(asked, own) else Grant(*(max(pair) for pair in zip(asked, own, strict=True)))
        grants = [most] if most == asked and not above(asked, own) else [own, most]
        if job.gpus > 1:
            own = due
            grants = [Grant(*(amount // job.gpus for amount in grant)) for grant in grants]
        return Menu(grants, [REFERENCE_SPEED_PPM + index for index in range(len(grants))], own)

    # --- jobs with one ----------------------------------------------------------------------------------------

    def _probe(self, model: str) -> Job:
        found = self._probes.get(model)
        if found is None:
            found = self._probes[model] = Job(0, 0, 1, 1, model=model)
        return found

    def _believed(self, model: str, per_gpu: Grant, pace: int) -> int:
        """What was seen with this grant; else what the profile says, no less than was seen with less of everything,
        and no more than with more."""
        speed = self._model.of(self._probe(model), self.felt(per_gpu), pace)
        for grant, value in self._seen.get((model, pace), {}).items():
            if not above(grant, per_gpu):
                speed = max(speed, value)
            if not above(per_gpu, grant):
                speed = min(speed, value)
        return speed

    def _known(self, profile: Profile, width: int, due: Grant, pace: int, basin: Basin) -> Menu:
        share = min(width, WHOLE_GPU_MILLI)
        own = times(due, share)
        if (seen := self._seen.get((profile.model, pace))) is not None and a_gpu(own, share) not in seen:
            return self._due_alone(profile, own, share, pace)
        at_due = self._believed(profile.model, a_gpu(own, share), pace)
        found: dict[Grant, int] = {}
        for grant in self._candidates(profile, width // WHOLE_GPU_MILLI, due, pace, basin):
            if share < WHOLE_GPU_MILLI:
                grant = _share(grant, due, own, share)
            if (speed := self._believed(profile.model, a_gpu(grant, share), pace)) >= at_due or not found:
                found[grant] = speed  # the due itself comes first
        grants = sorted(found, key=lambda grant: (found[grant], grant))
        kept = _undominated(grants, [found[grant] for grant in grants])
        if len(kept) > _MOST_CHOICES:
            every = -(-len(kept) // _MOST_CHOICES)
            modest = (index for index in kept if not above(grants[index], own))
            kept = sorted({*kept[::every], kept[-1], *modest})
        return Menu([grants[index] for index in kept], [found[grants[index]] for index in kept], own)

    def _due_alone(self, profile: Profile, own: Grant, share: int, pace: int) -> Menu:
        """For a profile that is wrong: the due, until it was seen what that is good for."""
        return Menu([own], [self._believed(profile.model, a_gpu(own, share), pace)], own)

    def _candidates(self, profile: Profile, gpus: int, due: Grant, pace: int, basin: Basin) -> Iterator[Grant]:
        """Grants a GPU that are at least as good as the due: the due itself, and for each size of memory the least CPUs
        that do, and more in steps."""
        owed = self._matrix.of(self._probe(profile.model), self.felt(due), pace)
        yield self._with_storage(profile, due.cpu_milli, due.memory_bytes, pace, owed, due)
        whole = basin.capacity
        reached = -1
        for memory in self._memories(profile, due, basin):
            best = self._of(profile, whole.cpu_milli, memory, pace)
            if best < owed or (best == reached and not self.wants.dues.counted[2]):
                continue  # more memory alone is no use, unless it saves storage bandwidth
            reached = best
            least = self._least_cpus(profile, memory, pace, owed, whole.cpu_milli)
            enough = self._least_cpus(profile, memory, pace, best, whole.cpu_milli)
            for cpus in self._steps(profile, gpus, least, enough, basin):
                yield self._with_storage(profile, cpus, memory, pace, owed, None)

    def _with_storage(self, profile: Profile, cpus: int, memory: int, pace: int, owed: int, due: Grant | None) -> Grant:
        """The storage bandwidth that goes with CPUs and memory, where it is counted; for a due no more than that."""
        counted = self.wants.dues.counted
        speed = self._of(profile, cpus, memory, pace)
        need = profile.storage_need(max(speed, owed), memory) if counted[2] else 0
        if due is not None:
            need = min(need, due.storage)
        return Grant(cpus if counted[0] else 0, memory if counted[1] else 0, need)

    def _of(self, profile: Profile, cpus: int, memory: int, pace: int) -> int:
        return self._matrix.of(self._probe(profile.model), self.felt(Grant(cpus, memory, UNCOUNTED)), pace)

    def _memories(self, profile: Profile, due: Grant, basin: Basin) -> list[int]:
        if not basin.counted[1] or not self.wants.dues.counted[1]:
            return [due.memory_bytes]
        top = min(basin.capacity.memory_bytes, max(profile.memory_bytes[-1], due.memory_bytes))
        steps = range(due.memory_bytes, top + 1, basin.units[1])
        return sorted({due.memory_bytes, *steps, *(size for size in profile.memory_bytes if size <= top)})

    def _least_cpus(self, profile: Profile, memory: int, pace: int, speed: int, most: int) -> int:
        """The fewest CPUs with which a speed is reached that these reach."""
        low, high = 0, min(most, max(profile.cpu_milli[-1], most if pace > REFERENCE_SPEED_PPM else 0))
        while low < high:
            middle = (low + high) // 2
            if self._of(profile, middle, memory, pace) >= speed:
                high = middle
            else:
                low = middle + 1
        return low

    def _steps(self, profile: Profile, gpus: int, least: int, enough: int, basin: Basin) -> list[int]:
        if not basin.counted[0] or not self.wants.dues.counted[0]:
            return [least]
        unit = max(1, basin.units[0] // max(1, min(gpus, _FINEST)))
        steps = range(least // unit * unit + unit, enough, unit)
        return sorted({least, enough, *steps, *(cpus for cpus in profile.cpu_milli if least < cpus < enough)})


def _share(per_gpu: Grant, due: Grant, own: Grant, share: int) -> Grant:
    """What a share of a GPU has of a grant a GPU: rounded up, but no more than is due where the grant is not."""
    scaled = (-(-amount * share // WHOLE_GPU_MILLI) for amount in per_gpu)
    return Grant(
        *(
            min(whole, mine) if amount <= at_due else whole
            for whole, mine, amount, at_due in zip(scaled, own, per_gpu, due, strict=True)
        )
    )


def _undominated(grants: list[Grant], speeds: list[int]) -> list[int]:
    """Positions of the grants than which none that takes no more is as fast; the slowest first."""
    takes = np.array(grants, dtype=np.int64)
    fast = np.array(speeds, dtype=np.int64)
    no_more = (takes[:, None, :] <= takes[None, :, :]).all(axis=2)
    as_fast = fast[:, None] >= fast[None, :]
    other = (takes[:, None, :] != takes[None, :, :]).any(axis=2)
    beaten = (no_more & as_fast & other).any(axis=0)
    return [index for index in range(len(grants)) if not beaten[index]]

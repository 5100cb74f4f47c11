"""Kinds of jobs: the cells (possible grants) of each job. Jobs with the same cells are of one kind.

The cells are those of the job's matrix, the whole numbers of CPUs between them, and its proportional share. Kept are
those that fit on its nodes, make it at least as fast as its proportional share would, and are not dominated.
(Synergy's programme has the cells of the matrix.)
"""

from collections.abc import Sequence

from headway.jobs.model.proportional_share import scaled
from headway.jobs.model.resources import Grant, Placement
from headway.jobs.model.sensitivity import Profile, grant_per_gpu
from headway.jobs.policies.allocations.shared.demands import Demands, fallback_grant, scaled_up
from headway.jobs.policies.allocations.synergy.programs import Cell, Resources, undominated, within
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.state import TrainingState
from headway.units import REFERENCE_SPEED_PPM, WHOLE_GPU_MILLI


class Kinds:
    """The cells of jobs on one cluster. The first cell is within the proportional share, so all first cells fit."""

    def __init__(self, state: TrainingState, rooms: Sequence[Resources], *, by_gpus: bool, between: bool) -> None:
        """``rooms``: what each node has."""
        self.demands = Demands(state)
        self._speed = state.speed
        self._by_gpus = by_gpus
        self._between = between
        self._rooms = rooms
        self._cells: dict[tuple[object, ...], tuple[Cell, ...]] = {}

    def cells(self, js: JobState, placement: Placement) -> tuple[Cell, ...]:
        """Return the cells of a job on a placement."""
        job, proportional = js.job, self.demands.shares.per_gpu(placement)
        pace = self._speed.pace(job, placement)
        room = self._rooms[placement[0][0]] if len(placement) == 1 else self._room(placement, js.gpus)
        key = (job.model, js.width, proportional, pace, room, job.cpu_milli, job.memory_bytes)
        cells = self._cells.get(key)
        if cells is None:
            cells = self._cells[key] = self._compute(js, proportional, pace, room)
        return cells

    def _room(self, placement: Placement, gpus: int) -> Resources:
        """Return the most that a job that spans nodes can have: the least that one of its nodes allows."""
        counts = [(self._rooms[node], mask.bit_count()) for node, mask in placement]
        most = [min(room[r] * gpus // count for room, count in counts) for r in range(3)]
        return most[0], most[1], most[2]

    def fallback(self, js: JobState, placement: Placement) -> Grant:
        """Return what a job is lowered to: its full demand if that is within its proportional share, else the share."""
        return fallback_grant(
            self.demands.demand(js.job, self.demands.shares.per_gpu(placement)),
            self.demands.proportional(js, placement),
        )

    def _compute(self, js: JobState, proportional_per_gpu: Grant, pace_ppm: int, room: Resources) -> tuple[Cell, ...]:
        profile = self.demands.profile(js.job)
        proportional = scaled(proportional_per_gpu, js.width)
        if profile is None:
            return (
                Cell(
                    fallback_grant(self.demands.demand(js.job, proportional_per_gpu), proportional),
                    self._worth(js, REFERENCE_SPEED_PPM),
                ),
            )
        at_proportional = self._ppm(profile, proportional, js.width, pace_ppm)
        grants = {proportional, *self._grid(profile, proportional_per_gpu, js.width, pace_ppm)}
        ppms = {grant: self._ppm(profile, grant, js.width, pace_ppm) for grant in grants if within(grant, room)}
        kept = undominated([Cell(grant, self._worth(js, ppm)) for grant, ppm in ppms.items() if ppm >= at_proportional])
        safe = next(cell for cell in kept if within(cell.grant, proportional))
        return (safe, *(cell for cell in kept if cell is not safe))

    def _grid(self, profile: Profile, proportional_per_gpu: Grant, width: int, pace_ppm: int) -> list[Grant]:
        """Return every combination of CPUs and memory to consider, with the storage bandwidth that it can use."""
        rows = {*profile.cpu_milli, proportional_per_gpu.cpu_milli}
        enough = profile.demand.cpu_milli
        if pace_ppm > REFERENCE_SPEED_PPM:
            enough = -(-enough * pace_ppm // REFERENCE_SPEED_PPM)
            rows.add(enough)
        if self._between:
            rows.update(range(1000, enough + 1, 1000))
        columns = {*profile.memory_bytes, proportional_per_gpu.memory_bytes}
        counted = self.demands.shares.counted
        grid = []
        for cpu_milli in rows:
            for memory_bytes in columns:
                bare = Grant(cpu_milli * counted[0], memory_bytes * counted[1])
                ppm = self._ppm(profile, scaled(Grant(*bare[:2], 1 << 59), width), width, pace_ppm)
                storage = profile.storage_need(ppm, memory_bytes) * counted[2]
                grid.append(scaled_up(bare._replace(storage=storage), width))
        return grid

    def _ppm(self, profile: Profile, grant: Grant, width: int, pace_ppm: int) -> int:
        """Return the estimated speed of a job with a grant, on its GPUs."""
        return profile.speed_at(grant_per_gpu(self.demands.shares.effective(grant), width), pace_ppm)

    def _worth(self, js: JobState, ppm: int) -> int:
        return ppm * js.width // WHOLE_GPU_MILLI if self._by_gpus else ppm

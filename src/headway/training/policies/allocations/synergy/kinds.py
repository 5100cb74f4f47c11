"""What a job may be given: the cells worth giving to it, and the jobs that are alike in that.

The cells are those of its matrix, the whole numbers of CPUs between them, and its due; of these the ones that its nodes
have room for, that make it at least as fast as its due would, and that no other one beats (Synergy's programme has the
cells of the matrix). Jobs with the same cells are of one kind, whatever they train.
"""

from collections.abc import Sequence

from headway.training.actions import Grant, Placement
from headway.training.jobstate import JobState
from headway.training.policies.allocations.shared.wants import Wants, for_width, least
from headway.training.policies.allocations.synergy.programs import Cell, Room, undominated, within
from headway.training.sensitivity import Profile, a_gpu
from headway.training.shares import times
from headway.training.state import TrainingState
from headway.units import REFERENCE_SPEED_PPM, WHOLE_GPU_MILLI


class Kinds:
    """The cells of jobs, on one cluster. The first of them is within a job's due, so that all first ones always fit."""

    def __init__(self, state: TrainingState, rooms: Sequence[Room], *, by_gpus: bool, between: bool) -> None:
        """``rooms``: what each node has."""
        self.wants = Wants(state)
        self._speed = state.speed
        self._by_gpus = by_gpus
        self._between = between
        self._rooms = rooms
        self._cells: dict[tuple[object, ...], tuple[Cell, ...]] = {}

    def cells(self, js: JobState, placement: Placement) -> tuple[Cell, ...]:
        """Return what a job may be given where it is."""
        job, due = js.job, self.wants.dues.a_gpu(placement)
        pace = self._speed.pace(job, placement)
        room = self._rooms[placement[0][0]] if len(placement) == 1 else self._room(placement, js.gpus)
        key = (job.model, js.width, due, pace, room, job.cpu_milli, job.memory_bytes)
        found = self._cells.get(key)
        if found is None:
            found = self._cells[key] = self._found(js, due, pace, room)
        return found

    def _room(self, placement: Placement, gpus: int) -> Room:
        """Return what a job over several nodes can have at most: the least that one of them allows."""
        each = [(self._rooms[node], mask.bit_count()) for node, mask in placement]
        most = [min(room[r] * gpus // count for room, count in each) for r in range(3)]
        return most[0], most[1], most[2]

    def least(self, js: JobState, placement: Placement) -> Grant:
        """What a job comes down to where a node is tight: its demand, or its due where it wants more of anything."""
        return least(self.wants.demand(js.job, self.wants.dues.a_gpu(placement)), self.wants.due(js, placement))

    def _found(self, js: JobState, due_a_gpu: Grant, pace_ppm: int, room: Room) -> tuple[Cell, ...]:
        profile = self.wants.profile(js.job)
        due = times(due_a_gpu, js.width)
        if profile is None:
            return (Cell(least(self.wants.demand(js.job, due_a_gpu), due), self._worth(js, REFERENCE_SPEED_PPM)),)
        at_due = self._ppm(profile, due, js.width, pace_ppm)
        grants = {due, *self._grid(profile, due_a_gpu, js.width, pace_ppm)}
        ppms = {grant: self._ppm(profile, grant, js.width, pace_ppm) for grant in grants if within(grant, room)}
        kept = undominated([Cell(grant, self._worth(js, ppm)) for grant, ppm in ppms.items() if ppm >= at_due])
        safe = next(cell for cell in kept if within(cell.grant, due))
        return (safe, *(cell for cell in kept if cell is not safe))

    def _grid(self, profile: Profile, due_a_gpu: Grant, width: int, pace_ppm: int) -> list[Grant]:
        """Every combination of CPUs and memory that is looked at, with the storage bandwidth that it can use."""
        rows = {*profile.cpu_milli, due_a_gpu.cpu_milli}
        enough = profile.demand.cpu_milli
        if pace_ppm > REFERENCE_SPEED_PPM:
            enough = -(-enough * pace_ppm // REFERENCE_SPEED_PPM)
            rows.add(enough)
        if self._between:
            rows.update(range(1000, enough + 1, 1000))
        columns = {*profile.memory_bytes, due_a_gpu.memory_bytes}
        counted = self.wants.dues.counted
        grid = []
        for cpu_milli in rows:
            for memory_bytes in columns:
                bare = Grant(cpu_milli * counted[0], memory_bytes * counted[1])
                ppm = self._ppm(profile, times(Grant(*bare[:2], 1 << 59), width), width, pace_ppm)
                storage = profile.storage_need(ppm, memory_bytes) * counted[2]
                grid.append(for_width(bare._replace(storage=storage), width))
        return grid

    def _ppm(self, profile: Profile, grant: Grant, width: int, pace_ppm: int) -> int:
        """Return how fast a job is believed to be with a grant, on its GPUs."""
        return profile.speed_at(a_gpu(self.wants.dues.felt(grant), width), pace_ppm)

    def _worth(self, js: JobState, ppm: int) -> int:
        return ppm * js.width // WHOLE_GPU_MILLI if self._by_gpus else ppm

"""The fleet as one worker takes it to be: rows as of their last push, and what it placed itself since."""

from collections.abc import Iterable

from headway.serving.policies.headway.order import Outline
from headway.serving.state import ServingState
from headway.serving.workerstate import Row


class Plan:
    """What travels with a request besides the workers of its tasks."""

    __slots__ = ("arrivals", "by", "finish", "placed")

    def __init__(self, tasks: int) -> None:
        self.placed = [-1] * tasks
        """When each task was placed last."""
        self.by = [-1] * tasks
        """By which worker."""
        self.arrivals = [0] * tasks
        """When its inputs are expected where it was placed."""
        self.finish = 0
        """When the last task is expected to end."""


class View:
    """The fleet as one worker takes it to be; planning writes what it has in mind into it."""

    __slots__ = ("backlog", "busy", "fetching", "free", "idle", "resident", "slices", "up", "wanted")

    def __init__(self, count: int) -> None:
        self.up = 0
        """Workers that can be used, as bits."""
        self.busy = [0] * count
        """When what runs, and what was planned just now, has ended."""
        self.fetching = [0] * count
        """What it takes to fetch what tasks placed there need."""
        self.backlog = [0] * count
        """Run time of what is queued and under way."""
        self.resident = [0] * count
        """Models that are there, or will be fetched for tasks placed there."""
        self.free = [0] * count
        self.slices = [0] * count
        """Slices that are free."""
        self.wanted = [0] * count
        """Models that tasks placed there need."""
        self.idle = [0] * count
        """Functions with an idle process."""

    def copy(self) -> "View":
        """Another one, to plan in."""
        other = View(0)
        other.up = self.up
        other.busy, other.fetching, other.backlog = self.busy.copy(), self.fetching.copy(), self.backlog.copy()
        other.resident, other.free, other.wanted = self.resident.copy(), self.free.copy(), self.wanted.copy()
        other.idle, other.slices = self.idle, self.slices  # plans do not change them
        return other


class Views:
    """Makes views; its memory is what each worker placed since the others' last push."""

    def __init__(self, state: ServingState, outline: Outline) -> None:
        self._outline = outline
        self._epoch = -1
        self._mine: dict[int, dict[int, tuple[int, int]]] = {}
        """By planner and worker: run time and models of what was placed in this interval."""
        self._rows: list[Row | None] = [None] * len(state.workers)
        self._seen = View(len(state.workers))
        """What follows from each of these rows; rows that are the same object say the same."""
        self._keep_alive = state.fleet.keep_alive
        self._processes: list[dict[int, int]] = [{} for _ in state.workers]
        """By worker and function: until when a process that was idle in a pushed row exists for sure."""
        self._begun: list[dict[tuple[int, int], int]] = [{} for _ in state.workers]
        """By planner, (worker, function): when a process is ready that the planner knows to have been begun."""

    def view(self, now: int, state: ServingState, viewer: int) -> View:
        """All rows as ``viewer`` sees them, with what it placed since."""
        self._renew(now, state)
        rows = state.rows(viewer, now)
        known = self._rows
        for index, row in enumerate(rows):
            if row is not known[index]:
                self._read(index, row)
                if index != viewer:  # what a worker knows of itself is not pushed yet
                    self._remember(now, index, row)
        view = self._seen.copy()
        for index, (work, models) in self._mine.get(viewer, {}).items():
            view.backlog[index] += work // self._outline.lanes[index]
            view.wanted[index] |= models
            self._want(view, index, models & ~view.resident[index])
        return view

    def _read(self, index: int, row: Row) -> None:
        """A row that was not seen before."""
        self._rows[index] = row
        seen, lanes = self._seen, self._outline.lanes[index]
        seen.up = seen.up | 1 << index if row.up else seen.up & ~(1 << index)
        seen.busy[index] = 0 if lanes > 1 and row.slices_free and row.cpus_free else row.busy_until
        seen.backlog[index] = (row.queued + row.reserved) // lanes
        seen.fetching[index] = 0
        seen.resident[index] = row.resident
        seen.free[index] = row.free_bytes
        seen.wanted[index] = row.wanted
        seen.idle[index] = row.warm
        seen.slices[index] = row.slices_free
        self._want(seen, index, row.wanted & ~row.resident)

    def _remember(self, now: int, index: int, row: Row) -> None:
        """A process that was idle is idle still, or busy, until its time is up."""
        if not row.up:
            self._processes[index].clear()
        for function in self._outline.slow:
            if row.warm >> function & 1:
                self._processes[index][function] = now + self._keep_alive

    def begun(self, viewer: int, worker: int, function: int, ready: int) -> None:
        """``viewer`` knows that a process is being started."""
        self._begun[viewer][worker, function] = ready

    def start(self, now: int, state: ServingState, viewer: int, worker: int, function: int) -> int:
        """What a task waits where a row shows no idle process of its function, as far as ``viewer`` knows."""
        busy = self._outline.pace[worker][function] // 2
        if worker == viewer:
            if any(batch.function == function for batch in state.workers[viewer].running.values()):
                return busy
        elif self._processes[worker].get(function, 0) > now:
            return busy
        cold = self._outline.colds[function]
        ready = self._begun[viewer].get((worker, function), -cold)
        # a process that was ready long ago and was never seen is lost
        return max(ready - now, busy) if ready + cold > now else cold

    def _want(self, view: View, index: int, missing: int) -> None:
        """Models that will have to be fetched on a worker."""
        if missing:
            size, fetch = self._outline.weights(missing)
            view.fetching[index] += fetch * self._outline.write_back if size > view.free[index] else fetch
            view.resident[index] |= missing
            view.free[index] -= size

    def note(
        self, now: int, state: ServingState, plan: Plan, viewer: int, placed: Iterable[tuple[int, int, int]]
    ) -> None:
        """``viewer`` placed tasks: (task, function, worker)."""
        self._renew(now, state)
        for task, function, worker in placed:
            plan.placed[task], plan.by[task] = now, viewer
            if worker != viewer and state.push_interval:
                outline = self._outline
                recent = self._mine.setdefault(viewer, {})
                work, models = recent.get(worker, (0, 0))
                recent[worker] = work + outline.base[worker][function], models | outline.masks[function]

    def _renew(self, now: int, state: ServingState) -> None:
        if state.push_interval and now // state.push_interval != self._epoch:
            self._epoch = now // state.push_interval
            self._mine.clear()

    def counted(self, now: int, state: ServingState, task: int, viewer: int, here: int, plan: Plan) -> bool:
        """Whether the row of ``here``, as ``viewer`` has it, counts the task itself."""
        if here == viewer or not state.push_interval or plan.by[task] == viewer:
            return True
        return plan.placed[task] // state.push_interval < now // state.push_interval

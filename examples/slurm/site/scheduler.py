"""A small scheduler that imitates Slurm's, written on its own: what headway is compared with must not be headway.

The main scheduler looks at the queue whenever a job comes or goes, by tier and priority; a job that does not fit stops
all others of its partition and closes the partition's nodes for this time. Jobs that a limit holds are passed over.
The backfill scheduler plans starts for the first jobs of the queue every interval, and starts those that delay none of
the planned ones. Both preempt where QOSs say so; a victim is requeued and eligible again after some time.
"""

from bisect import insort
from collections import Counter
from heapq import heappop, heappush
from operator import attrgetter

from examples.slurm.site.jobs import Job
from examples.slurm.site.limits import Limits
from examples.slurm.site.plan import Plan, Resources, added, fits, size_of, tightest
from examples.slurm.site.priority import Priority
from examples.slurm.site.rules import Site

END, SUBMIT, ELIGIBLE, LEAVE, CALCULATE, BACKFILL = range(6)
QUEUED = attrgetter("key")


class Scheduler:
    """Plays the jobs of a site, and writes into each what became of it."""

    def __init__(self, site: Site, jobs: list[Job]) -> None:
        self._site = site
        self._jobs = {job.number: job for job in jobs}
        self._limits = Limits(site)
        self._priority = Priority(site)
        self._resources = Resources([(node.gpus, node.cpus, node.memory_gb) for node in site.nodes])
        self._queue: list[Job] = []
        self._running: dict[int, Job] = {}
        self._waiting: dict[int, list[Job]] = {}
        """By the job that others wait for."""
        self._tasks: Counter[int] = Counter()
        """Running tasks by array."""
        self._events: list[tuple[int, int, int, int]] = []
        self._left = len(jobs)
        self._backfilled = self._planned = 0
        self._fit: dict[tuple[object, ...], bool] = {}
        self.refused: list[Job] = []
        self.preempted = 0
        first = 0
        while first < len(jobs):  # an array is submitted as one
            last = first + 1
            while last < len(jobs) and jobs[first].array and jobs[last].array == jobs[first].array:
                last += 1
            heappush(self._events, (jobs[first].submit, SUBMIT, jobs[first].number, last - first))
            first = last

    def run(self) -> None:
        """Play until everything has ended."""
        heappush(self._events, (self._events[0][0], CALCULATE, 0, 0))
        while self._left:
            now = self._events[0][0]
            changed, backfills = False, False
            while self._events and self._events[0][0] == now:
                _, kind, number, detail = heappop(self._events)
                backfills |= kind == BACKFILL
                changed |= self._happened(now, kind, number, detail)
            if changed:
                self._fit.clear()
                self._main(now)
                self._ask_for_backfill(now)
            if backfills:
                self._backfill(now)

    # --- what happens -----------------------------------------------------------------------------------------

    def _happened(self, now: int, kind: int, number: int, detail: int) -> bool:
        """Apply an event; return whether somebody could start for it."""
        if kind == CALCULATE:
            self._calculate(now)
            return False
        if kind == BACKFILL:
            return False
        job = self._jobs[number]
        if kind == SUBMIT:
            return self._submit(now, [self._jobs[number + place] for place in range(detail)])
        if kind == ELIGIBLE:
            self._enqueue(now, job)
        elif kind == END:
            if len(job.earlier) != detail:
                return False  # it was preempted
            self._end(now, job)
        elif job.start < 0 and job.end < 0 and not job.earlier:
            self._leave(now, job, "CANCELLED by 1004")
        return True

    def _calculate(self, now: int) -> None:
        self._priority.calculate(now, self._running.values())
        for job in self._queue:
            self._rank(now, job)
        self._queue.sort(key=QUEUED)
        self._fit.clear()
        if self._queue:
            self._ask_for_backfill(now)
        heappush(self._events, (now + self._site.calc_period, CALCULATE, 0, 0))

    def _rank(self, now: int, job: Job) -> None:
        job.priority = self._priority.of(job, now)
        job.key = (-self._site.partitions[job.partition].tier, -float(int(job.priority)), job.number)

    def _submit(self, now: int, jobs: list[Job]) -> bool:
        if not self._limits.admits(jobs):
            self.refused += jobs
            for job in jobs:
                del self._jobs[job.number]
            self._left -= len(jobs)
            self._released(now, jobs[0], ok=False)
            return False
        for job in jobs:
            self._limits.submit(job)
            if job.patience:
                heappush(self._events, (now + job.patience, LEAVE, job.number, 0))
            before = self._jobs.get(job.after)
            if before is not None and before.end < 0:
                job.held = "Dependency"
                self._waiting.setdefault(job.after, []).append(job)
            else:
                self._enqueue(now, job)
        return True

    def _enqueue(self, now: int, job: Job) -> None:
        if job.end < 0:
            job.eligible = now if job.eligible < 0 else job.eligible
            self._rank(now, job)
            insort(self._queue, job, key=QUEUED)

    def _end(self, now: int, job: Job) -> None:
        self._stop(now, job)
        self._gone(now, job)

    def _leave(self, now: int, job: Job, state: str) -> None:
        """End a job that waits."""
        job.state = state
        self._queue = [other for other in self._queue if other is not job]
        self._gone(now, job)

    def _gone(self, now: int, job: Job) -> None:
        job.end = now
        self._limits.submit(job, -1)
        self._left -= 1
        self._released(now, job, ok=job.state == "COMPLETED")

    def _released(self, now: int, job: Job, ok: bool) -> None:
        """Let jobs go that waited for this one; those that wanted it to succeed are cancelled if it did not."""
        for later in self._waiting.pop(job.number, ()):
            if later.end >= 0:
                continue
            if later.after_ok and not ok:
                self._leave(now, later, "CANCELLED")
            else:
                self._enqueue(now, later)

    # --- starting and stopping --------------------------------------------------------------------------------

    def _start(self, now: int, job: Job, place: tuple[int, ...]) -> None:
        job.start, job.place = now, place
        self._queue.remove(job)
        self._running[job.number] = job
        self._resources.take(job, place, now + job.limit, self._site.qos[job.qos].requeues)
        self._limits.start(job)
        self._tasks[job.array] += 1
        heappush(self._events, (now + job.seconds, END, job.number, len(job.earlier)))
        self._fit.clear()

    def _stop(self, now: int, job: Job) -> None:
        del self._running[job.number]
        self._resources.give(job)
        self._limits.start(job, -1)
        self._tasks[job.array] -= 1
        self._priority.ended(job, now)

    def _preempt(self, now: int, job: Job) -> None:
        """Requeue a running job."""
        self._stop(now, job)
        job.earlier.append(job.attempt("PREEMPTED", now))
        job.eligible, job.start, job.place, job.held = now + self._site.requeue_delay, -1, (), "BeginTime"
        self.preempted += 1
        heappush(self._events, (job.eligible, ELIGIBLE, job.number, 0))

    # --- deciding ---------------------------------------------------------------------------------------------

    def _held(self, job: Job) -> str:
        """Return why a job may not start, whatever is free."""
        if job.throttle and self._tasks[job.array] >= job.throttle:
            return "JobArrayTaskLimit"
        return self._limits.reason(job)

    def _nodes(self, job: Job) -> tuple[int, ...]:
        return self._site.partitions[job.partition].nodes

    def _free(self, job: Job, closed: int = 0) -> tuple[int, ...]:
        """Return nodes that have room now."""
        size, free = size_of(job), self._resources.free
        able = [node for node in self._nodes(job) if not closed >> node & 1 and fits(free[node], size)]
        return tightest(able, job.nodes)

    def _victims(self, job: Job, closed: int = 0) -> tuple[tuple[int, ...], list[Job]]:
        """Return nodes that have room once some jobs are preempted, and these jobs, the oldest first."""
        if not self._site.qos[job.qos].preempts:
            return (), []
        size, place, victims = size_of(job), [], []
        for node in self._nodes(job):
            if closed >> node & 1:
                continue
            free, chosen = self._resources.free[node], []
            for held in sorted(self._resources.held[node], key=attrgetter("job")):
                if fits(free, size):
                    break
                if held.weak:
                    free = added(free, held.size)
                    chosen.append(self._jobs[held.job])
            if fits(free, size):
                place.append(node)
                victims += chosen
                if len(place) == job.nodes:
                    return tuple(place), list({victim.number: victim for victim in victims}.values())
        return (), []

    def _main(self, now: int) -> None:
        failed: set[str] = set()
        closed = 0
        for job in list(self._queue):
            if job.partition in failed:
                continue
            if reason := self._held(job):
                job.held = reason
                continue
            place, victims = self._free(job, closed), []
            if not place:
                place, victims = self._victims(job, closed)
            if not place:
                failed.add(job.partition)
                closed |= sum(1 << node for node in self._nodes(job))
                if len(failed) == len(self._site.partitions):
                    return
                continue
            for victim in victims:
                self._preempt(now, victim)
            self._start(now, job, place)

    def _ask_for_backfill(self, now: int) -> None:
        """Have the backfill scheduler run at its next turn, if it does not anyhow."""
        interval = self._site.backfill_interval
        turn = max(self._backfilled + interval, now - now % interval + interval)
        if self._planned < turn:
            self._planned = turn
            heappush(self._events, (turn, BACKFILL, 0, 0))

    def _could_start(self, job: Job) -> bool:
        """Return whether a job would have room now if nothing were planned; the same for all that are like it."""
        like = (job.partition, job.nodes, size_of(job), job.qos)
        if like not in self._fit:
            self._fit[like] = bool(self._free(job) or self._victims(job)[0])
        return self._fit[like]

    def _backfill(self, now: int) -> None:
        self._backfilled = now
        looked_at = self._queue[: self._site.backfill_depth]
        last = -1
        for at, job in enumerate(looked_at):
            if reason := self._held(job):
                job.held = reason
            elif self._could_start(job):
                last = at
        if last < 0:
            return
        plan = Plan(now, len(self._site.nodes), self._resources)
        for job in looked_at[: last + 1]:
            if self._held(job):
                continue
            at, place = plan.find(job, self._nodes(job), preempts=False)
            victims: list[Job] = []
            if at > now and self._site.qos[job.qos].preempts:
                at, place = plan.find(job, self._nodes(job), preempts=True)
                if at == now:
                    everywhere = (1 << len(self._site.nodes)) - 1
                    place, victims = self._victims(job, everywhere & ~sum(1 << node for node in place))
            if at == now:
                touched = (*place, *(node for victim in victims for node in victim.place))
                for victim in victims:
                    self._preempt(now, victim)
                self._start(now, job, place)
                plan.changed(touched)
            elif place:
                plan.reserve(at, at + job.limit, place)

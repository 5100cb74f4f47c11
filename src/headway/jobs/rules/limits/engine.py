"""Hold jobs back that a limit stops, and let them go when it does no longer.

Waiting jobs to which the same limits apply, and which would add the same to each, are one class: what holds one back
holds all. Their lanes in the queue are set aside while that is so. A policy then sees only jobs that may start, and a
job that is held back neither blocks others nor has a reservation. A start or a stop costs what it changes: of each
counter only those classes are looked at for which it has become too full, or has room again.
"""

from collections.abc import Hashable, Iterable, Iterator
from typing import TypeAlias

from headway.jobs.model.cluster import Cluster
from headway.jobs.model.job import Job
from headway.jobs.model.resources import Placement
from headway.jobs.rules.limits.accrual import Ages
from headway.jobs.rules.limits.choice import array_of, binding, choosing, counted_for
from headway.jobs.rules.limits.classes import LimitClass
from headway.jobs.rules.limits.counters import (
    NEVER,
    Ageing,
    Counter,
    Submitted,
    Used,
    added,
    counter_at,
    throttled,
    time_limit,
    weight,
)
from headway.jobs.rules.limits.limit import LimitRule
from headway.jobs.rules.limits.limit_times import LimitTimes
from headway.jobs.state.jobstate import JobState, Status
from headway.jobs.state.queue import Queue

_OUTSIDE = -1
"""Stands for a class in the lanes of jobs that are not in the system yet."""


_Mark: TypeAlias = tuple[int, tuple[str, ...]]
"""The position of a rule, and whose counter of it."""


class Limits:
    """All limits of a cluster: which apply to whom, what is held, who is held back."""

    def __init__(self, cluster: Cluster, now: int = 0) -> None:
        self.now = now
        self._rules = cluster.limits
        self._times = LimitTimes(cluster.limits)
        self._parents = {tenant.name: tenant.parent for tenant in cluster.tenants}
        self._largest = max(1, *(node.gpus for node in cluster.nodes))
        self._rules_of: dict[tuple[str, ...], list[tuple[int, LimitRule, bool]]] = {}
        self._by_array = any("array" in (*dict(rule.where), *rule.per) for rule in cluster.limits)
        self.counters: dict[_Mark, Counter] = {}
        self._classes: dict[tuple[tuple[_Mark, int, int, bool], ...], LimitClass] = {}
        self._ends: dict[int, int] = {}
        """When the time limit of each job that has started ends it."""
        self.timed: dict[Counter, None] = {}
        """Counters that change with time, and under which jobs wait or run."""
        self.outside: dict[int, JobState] = {}
        """Jobs beyond a limit on how many may be in the system."""
        self._ages = Ages()

    # --- which limits apply -----------------------------------------------------------------------------------

    def class_of(self, job: Job) -> LimitClass | None:
        """Return the class of a job; None where no limit concerns it."""
        marks = []
        for index, rule, binds in self._choosing(job):
            amount = added(rule, job, self._largest)
            if not amount:
                continue
            if rule.is_alone and ((amount <= rule.bound(rule.most) and not rule.changes) or not binds):
                continue
            held = weight(rule, job, self._largest)
            marks.append(((index, counted_for(rule, job)), amount, held, binds))
        if job.terms is not None and job.terms.throttle:
            marks.append((throttled(job.terms), 1, 1, True))
        if not marks:
            return None
        key = tuple(marks)
        found = self._classes.get(key)
        if found is None:
            found = self._classes[key] = self._class(key)
        return found

    def _class(self, key: tuple[tuple[_Mark, int, int, bool], ...]) -> LimitClass:
        """Make the class of jobs with these marks."""
        counted = [(self._counter(mark), amount, held, binds) for mark, amount, held, binds in key]
        ages = tuple((counter, binds) for counter, _, _, binds in counted if isinstance(counter, Ageing))
        rest = [each for each in counted if not isinstance(each[0], Ageing)]
        bounds = tuple((counter, amount) for counter, amount, _, binds in rest if binds)
        weights = tuple(held for _, _, held, binds in rest if binds)
        also = tuple((counter, amount, held) for counter, amount, held, binds in rest if not binds)
        return LimitClass(self, len(self._classes), bounds, weights, also, ages)

    def _choosing(self, job: Job) -> list[tuple[int, LimitRule, bool]]:
        """Return the rules that choose a job, with their positions, and whether each holds or is set aside."""
        key = (job.tenant, job.user, job.qos, job.partition, array_of(job) if self._by_array else "")
        found = self._rules_of.get(key)
        if found is None:
            chosen = choosing(self._rules, job, self._parents)
            holds = binding([rule for _, rule in chosen], job)
            found = self._rules_of[key] = [(*each, binds) for each, binds in zip(chosen, holds, strict=True)]
        return found

    def _counter(self, mark: _Mark) -> Counter:
        counter = self.counters.get(mark)
        if counter is None:
            index, of = mark
            counter = self.counters[mark] = counter_at(self._rules, index, of, self.now)
        return counter

    def refusing(self, js: JobState) -> Counter | None:
        """Return the limit for which a job may not start now; None where none stops it."""
        if js.limits is None:
            return None
        if js.id in self.outside:
            return next((counter for counter in js.limits.submitted if counter.held >= counter.most), None)
        return js.limits.refusing(self.now)

    def all_refusing(self, js: JobState) -> list[Counter]:
        """Return all limits for which a job may not start now."""
        if js.limits is None:
            return []
        outside = [each for each in js.limits.submitted if js.id in self.outside and each.held >= each.most]
        over = [counter for counter, amount in js.limits.bounds if counter.level(self.now) + amount > counter.most]
        return [*outside, *(counter for counter in over if counter not in outside)]

    def take_over(self, now: int, queue: Queue, jobs: Iterable[JobState], old: "Limits | None") -> None:
        """Enter the jobs of a run that goes on under other limits; what was used under a rule stays used."""
        self.now = now
        for _ in self._times.due(now):
            """Counters begin with what is in force."""
        if old is not None:
            self._ends = old._ends
            places = {(rule.address, rule.resource): index for index, rule in enumerate(self._rules)}
            for before in old.counters.values():
                index = places.get((before.rule.address, before.rule.resource))
                if isinstance(before, Used) and index is not None and self._rules[index].per == before.rule.per:
                    after = self._counter((index, before.of))
                    assert isinstance(after, Used)
                    after.carry(before, now)
        for js in jobs:
            self.arrive(js)
        for js in jobs:
            if js.status is Status.RUNNING and js.limits is not None:
                self._ends.setdefault(js.id, js.since + time_limit(js.job))
                self.take(now, queue, js, js.placement, anew=False)
        self._ages.take_over(now, jobs)

    # --- waiting ----------------------------------------------------------------------------------------------

    def arrive(self, js: JobState) -> None:
        """Find the limits of a job that has arrived; it comes into the system if there is room."""
        js.limits = found = self.class_of(js.job)
        if found is not None and found.alive:
            self.outside[js.id] = js
            for counter in found.submitted:
                counter.outside[js.id] = None
            self._come_in(js)

    def _come_in(self, js: JobState) -> bool:
        assert js.limits is not None
        counters = js.limits.submitted
        if any(counter.held >= counter.most for counter in counters):
            return False
        for counter in js.limits.alive:
            counter.held += 1
        for counter in counters:
            del counter.outside[js.id]
        del self.outside[js.id]
        return True

    def leave(self, queue: Queue, js: JobState) -> None:
        """Let a job go for good, and others that were kept outside come in."""
        self._ends.pop(js.id, None)
        found = js.limits
        if found is not None and found.ages:
            self._ages.leave(self.now, js)
        if found is None or not found.alive:
            return
        if self.outside.pop(js.id, None) is not None:
            for counter in found.submitted:
                del counter.outside[js.id]
            return
        for counter in found.alive:
            counter.held -= 1
        for counter in found.alive:
            self._let_in(queue, counter)

    def _let_in(self, queue: Queue, counter: Submitted) -> None:
        """Let jobs come into the system for which there is room now, in the order in which they came."""
        for job in list(counter.outside):
            if counter.held >= counter.most:
                break
            other = self.outside[job]
            if self._come_in(other):
                queue.remove(other.lane, (other.key, job))
                assert isinstance(other.lane, tuple)
                self.enqueue(queue, other, other.lane[0])

    def enqueue(self, queue: Queue, js: JobState, lane: Hashable) -> None:
        """Let a job with limits wait, in a lane of its class."""
        found = js.limits
        assert found is not None
        if js.id in self.outside:
            js.lane = (lane, _OUTSIDE)
            queue.add_aside(js.lane, (js.key, js.id))
            return
        if found.ages:
            self._ages.enter(self.now, js)
        js.lane = name = (lane, found.number)
        if not found.names:
            found.held_by = found.refusing(self.now)
            self._attach(found)
        found.names[name] = found.names.get(name, 0) + 1
        if found.held_by is None:
            queue.add(name, (js.key, js.id))
        else:
            queue.add_aside(name, (js.key, js.id))

    def dequeue(self, queue: Queue, js: JobState) -> None:
        """Take a job with limits out of the queue."""
        found = js.limits
        assert found is not None
        queue.remove(js.lane, (js.key, js.id))
        if js.id in self.outside:
            return
        found.names[js.lane] -= 1
        if not found.names[js.lane]:
            del found.names[js.lane]
            if not found.names:
                self._detach(found)

    def name_first(self) -> None:
        """Let each class that is held back be so by the first limit that would, whichever has done it."""
        for found in self._classes.values():
            if found.held_by is not None and found.names and (first := found.refusing(self.now)) is not found.held_by:
                self._detach(found)
                found.held_by = first
                self._attach(found)

    def _attach(self, found: LimitClass) -> None:
        for counter, amount in found.bounds:
            if counter.timed:
                self.timed[counter] = None
            if found.held_by is None:
                counter.open.setdefault(amount, {})[found] = None
            elif counter is found.held_by:
                counter.shut.setdefault(amount, {})[found] = None

    def _detach(self, found: LimitClass) -> None:
        for counter, amount in found.bounds:
            classes = counter.open if found.held_by is None else counter.shut
            if found.held_by is None or counter is found.held_by:
                del classes[amount][found]
                if not classes[amount]:
                    del classes[amount]
            if counter.timed and not (counter.open or counter.shut):
                self.timed.pop(counter, None)

    # --- running ----------------------------------------------------------------------------------------------

    def take(self, now: int, queue: Queue, js: JobState, placement: Placement, *, anew: bool) -> None:
        """Enter a start, or with ``anew`` false that a job goes on elsewhere; hold back whom that leaves no room."""
        found = js.limits
        assert found is not None
        self.now = now
        if anew:
            self._ends[js.id] = now + time_limit(js.job)
            if found.ages:
                self._ages.leave(now, js)
        end = self._ends[js.id]
        for nodes in found.nodes:
            nodes.enter(placement, +1)
        for (counter, amount), each in zip(found.bounds, found.weights, strict=True):
            counter.take(now, js.job, amount, each, end)
        for counter, amount, each in found.also:
            counter.take(now, js.job, amount, each, end)
            self._fill(queue, counter)
        for counter, _ in found.bounds:
            self._fill(queue, counter)

    def give(self, now: int, queue: Queue, js: JobState) -> None:
        """Enter that a job stopped; let those go that now have room."""
        found = js.limits
        assert found is not None
        self.now = now
        for nodes in found.nodes:
            nodes.enter(js.placement, -1)
        for (counter, amount), each in zip(found.bounds, found.weights, strict=True):
            counter.give(now, js.job, amount, each)
        for counter, amount, each in found.also:
            counter.give(now, js.job, amount, each)
            self._empty(queue, counter)
        for counter, _ in found.bounds:
            self._empty(queue, counter)

    def plan(self, js: JobState, placement: Placement, sign: int) -> None:
        """Enter a start (+1) or a stop (-1) in a draft: counters change, nobody is held back or let go."""
        found = js.limits
        assert found is not None
        for nodes in found.nodes:
            nodes.enter(placement, sign)
        running = js.status is Status.RUNNING
        until = self._ends[js.id] if running else self.now + time_limit(js.job)
        for (counter, amount), each in zip(found.bounds, found.weights, strict=True):
            counter.plan(self.now, js.job, amount, each, until, sign)
        for counter, amount, each in found.also:
            counter.plan(self.now, js.job, amount, each, until, sign)

    def advance(self, now: int, queue: Queue) -> bool:
        """Look at the counters that change with time; return whether anybody was held back or let go."""
        if now == self.now:
            return False
        self.now = now
        changed = False
        for index, most in self._times.due(now):
            changed = self._set(queue, index, most) or changed
        for counter in list(self.timed):
            changed = self._fill(queue, counter) or changed
            changed = self._empty(queue, counter) or changed
        return changed

    def _set(self, queue: Queue, index: int, most: int) -> bool:
        """Make another amount the most under a rule; return whether anybody was held back or let go."""
        changed = False
        for (rule, _), counter in self.counters.items():
            if rule == index:
                counter.most = counter.rule.bound(most)
                if isinstance(counter, Ageing):
                    self._ages.refill(self.now, counter)
                changed = self._fill(queue, counter) or changed
                changed = self._empty(queue, counter) or changed
                if isinstance(counter, Submitted) and counter.outside:
                    self._let_in(queue, counter)
                    changed = True
        return changed

    def holders(self, counter: Counter, running: Iterable[JobState]) -> dict[JobState, int]:
        """Return the running jobs that count under a limit, those that hold most first, and what each holds of it."""
        found: dict[JobState, int] = {}
        for js in running:
            for each, amount in js.limits.adding() if js.limits is not None else ():
                if each is counter:
                    found[js] = counter.share_of(js.job, amount, self.now)
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0].id)))

    def waiting_behind(self) -> Iterator[tuple[Counter, int]]:
        """Yield each limit that holds jobs back, and how many; of several that would, the first."""
        for found in self._classes.values():
            if found.names and found.held_by is not None:
                yield found.held_by, sum(found.names.values())
        for js in self.outside.values():
            if (counter := self.refusing(js)) is not None:
                yield counter, 1

    @property
    def moves(self) -> bool:
        """Return whether time alone can hold somebody back, or let him go."""
        return any(rule.is_used or rule.is_promised or rule.changes for rule in self._rules)

    def opens(self) -> int:
        """Return when somebody who is held back fits by time alone; ``NEVER`` where nobody does."""
        times = [counter.opens(self.now, amount) for counter in self.timed for amount in counter.shut]
        if (change := self._times.next()) < NEVER and next(self.waiting_behind(), None) is not None:
            times.append(change)
        return min(times, default=NEVER)

    def closes(self) -> int:
        """Return when somebody who may start is held back by time alone; ``NEVER`` where nobody is."""
        return min([each.closes(self.now, amount) for each in self.timed for amount in each.open], default=NEVER)

    def _fill(self, queue: Queue, counter: Counter) -> bool:
        if not counter.open:
            return False
        room = counter.most - counter.level(self.now)
        over = [found for amount, classes in counter.open.items() if amount > room for found in classes]
        for found in over:
            self._detach(found)
            found.held_by = counter
            self._attach(found)
            for name in found.names:
                queue.set_aside(name)
        return bool(over)

    def _empty(self, queue: Queue, counter: Counter) -> bool:
        if not counter.shut:
            return False
        room, changed = counter.most - counter.level(self.now), False
        for found in [found for amount, classes in counter.shut.items() if amount <= room for found in classes]:
            self._detach(found)
            found.held_by = found.refusing(self.now)
            self._attach(found)
            if found.held_by is None:
                changed = True
                for name in found.names:
                    queue.bring_back(name)
        return changed

"""An engine without processes: on a virtual clock programs end when the state of their run expects it."""

from collections.abc import Sequence

from headway.core.clock import VirtualClock
from headway.core.scheduler import Scheduler
from headway.core.tape import Tape, TapeWriter
from headway.jobs.live.cluster import LiveCluster
from headway.jobs.live.engine import SAVED, Ended, Order
from headway.jobs.model.actions import Action
from headway.jobs.model.events import Event
from headway.jobs.model.job import Job, Outcome
from headway.jobs.model.periodic_checkpoints import duration
from headway.jobs.policies.registry import build
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.state import TrainingState
from headway.units import REFERENCE_SPEED_PPM
from tests.drive import MOST_STEPS, RunawayError, World, fresh_state


class StubEngine:
    """Programs that end when their work is done, and save it at once when they are asked to end."""

    def __init__(self, state: TrainingState, clock: VirtualClock) -> None:
        self._state, self._clock = state, clock
        self.running: dict[int, Order] = {}
        self.launched: list[int] = []
        self._stopped: list[int] = []
        self.twice: list[int] = []
        """Jobs that were started while they ran."""

    def launch(self, order: Order) -> None:
        """Start a program."""
        self.twice += [each.job for each in self.running.values() if each.job == order.job]
        self.running[order.lease] = order
        self.launched.append(order.lease)

    def adopt(self, order: Order) -> bool:
        """Nothing was begun before."""
        return False

    def stop(self, lease: int, *, at_once: bool = False) -> None:
        """Let a program save its work."""
        self._stopped.append(lease)

    def regrant(self, order: Order) -> None:
        """Remember what it holds."""
        self.running[order.lease] = order

    def poll(self) -> list[Ended]:
        """Return what has ended by now."""
        ended = [Ended(lease, SAVED) for lease in self._stopped]
        for lease in list(self.running):
            js = self._of(lease)
            if js is not None and end(js) <= self._clock.now and lease not in self._stopped:
                ended.append(Ended(lease, 1 if js.job.outcome is Outcome.FAILS else 0))
        self._stopped = []
        for each in ended:
            self.running.pop(each.lease, None)
        return ended

    def _of(self, lease: int) -> JobState | None:
        js = self._state.running.get(self.running[lease].job)
        return js if js is not None and js.lease == lease else None

    def due(self) -> int | None:
        """Return when the next program ends; none does in the instant in which its speed changed."""
        ends = [max(end(js), self._clock.now + 1) for lease in self.running if (js := self._of(lease)) is not None]
        return min(ends, default=None)

    def progress(self, lease: int) -> float | None:
        """Say nothing."""
        return None

    def forget(self, lease: int) -> None:
        """Do nothing."""


def end(js: JobState) -> int:
    """Return when a job ends that runs on as it does."""
    left = max(1, js.job.ends_after - js.done)
    if js.every:
        return js.base + duration(left, js.done, js.speed, js.every, js.job.checkpoint)
    return js.base + -(-left * REFERENCE_SPEED_PPM // js.speed)


class Played:
    """A live run on a virtual clock."""

    def __init__(self, policy: str, world: World) -> None:
        self.clock = VirtualClock()
        chosen = build(policy)
        self.state = fresh_state(chosen, world)
        self.engine = StubEngine(self.state, self.clock)
        self.cluster = LiveCluster(self.state, self.clock, self.engine)
        self._writer = TapeWriter()
        self.scheduler = Scheduler[Event, Action](self.state, chosen, self.cluster, self._writer, exact=False)
        self._coming: Sequence[Job] = world.jobs

    def run(self) -> Tape:
        """Go from instant to instant until nothing is left to come."""
        for _ in range(MOST_STEPS):
            times = [self._coming[0].submit] if self._coming else []
            times += [time for time in (self.engine.due(), self.cluster.due) if time is not None]
            if not times or (not self._coming and not self.state.jobs) or self.state.over():
                return self._writer.close()
            self.clock.now = max(self.clock.now, min(times))
            while self._coming and self._coming[0].submit == self.clock.now:
                self.cluster.arrive(self._coming[0])
                self._coming = self._coming[1:]
            self.cluster.collect()
            self.scheduler.drain()
            self.cluster.carry_out()
            self.cluster.collect()
        raise RunawayError(f"{MOST_STEPS} steps, and no end")

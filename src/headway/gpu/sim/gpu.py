"""Model of a GPU in virtual time: streams, block slots, waves and time slices.

docs/reference/gpu-model.md says what is modelled and what is not.

Work is integer nanoseconds at full speed times a million, speed an integer in parts per million, an end is rounded up:
each kernel gets exactly its work. A GPU schedules its own future events by ``alarm(time, token)``; its executor calls
``ring(time, token)`` then.
"""

from collections import deque
from collections.abc import Callable, Sequence

from headway.gpu.model.device import MILLION, Device
from headway.gpu.model.events import KernelFinished, KernelHeldUp
from headway.gpu.model.kernel import Kernel
from headway.gpu.sim.shapes import Shape, shape_of

Alarm = Callable[[int, "Running | int"], None]


Report = KernelFinished | KernelHeldUp


class Running:
    """One kernel, from its launch to its end."""

    __slots__ = (
        *("client", "launch", "kernel", "duration", "width", "tail", "waves", "wave", "graph", "stays"),
        *("late", "spread", "left", "speed", "room"),
        *("held", "since", "ready", "started", "rank", "ends", "armed", "retires", "by", "queued", "origin", "parts"),
    )

    def __init__(self, client: int, launch: int, kernel: int, duration: int, shape: Shape, rank: int) -> None:
        self.client, self.launch, self.kernel = client, launch, kernel
        self.duration = duration
        self.width, self.tail, self.waves, self.graph, self.stays, self.spread = shape
        self.left = duration * MILLION
        self.wave = max(1, self.left // self.waves)
        self.speed = 0
        self.held = 0
        """The share of the GPU that its resident blocks hold."""
        self.since = 0
        self.ready = 0
        self.started = -1
        self.late = False
        """Between two kernels of a graph: whoever waits for slots comes first, whatever its priority."""
        self.room = MILLION
        """Speed factor where it started on fewer SMs than its blocks use alone."""
        self.rank = rank
        """Order of service: the client's priority where the GPU uses priorities, else 0 for all."""
        self.ends = -1
        """When it will have ended at its present speed; alarms at other times are stale."""
        self.armed = -1
        self.retires = -1
        self.by: Running | None = None
        self.queued = True
        """Whether it still waits for an earlier kernel of its stream."""
        self.origin = self
        self.parts = 1
        """Of a kernel whose blocks started at different times: its first part, and how many parts are left."""

    def split(self, width: int) -> "Running":
        """Keep ``width`` of it, and return the rest as a separate part that has yet to start."""
        late, tail = self.width - width, self.tail * width // self.width
        spread = self.spread * width // self.width
        shape = Shape(late, max(1, self.tail - tail), self.waves, False, self.stays, self.spread - spread)
        rest = Running(self.client, self.launch, self.kernel, self.duration, shape, self.rank)
        self.width, self.tail, self.spread = width, max(1, tail), spread
        rest.origin, rest.queued = self.origin, False
        rest.ready, rest.since = self.ready, self.since
        self.origin.parts += 1
        return rest


class Streams:
    """Base of both GPU models: one stream for each client, whose kernels run in order."""

    def __init__(
        self, device: Device, kernels: Sequence[Sequence[Kernel]], alarm: Alarm, priorities: Sequence[int] | None = None
    ) -> None:
        """Make empty streams. ``priorities``: of the clients, where the GPU uses them."""
        self.device = device
        self.streams: list[deque[Running]] = [deque() for _ in kernels]
        self.reports: list[Report] = []
        self._ended = [-device.follow] * len(kernels)
        """When the last kernel of each stream ended."""
        self._alarm = alarm
        self._ranks = list(priorities) if priorities is not None else [0] * len(kernels)
        self._shapes = [[shape_of(device, kernel) for kernel in program] for program in kernels]

    def submit(self, now: int, client: int, launch: int, kernel: int, duration: int) -> None:
        """Append a launch to its stream."""
        one = Running(client, launch, kernel, duration, self._shapes[client][kernel], self._ranks[client])
        one.ready = max(now + self.device.latency, self._ended[client] + self.device.follow)
        stream = self.streams[client]
        stream.append(one)
        if len(stream) == 1:
            self._alarm(one.ready, one)

    def _leave(self, now: int, one: Running) -> None:
        """Remove a kernel that has ended; the next one of its stream can start soon."""
        stream = self.streams[one.client]
        stream.popleft()
        one.ends, one.origin = -1, _NOBODY  # a reference to itself would wait for the garbage collector
        self._ended[one.client] = now
        self.reports.append(KernelFinished(one.client, one.launch, one.started))
        if stream:
            following = stream[0]
            following.ready = max(following.ready, now + self.device.follow)
            self._alarm(following.ready, following)

    def _began(self, now: int, one: Running) -> None:
        """Note that the first blocks of a kernel are on the GPU; report its delay."""
        one.started = now
        if now > one.ready and one.by is not None:
            held = KernelHeldUp(one.client, one.launch, one.by.client, one.by.kernel, now - one.ready)
            self.reports.append(held)
        one.by = None  # else each kernel would keep all earlier ones alive


class Shared(Streams):
    """GPU under MPS: kernels of several clients hold block slots at the same time."""

    def __init__(
        self, device: Device, kernels: Sequence[Sequence[Kernel]], alarm: Alarm, priorities: Sequence[int] | None = None
    ) -> None:
        super().__init__(device, kernels, alarm, priorities)
        self.running: list[Running] = []
        """Kernels on the GPU or waiting for slots, in order of service."""

    def ring(self, now: int, token: "Running | int") -> None:
        """Handle an alarm: a kernel can start, has ended, or a wave of its blocks retires."""
        assert isinstance(token, Running)
        if token.queued and token.ready == now:
            self._catch_up(now)
            token.queued = False
            if not self.running and token.width <= MILLION:
                self._alone(now, token)
                return
            running = self.running
            if running:
                widest = max(running, key=_held)
                token.by = widest if widest.held else None
            token.since = now
            running.append(token)
            if len(running) > 1:
                running.sort(key=_precedence)
        elif token.ends == now:
            self._catch_up(now)
            self.running.remove(token)
            token.ends = -1
            token.origin.parts -= 1
            if not token.origin.parts:
                self._leave(now, token.origin)
            if not self.running:
                return
        elif token.retires == now:
            self._catch_up(now)
            self._retire(token)
        else:  # a stale alarm
            if token.armed == now:
                self._arm(token)
            return
        self._settle(now)

    def _alone(self, now: int, one: Running) -> None:
        """Start a kernel on an idle GPU: it holds all slots that it can use."""
        self.running.append(one)
        one.since = one.started = now
        one.held, one.speed = one.width, MILLION
        one.ends = now + one.duration
        self._arm(one)
        self._began(now, one)

    def _arm(self, one: Running) -> None:
        """Set an alarm for its end. One that comes too early is set again then: most ends move to a later time."""
        one.armed = one.ends
        if one.ends >= 0:
            self._alarm(one.ends, one)

    def _catch_up(self, now: int) -> None:
        for one in self.running:
            left = one.left - one.speed * (now - one.since)
            one.left = left = left if left > 0 else 0  # its end is rounded up
            one.since = now
            if one.tail < one.width and left <= one.wave:  # its last wave, and that is not full
                one.width = one.tail
                one.held = min(one.held, one.tail)

    def _retire(self, one: Running) -> None:
        """End a wave: its slots go to kernels that are served before it, and those that its last wave lacks to any."""
        wanted = sum(other.width - other.held for other in self.running if _fits(other, one)) if not one.stays else 0
        one.held -= min(one.held, wanted)
        one.retires = -1
        if one.graph and wanted:
            one.ready = one.since  # it queues behind kernels that became ready meanwhile
            one.late = True
            self.running.sort(key=_precedence)

    def _settle(self, now: int) -> None:
        """Give free slots to kernels in order of service; then compute the speed and the end of each."""
        running = self.running
        if len(running) == 1 and running[0].held == running[0].width and running[0].speed == MILLION:
            return
        free, parted = MILLION, False
        for one in running:
            free -= one.held
            parted = parted or one.origin.parts > 1
        parts = []
        for one in running:
            if free and one.held < one.width:
                taken = min(free, one.width - one.held)
                if taken < one.width and (one.waves == 1 or one.stays) and one.started < 0:
                    parts.append(one.split(taken))  # blocks of a single wave: the late ones end later
                one.held += taken
                free -= taken
                if one.started < 0:
                    one.started = now
                    self._crowd(one)
                    if one.origin is one:
                        self._began(now, one)
        if running[-1].late:  # others had their turn
            running[-1].late = False
            running.sort(key=_precedence)
        if parts:
            running += parts
            running.sort(key=_precedence)
        total = MILLION - free
        shares: dict[Running, int] = {}  # of those in parts: what all parts hold
        if parted or parts:
            for one in running:
                shares[one.origin] = shares.get(one.origin, 0) + one.held
        for one in running:
            others = total - (shares[one.origin] if shares else one.held)
            if not one.held:
                speed = 0
            elif others or one.held < one.width or one.room < MILLION:
                speed = self._speed(one, others)
            else:
                speed = MILLION
            if speed != one.speed or one.ends < 0:
                one.speed = speed
                one.ends = now + -(-one.left // speed) if speed else -1
                one.retires = -1
                if speed and not -1 < one.armed <= one.ends:
                    self._arm(one)
        if free == 0:
            self._yield(now)

    def _crowd(self, one: Running) -> None:
        """Set the speed factor of a kernel that starts beside persistent blocks: it has fewer SMs for its blocks."""
        if one.waves > 1:
            return
        stay = sum(other.held for other in self.running if other.stays)
        if one.spread > MILLION - stay > 0:
            one.room = MILLION * (MILLION - stay) // one.spread

    def _speed(self, one: Running, others: int) -> int:
        """Return the speed of a kernel, from the slots that it has and those that others hold."""
        got = speed = MILLION * one.held // one.width
        beside = others * self.device.overlap_ppm // MILLION
        if beside:
            speed = got * MILLION // (MILLION - one.width * (MILLION - got) // MILLION + beside)
        return max(1, speed * one.room // MILLION)

    def _yield(self, now: int) -> None:
        """Schedule ends of waves for kernels that lack slots: of any wave where they come first, else of the last."""
        running = self.running
        lacking = [one for one in running if one.held < one.width]
        if not lacking:
            return
        for one in running:
            if one.waves > 1 and one.held and one.retires < 0:
                done = one.duration * MILLION - one.left
                boundary = (done // one.wave + 1) * one.wave
                if one.stays or not any(_fits(other, one) for other in lacking):
                    boundary = (one.waves - 1) * one.wave
                    if one.tail == one.width or boundary <= done:
                        continue
                at = now + -(-(boundary - done) // one.speed)
                if at < one.ends:
                    one.retires = at
                    self._alarm(at, one)


class Sliced(Streams):
    """GPU with time slices, the driver's default: one client at a time, each for a slice while others have work."""

    def __init__(
        self, device: Device, kernels: Sequence[Sequence[Kernel]], alarm: Alarm, priorities: Sequence[int] | None = None
    ) -> None:
        super().__init__(device, kernels, alarm, None)
        self.owner = -1
        self.granted = 0
        self._switched = -1
        """When the present switch will be over; -1: none."""

    def ring(self, now: int, token: "Running | int") -> None:
        """Handle an alarm: a kernel can start or has ended, a slice or a switch is over."""
        if isinstance(token, Running):
            if token.ends == now:
                self._leave(now, token)
            elif token.ready != now or token.started >= 0:
                return  # a stale alarm
        elif self._switched == now:
            self._switched = -1
        self._go_on(now)

    def submit(self, now: int, client: int, launch: int, kernel: int, duration: int) -> None:
        """Append a launch to its stream; an idle GPU is given to its client."""
        super().submit(now, client, launch, kernel, duration)
        if self.owner < 0:
            self.owner, self.granted = client, now

    def _go_on(self, now: int) -> None:
        """Run the owner's next kernel, or switch to the next client with work."""
        if self._switched >= 0:
            return
        following = self._next(now)
        if following is not None:
            own = self.streams[self.owner]
            over = now >= self.granted + self.device.slice
            if over and own and own[0].ends == now:
                return  # it ends at this instant: its own alarm comes next
            if over or not own:
                self._switch(now, following)
                return
            self._alarm(self.granted + self.device.slice, 0)
        own = self.streams[self.owner]
        if own and own[0].ready <= now and own[0].ends < 0:
            self._run(now, own[0])

    def _next(self, now: int) -> int | None:
        """Return the next client in turn, after the owner, with a kernel that can run; None: none."""
        count = len(self.streams)
        for step in range(1, count):
            stream = self.streams[(self.owner + step) % count]
            if stream and stream[0].ready <= now:
                return (self.owner + step) % count
        return None

    def _switch(self, now: int, following: int) -> None:
        own = self.streams[self.owner]
        if own and own[0].ends >= 0:  # suspended in the middle: it goes on where it was
            own[0].left -= MILLION * (now - own[0].since)
            own[0].ends = -1
        self.owner = following
        self._switched = self.granted = now + self.device.switch
        if self.device.switch:
            self._alarm(self._switched, 0)
        else:
            self._switched = -1
            self._go_on(now)

    def _run(self, now: int, one: Running) -> None:
        one.since = now
        one.ends = now + -(-one.left // MILLION)
        self._alarm(one.ends, one)
        if one.started < 0:
            self._began(now, one)


_NOBODY = Running(-1, -1, -1, 0, Shape(1, 1, 1), 0)
"""The origin of kernels that have ended."""


def _fits(one: Running, other: Running) -> bool:
    """Return whether a kernel may take the slots of a wave of another one."""
    return one is not other and (one.rank < other.rank or other.graph)


def _held(one: Running) -> int:
    return one.held


def _precedence(one: Running) -> tuple[bool, int, int, int]:
    return one.late, one.rank, one.ready, one.client

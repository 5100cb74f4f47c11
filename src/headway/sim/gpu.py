"""The inside of a GPU, in virtual time: streams, block slots, waves and slices.

What is modelled, and what is not, is in docs/reference/gpu-model.md.

Work is integer nanoseconds at full speed times a million, speed an integer in parts per million, an end is rounded up:
each kernel gets exactly the work it has. A GPU asks for its own future by ``alarms``: (time, what, token) that its
executor brings back through ``ring``.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from headway.kernels.device import MILLION, Device
from headway.kernels.kernel import Kernel
from headway.sim.shapes import Shape, shape_of

Alarm = Callable[[int, "Running | int"], None]


class Finished(NamedTuple):
    """What a GPU reports: a kernel ended."""

    client: int
    launch: int
    started: int


class HeldUp(NamedTuple):
    """What a GPU reports: a kernel starts later than it could have."""

    client: int
    launch: int
    by: int
    kernel: int
    delay: int


Report = Finished | HeldUp


class Running:
    """One kernel from the moment it is launched until it ends."""

    __slots__ = (
        *("client", "launch", "kernel", "duration", "width", "tail", "waves", "wave", "graph", "stays"),
        *("fine", "spread", "left", "speed", "room"),
        *("held", "since", "ready", "started", "rank", "ends", "armed", "retires", "by", "queued", "origin", "parts"),
    )

    def __init__(self, client: int, launch: int, kernel: int, duration: int, shape: Shape, rank: int) -> None:
        self.client, self.launch, self.kernel = client, launch, kernel
        self.duration = duration
        self.width, self.tail, self.waves, self.graph, self.stays, self.fine, self.spread = shape
        self.left = duration * MILLION
        self.wave = max(1, self.left // self.waves)
        self.speed = 0
        self.held = 0
        """The share of the GPU that its resident blocks hold."""
        self.since = 0
        self.ready = 0
        self.started = -1
        self.room = MILLION
        """What is left of its speed where it started on fewer SMs than its blocks are spread over alone."""
        self.rank = rank
        """Who is served first: the client's priority where the GPU heeds it, else 0 for all."""
        self.ends = -1
        """The alarm that counts: when it will have ended at its present speed."""
        self.armed = -1
        self.retires = -1
        self.by: Running | None = None
        self.queued = True
        """Whether it has not been its stream's turn yet."""
        self.origin = self
        self.parts = 1
        """Of a kernel whose blocks came onto the GPU at different times: the first part, and how many are left."""

    def split(self, width: int) -> "Running":
        """Keep so much of it, and give the rest as a part of its own that has yet to start."""
        late, tail = self.width - width, self.tail * width // self.width
        spread = self.spread * width // self.width
        shape = Shape(late, max(1, self.tail - tail), self.waves, False, self.stays, self.fine, self.spread - spread)
        rest = Running(self.client, self.launch, self.kernel, self.duration, shape, self.rank)
        self.width, self.tail, self.spread = width, max(1, tail), spread
        rest.origin, rest.queued = self.origin, False
        rest.ready, rest.since = self.ready, self.since
        self.origin.parts += 1
        return rest


class Streams:
    """What both kinds of GPU have: one stream a client, kernels in it one after another."""

    def __init__(
        self, device: Device, kernels: Sequence[Sequence[Kernel]], alarm: Alarm, priorities: Sequence[int] | None = None
    ) -> None:
        """``priorities``: of the clients, where the GPU heeds them."""
        self.device = device
        self.streams: list[deque[Running]] = [deque() for _ in kernels]
        self.reports: list[Report] = []
        self._ended = [-device.follow] * len(kernels)
        """When the last kernel of each stream ended."""
        self._alarm = alarm
        self._ranks = list(priorities) if priorities is not None else [0] * len(kernels)
        self._shapes = [[shape_of(device, one) for one in each] for each in kernels]

    def submit(self, now: int, client: int, launch: int, kernel: int, duration: int) -> None:
        """A launch joins its stream."""
        one = Running(client, launch, kernel, duration, self._shapes[client][kernel], self._ranks[client])
        one.ready = max(now + self.device.latency, self._ended[client] + self.device.follow)
        stream = self.streams[client]
        stream.append(one)
        if len(stream) == 1:
            self._alarm(one.ready, one)

    def _leave(self, now: int, one: Running) -> None:
        """A kernel has ended; the next one of its stream can start soon."""
        stream = self.streams[one.client]
        stream.popleft()
        one.ends, one.origin = -1, _NOBODY  # itself would be a circle, and wait for the collector
        self._ended[one.client] = now
        self.reports.append(Finished(one.client, one.launch, one.started))
        if stream:
            following = stream[0]
            following.ready = max(following.ready, now + self.device.follow)
            self._alarm(following.ready, following)

    def _began(self, now: int, one: Running) -> None:
        """Its first blocks are on the GPU."""
        one.started = now
        if now > one.ready and one.by is not None:
            self.reports.append(HeldUp(one.client, one.launch, one.by.client, one.by.kernel, now - one.ready))
        one.by = None  # else each would keep all before it


class Shared(Streams):
    """Under MPS: kernels of several clients hold blocks at the same time."""

    def __init__(
        self, device: Device, kernels: Sequence[Sequence[Kernel]], alarm: Alarm, priorities: Sequence[int] | None = None
    ) -> None:
        super().__init__(device, kernels, alarm, priorities)
        self.running: list[Running] = []
        """On the GPU or waiting for slots, in the order in which they are served."""

    def ring(self, now: int, token: "Running | int") -> None:
        """Something that was due: a kernel can start, has ended, or a wave of its blocks retires."""
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
        else:  # overtaken by what happened since
            if token.armed == now:
                self._arm(token)
            return
        self._settle(now)

    def _alone(self, now: int, one: Running) -> None:
        """The only one on the GPU has all it can use."""
        self.running.append(one)
        one.since = one.started = now
        one.held, one.speed = one.width, MILLION
        one.ends = now + one.duration
        self._arm(one)
        self._began(now, one)

    def _arm(self, one: Running) -> None:
        """An alarm for its end. One that comes too early is set again then: most ends move to later meanwhile."""
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
        """The slots of a wave that ends go to those served before it; those that its last wave lacks to anybody."""
        top = one.rank + one.graph if not one.stays else -1
        fine = 0 if one.graph else one.fine
        wanted = sum(other.width - other.held for other in self.running if other.rank < top and other.fine >= fine)
        one.held -= min(one.held, wanted)
        one.retires = -1
        if one.graph and wanted:
            one.ready = one.since  # it waits behind those who came meanwhile
            self.running.sort(key=_precedence)

    def _settle(self, now: int) -> None:
        """Free slots to whoever comes first; then everybody's speed, and when that will have brought it to its end."""
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
        """Beside blocks that stay it starts on the SMs that are left: more of its blocks share one."""
        if one.waves > 1:
            return
        stay = sum(other.held for other in self.running if other.stays)
        if one.spread > MILLION - stay > 0:
            one.room = MILLION * (MILLION - stay) // one.spread

    def _speed(self, one: Running, others: int) -> int:
        """Less with fewer slots than it could use, and with what others hold beside it."""
        got = speed = MILLION * one.held // one.width
        beside = others * self.device.overlap_ppm // MILLION
        if beside:
            speed = got * MILLION // (MILLION - one.width * (MILLION - got) // MILLION + beside)
        return max(1, speed * one.room // MILLION)

    def _yield(self, now: int) -> None:
        """Who lacks slots gets those of waves that end: of any wave, where it comes first, else of the last one."""
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
    """The driver's default: one client at a time, each for a slice while others want the GPU too."""

    def __init__(
        self, device: Device, kernels: Sequence[Sequence[Kernel]], alarm: Alarm, priorities: Sequence[int] | None = None
    ) -> None:
        super().__init__(device, kernels, alarm, None)
        self.owner = -1
        self.granted = 0
        self._switched = -1
        """When the switch that is under way will be over; -1: none is."""

    def ring(self, now: int, token: "Running | int") -> None:
        """Something that was due: a kernel can start or has ended, a slice or a switch is over."""
        if isinstance(token, Running):
            if token.ends == now:
                self._leave(now, token)
            elif token.ready != now or token.started >= 0:
                return  # overtaken by what happened since
        elif self._switched == now:
            self._switched = -1
        self._go_on(now)

    def submit(self, now: int, client: int, launch: int, kernel: int, duration: int) -> None:
        """A launch joins its stream; a GPU that nobody else wants is its client's."""
        super().submit(now, client, launch, kernel, duration)
        if self.owner < 0:
            self.owner, self.granted = client, now

    def _go_on(self, now: int) -> None:
        """Run the owner's next kernel, or give the GPU to the next one who wants it."""
        if self._switched >= 0:
            return
        following = self._next(now)
        if following is not None:
            own = self.streams[self.owner]
            over = now >= self.granted + self.device.slice
            if over and own and own[0].ends == now:
                return  # it ends at this very instant: its own alarm comes next
            if over or not own:
                self._switch(now, following)
                return
            self._alarm(self.granted + self.device.slice, 0)
        own = self.streams[self.owner]
        if own and own[0].ready <= now and own[0].ends < 0:
            self._run(now, own[0])

    def _next(self, now: int) -> int | None:
        """Return the next client in turn, after the owner, that has something which could run."""
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
"""The origin of what has ended."""


def _fits(one: Running, other: Running) -> bool:
    """Return whether it gets the places of a wave of the other one."""
    return one.rank < other.rank + other.graph and (one.fine >= other.fine or other.graph)


def _held(one: Running) -> int:
    return one.held


def _precedence(one: Running) -> tuple[int, int, int]:
    return one.rank, one.ready, one.client

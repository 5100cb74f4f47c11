"""Small worlds of serving for tests: one way to run a policy in them, and strategies that draw them.

Every function fits on every worker with its least configuration, and every cell of a profile fits on an empty worker:
what cannot run anywhere is an error of a scenario, which other tests are about.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from headway.core import replay as core
from headway.core.scheduler import Scheduler
from headway.core.tape import Tape, TapeRow, TapeWriter
from headway.fleet.audit.replay import about, replay_on
from headway.fleet.model.actions import Action
from headway.fleet.model.catalogue import Catalogue, Configuration, Function, Model, Profile
from headway.fleet.model.events import Event, WorkerFailed, WorkerRecovered
from headway.fleet.model.fleet import FREE, MIG, MIG_SPAN, Fleet, Gpu, Links, Worker
from headway.fleet.model.graph import Graph, Task
from headway.fleet.model.latency import LatencyModel
from headway.fleet.model.request import Request
from headway.fleet.model.rows import Kind
from headway.fleet.policies.parts import ServingPolicy
from headway.fleet.policies.registry import build
from headway.fleet.sim.fleet import SimulatedFleet
from headway.fleet.state.state import ServingState
from headway.units import MILLISECOND, SECOND

MB = 10**6
MOST_STEPS = 5_000
MOST_ACTIONS = 2_000
Watch = Callable[[ServingPolicy], "Watched"]


class RunawayError(AssertionError):
    """A run of a small world that did not end."""


class Outages:
    """Workers that die and return at given times."""

    def __init__(self, script: Sequence[tuple[int, int, int]]) -> None:
        """``script``: (worker, when it dies, how long it is gone); of one worker in order, not overlapping."""
        self._next: dict[int, list[tuple[int, WorkerFailed | WorkerRecovered]]] = {}
        for worker, when, length in script:
            events = self._next.setdefault(worker, [])
            events += [(when, WorkerFailed(worker)), (when + length, WorkerRecovered(worker))]

    def first(self) -> Sequence[tuple[int, WorkerFailed | WorkerRecovered]]:
        """The first of each worker."""
        return [events.pop(0) for events in self._next.values()]

    def after(
        self, now: int, event: WorkerFailed | WorkerRecovered
    ) -> tuple[int, WorkerFailed | WorkerRecovered] | None:
        """What comes next for the same worker."""
        events = self._next[event.worker]
        return events.pop(0) if events else None


@dataclass(frozen=True)
class World:
    """Everything about a run but its policy."""

    catalogue: Catalogue
    fleet: Fleet
    requests: tuple[Request, ...]
    outages: tuple[tuple[int, int, int], ...] = ()
    push_interval: int = 0
    preloaded: bool = True
    seed: int = 0
    interference: Mapping[tuple[int, int], int] = field(default_factory=dict)
    central: bool | None = None
    """Whether rows are read as they are; None: as the policy is."""

    def latency(self) -> LatencyModel:
        """How long things take."""
        return LatencyModel(self.catalogue, self.fleet, self.interference)

    def state(self, *, central: bool = False) -> ServingState:
        """The fleet before anything happens; ``central`` where the world does not say."""
        return ServingState(
            self.catalogue,
            self.fleet,
            self.latency(),
            to_come=len(self.requests),
            push_interval=self.push_interval,
            central=central if self.central is None else self.central,
            preloaded=self.preloaded,
        )


@dataclass(frozen=True)
class Run:
    """What a run left behind."""

    tape: Tape
    state: ServingState
    world: World

    def rows(self, kind: Kind) -> list[TapeRow]:
        """The tape's rows of one kind."""
        return [TapeRow(*row) for row in self.tape.rows[self.tape.column("kind") == int(kind)].tolist()]


class Watched:
    """A policy that looks on while another one decides; gives up when that never ends."""

    def __init__(self, policy: ServingPolicy) -> None:
        self.policy = policy
        self.name = policy.name

    def decide(self, now: int, state: ServingState) -> Iterable[Action]:
        """What the policy decides."""
        return self.bounded(self.policy.decide(now, state))

    def bounded(self, actions: Iterable[Action]) -> Iterator[Action]:
        """As many actions as one instant of a small world can need."""
        for count, action in enumerate(actions):
            if count > MOST_ACTIONS:
                raise RunawayError(f"{MOST_ACTIONS} actions in one instant, and no end")
            yield action


class Bounded(SimulatedFleet):
    """Gives up on a run that goes on and on: a test's worlds end within some thousand steps."""

    left = MOST_STEPS

    def next(self) -> tuple[int, Sequence[Event]] | None:
        """The next instant, as long as there are not too many."""
        self.left -= 1
        if self.left < 0:
            raise RunawayError(f"{MOST_STEPS} steps, and no end")
        return super().next()


def drive(
    policy: str | ServingPolicy, world: World, *, watch: Watch = Watched, bounded: bool = True, exact: bool = True
) -> Run:
    """Run a policy, given by its name or freshly built, to the end."""
    chosen = build(policy) if isinstance(policy, str) else policy
    state = world.state(central=chosen.central)
    chosen.bind(state)
    writer = TapeWriter()
    faults = Outages(world.outages) if world.outages else None
    executor = (Bounded if bounded else SimulatedFleet)(world.requests, state, world.seed, faults)
    Scheduler[Event, Action](state, watch(chosen), executor, writer, exact=exact).run()
    return Run(writer.close(), state, world)


# --- by hand ------------------------------------------------------------------------------------------------------


def function(name: str, ms: float, *models: int, **options: Any) -> Function:
    """A function with one configuration."""
    return Function(name, models, Profile({"": {Configuration(1, 1, 1): round(ms * MILLISECOND)}}), **options)


def chain(name: str, *functions: int, bytes_between: int = 0) -> Graph:
    """Functions one after the other."""
    tasks = tuple(Task(f"t{i}", called, bytes_between, bytes_between) for i, called in enumerate(functions))
    return Graph(name, tasks, tuple((i, i + 1) for i in range(len(functions) - 1)))


def workers(count: int, memory_bytes: int = 100 * MB, **options: Any) -> Fleet:
    """Equal workers, each on a host of its own."""
    gpu = Gpu("T4", memory_bytes, **options)
    return Fleet(tuple(Worker(f"w{i}", gpu, cpus=4, host=i) for i in range(count)))


# --- drawn --------------------------------------------------------------------------------------------------------

BATCHES = ((1,), (1, 2), (1, 2, 4))
SLICES = {1: ((1,),), 7: ((1,), (7,), (1, 2, 4), (1, 2, 3, 4, 7))}
WITHOUT_GPU = ((0,), (0, 1))
"""Slices of functions that need no GPU: on CPUs alone, or there and on a slice."""
TYPES = ("T4", "A100")


@st.composite
def graphs(draw: st.DrawFn, functions: int, name: str) -> Graph:
    """Any graph of up to five tasks: chains, forks, joins, several entries and several ends."""
    count = draw(st.integers(1, 5))
    pairs = [(a, b) for b in range(count) for a in range(b)]
    edges = tuple(pair for pair in pairs if draw(st.integers(0, 2)) == 0)
    sizes = st.sampled_from([0, 2_000, 3 * MB])
    tasks = tuple(Task(f"t{i}", draw(st.integers(0, functions - 1)), draw(sizes), draw(sizes)) for i in range(count))
    return Graph(name, tasks, edges)


@st.composite
def profiles(draw: st.DrawFn, widths: Sequence[tuple[int, ...]]) -> Profile:
    """Times that shrink with what is given, by type of GPU or for all; ``widths``: the numbers of slices to draw."""
    chosen = draw(st.sampled_from(widths))
    batches = draw(st.sampled_from(BATCHES))
    cpus = draw(st.sampled_from([(1,), (1, 2)]))
    types = draw(st.sampled_from([("",), TYPES]))
    base = draw(st.integers(1, 400)) * MILLISECOND + draw(st.integers(0, 999))
    cells = {
        gpu: {
            Configuration(b, c, s): max(1, round(base * (index + 1) * (0.3 + 0.7 * b) / (c**0.3 * max(s, 0.5) ** 0.6)))
            for b in batches
            for c in cpus
            for s in chosen
        }
        for index, gpu in enumerate(types)
    }
    return Profile(cells, draw(st.sampled_from([0.0, 0.0, 0.2])))


@st.composite
def drawn_functions(draw: st.DrawFn, name: str, models: int, slices: int) -> Function:
    """A function with its own process or without; one in four runs on CPUs, and holds nothing on a GPU."""
    on_cpus = draw(st.integers(0, 3)) == 3
    used = () if on_cpus else tuple(draw(st.lists(st.integers(0, models - 1), max_size=2, unique=True)))
    return Function(
        name,
        used,
        draw(profiles(WITHOUT_GPU if on_cpus else SLICES[slices])),
        cold_start=draw(st.sampled_from([0, 0, 100 * MILLISECOND, 2 * SECOND])),
        instance_bytes=draw(st.sampled_from([0, 500 * MB])),
        activation_bytes=0 if on_cpus else draw(st.sampled_from([0, 1, 60 * MB])),
    )


@st.composite
def catalogues(draw: st.DrawFn, slices: int) -> Catalogue:
    """Models, functions and graphs that share them."""
    models = tuple(
        Model(f"m{i}", draw(st.sampled_from([0, 50, 200, 700])) * MB) for i in range(draw(st.integers(1, 4)))
    )
    functions = tuple(draw(drawn_functions(f"f{i}", len(models), slices)) for i in range(draw(st.integers(1, 4))))
    made = tuple(draw(graphs(len(functions), f"g{i}")) for i in range(draw(st.integers(1, 3))))
    return Catalogue(models, functions, made)


@st.composite
def fleets(draw: st.DrawFn, catalogue: Catalogue, slices: int) -> Fleet:
    """Workers that differ in type, memory, CPUs and place; the smallest holds the largest function just so."""
    least = max(catalogue.size_of(f.mask) + f.activation_bytes for f in catalogue.functions)
    geometry = draw(st.sampled_from([FREE, MIG])) if slices == 7 else FREE
    if geometry == MIG:  # some instances are too small for some functions, one is large enough
        least = max(_mig_bytes(catalogue, f, gpu) for f in catalogue.functions for gpu in f.profile.times)
    made = []
    for i in range(draw(st.integers(1, 4))):
        memory = least + draw(st.sampled_from([0, 1, 100 * MB, 2_000 * MB]))
        gpu = Gpu(draw(st.sampled_from(TYPES)), max(memory, 1), slices, geometry)
        host_bytes = draw(st.sampled_from([0, 300 * MB, 1 << 62]))
        host = draw(st.integers(0, 3))
        rent = draw(st.sampled_from([None, None, 3.5]))
        made.append(Worker(f"w{i}", gpu, draw(st.integers(2, 4)), host_bytes, host, host % 2, rent))
    links = Links(
        within_rack=draw(st.sampled_from([12 << 30, 1 << 28])),
        between_racks=1 << 28,
        write_back=draw(st.booleans()),
    )
    keep_alive = draw(st.sampled_from([1, 300 * MILLISECOND, 600 * SECOND]))
    return Fleet(tuple(made), links, keep_alive=keep_alive, warm=draw(st.booleans()))


def _mig_bytes(catalogue: Catalogue, called: Function, gpu: str) -> int:
    """The least memory of a GPU with MIG on which some cell of a function fits into its instance."""
    weights, each = catalogue.size_of(called.mask), called.activation_bytes
    cells = called.profile.times[gpu]
    if any(not c.slices for c in cells):
        return 0
    return min(-(-8 * (weights + each * c.batch) // MIG_SPAN[c.slices]) for c in cells if c.slices in MIG_SPAN)


@st.composite
def request_lists(draw: st.DrawFn, catalogue: Catalogue, fleet: Fleet) -> tuple[Request, ...]:
    """Requests close together, with and without deadlines, some of them hopeless."""
    made, now = [], 0
    late = draw(st.sampled_from([0, 0, 1, 2]))
    for index in range(draw(st.integers(1, 10))):
        now += draw(st.sampled_from([0, 1, 5 * MILLISECOND, 40 * MILLISECOND, 300 * MILLISECOND]))
        graph = draw(st.integers(0, len(catalogue.graphs) - 1))
        deadline = 0
        if late and draw(st.integers(0, late)) > 0:
            deadline = now + draw(st.sampled_from([1, 50 * MILLISECOND, 500 * MILLISECOND, 5 * SECOND]))
        ingress = draw(st.integers(0, len(fleet.workers) - 1))
        priority = draw(st.sampled_from([0, 0, 0, 1, 3]))
        made.append(Request(index, graph, now, ingress, deadline, draw(st.integers(0, 1)), priority=priority))
    return tuple(made)


@st.composite
def outage_scripts(draw: st.DrawFn, count: int) -> tuple[tuple[int, int, int], ...]:
    """Each worker dies up to twice and always returns; all may be gone at once."""
    script = []
    for worker in range(count):
        now = 0
        for _ in range(draw(st.integers(0, 2))):
            now += draw(st.integers(0, 1_500)) * MILLISECOND + draw(st.integers(1, 5))
            length = draw(st.integers(1, 800)) * MILLISECOND
            script.append((worker, now, length))
            now += length + 1
    return tuple(script)


@st.composite
def worlds(draw: st.DrawFn, *, outages: bool | None = None) -> World:
    """Everything about a run but its policy."""
    slices = draw(st.sampled_from([1, 7]))
    catalogue = draw(catalogues(slices))
    fleet = draw(fleets(catalogue, slices))
    functions = range(len(catalogue.functions))
    pairs = [(a, b) for a in functions for b in functions]
    slower = draw(st.dictionaries(st.sampled_from(pairs), st.integers(1_000_000, 2_000_000), max_size=2))
    dying = draw(st.booleans()) if outages is None else outages
    return World(
        catalogue,
        fleet,
        draw(request_lists(catalogue, fleet)),
        draw(outage_scripts(len(fleet.workers))) if dying else (),
        draw(st.sampled_from([0, 10 * MILLISECOND, 200 * MILLISECOND])),
        draw(st.booleans()),
        draw(st.integers(0, 3)),
        slower,
    )


def replay(
    catalogue: Catalogue,
    fleet: Fleet,
    requests: Sequence[Request],
    tape: Tape,
    policy: ServingPolicy,
    *,
    latency: LatencyModel | None = None,
    push_interval: int = 0,
    central: bool | None = None,
    preloaded: bool = True,
) -> Tape:
    """Return the tape that a policy, fresh and not bound yet, writes when shown the recorded events.

    ``central`` None: as the policy is.
    """
    state = ServingState(
        catalogue,
        fleet,
        latency,
        to_come=len(requests),
        push_interval=push_interval,
        central=policy.central if central is None else central,
        preloaded=preloaded,
    )
    policy.bind(state)
    return replay_on(state, requests, tape, policy)


def first_difference(a: Tape, b: Tape) -> str | None:
    """Return where two tapes of requests part, in one line; None when they are equal."""
    return core.first_difference(a, b, Kind, about)

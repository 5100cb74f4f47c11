"""Small GPUs and programs for tests, and one way to run a policy over them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from headway.core.scheduler import Scheduler
from headway.core.tape import Tape, TapeRow, TapeWriter
from headway.gpu.model.actions import Action
from headway.gpu.model.alone import NEVER
from headway.gpu.model.device import Device
from headway.gpu.model.events import Event
from headway.gpu.model.kernel import GRAPH, KERNEL, Kernel
from headway.gpu.model.program import Client, Launch, Program
from headway.gpu.model.rows import Kind
from headway.gpu.model.state import KernelsState
from headway.gpu.policies.parts import KernelsPolicy
from headway.gpu.policies.registry import build
from headway.gpu.replay import fresh_state
from headway.gpu.sim.clients import SimulatedGpu

TINY = Device(sms=4, latency=10, follow=2, wait=3, overlap_ppm=0, slice=100, switch=10, gate=0, rounds=1)
"""Four SMs and times that can be added up by hand."""
Look = Callable[[int, KernelsState, Action], None]


@dataclass(frozen=True)
class Run:
    """What a run left behind."""

    tape: Tape
    state: KernelsState
    gpu: SimulatedGpu

    def rows(self, kind: Kind, client: int | None = None) -> list[TapeRow]:
        """The tape's rows of one kind, of one client or of all."""
        return [row for row in self.tape if row.kind == kind and client in (None, row.subject)]

    def times(self, kind: Kind, client: int) -> list[int]:
        """When rows of a kind came."""
        return [row.time for row in self.rows(kind, client)]


class Watched:
    """A policy that is looked at while it decides: it must leave the state as it is between its actions."""

    def __init__(self, policy: KernelsPolicy, look: Look | None = None) -> None:
        self.policy = policy
        self.name = policy.name
        self.look = look

    def decide(self, now: int, state: KernelsState) -> Iterable[Action]:
        """What the policy decides."""
        return self._watch(now, state, iter(self.policy.decide(now, state)))

    def _watch(self, now: int, state: KernelsState, actions: Iterator[Action]) -> Iterator[Action]:
        while True:
            before = state.digest
            action = next(actions, None)
            assert state.digest == before, f"{self.name} changed the state"
            if action is None:
                return
            if self.look is not None:
                self.look(now, state, action)
            yield action


def drive(
    spec: str | KernelsPolicy,
    clients: Sequence[Client],
    device: Device = TINY,
    horizon: int = NEVER,
    *,
    watch: type[Watched] | None = None,
    look: Look | None = None,
) -> Run:
    """Run a policy to the end."""
    policy = build(spec) if isinstance(spec, str) else spec
    state = fresh_state(clients, device, policy)
    gpu = SimulatedGpu(state, policy.sharing, raised=policy.raised, horizon=horizon)
    writer = TapeWriter()
    asked = (watch or Watched)(policy, look) if watch or look else policy
    Scheduler[Event, Action](state, asked, gpu, writer).run()
    return Run(writer.close(), state, gpu)


def program(*launches: tuple[int, int, int], name: str = "p", per_sm: int = 1) -> Program:
    """A program of one request: (gap, blocks, duration) of each launch; it waits after the last one."""
    kernels = tuple(Kernel(f"{name}{index}", blocks, per_sm) for index, (_, blocks, _) in enumerate(launches))
    last = len(launches) - 1
    made = tuple(Launch(at, gap, duration, at == last) for at, (gap, _, duration) in enumerate(launches))
    return Program(name, kernels, made)


# --- drawn ----------------------------------------------------------------------------------------------------------


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Any small program."""
    kernels = draw(
        st.lists(
            st.builds(
                Kernel,
                st.sampled_from(["a", "b"]),
                st.integers(0, 30),
                st.integers(1, 3),
                st.sampled_from([KERNEL, GRAPH]),
            ),
            min_size=1,
            max_size=3,
        )
    )
    launches = draw(
        st.lists(
            st.builds(
                Launch,
                st.integers(0, len(kernels) - 1),
                st.integers(1, 60),
                st.integers(1, 300),
                st.booleans(),
                st.integers(0, 100),
            ),
            min_size=1,
            max_size=6,
        )
    )
    return Program("drawn", tuple(kernels), tuple(launches))


@st.composite
def worlds(draw: st.DrawFn) -> tuple[tuple[Client, ...], Device]:
    """Some clients that leave after some requests, and a small GPU."""
    clients = []
    for index in range(draw(st.integers(1, 4))):
        made = draw(programs())
        clients.append(
            Client(
                f"c{index}",
                made,
                draw(st.integers(0, 3)),
                think=draw(st.integers(0, 400)),
                start=draw(st.integers(0, 200)),
                first=draw(st.integers(0, len(made.request_starts) - 1)),
                requests=draw(st.integers(1, 4)),
            )
        )
    device = Device(
        sms=draw(st.integers(1, 8)),
        latency=draw(st.integers(1, 20)),
        follow=draw(st.integers(1, 5)),
        wait=draw(st.integers(1, 10)),
        overlap_ppm=draw(st.sampled_from([0, 350_000, 1_000_000])),
        slice=draw(st.integers(20, 300)),
        switch=draw(st.integers(0, 30)),
        queue=draw(st.sampled_from([1, 3, 1_024])),
        nodes=draw(st.integers(1, 5)),
        node_ppm=draw(st.sampled_from([400_000, 1_000_000])),
        rounds=draw(st.sampled_from([1, 2, 13])),
    )
    return tuple(clients), device

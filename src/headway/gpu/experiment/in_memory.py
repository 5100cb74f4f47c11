"""Settings of a run of programs that share one GPU, and such runs in memory: plain data, without typed tables.

GPU machines have neither msgspec nor polars; nothing here needs them. ``scene`` makes a setting from an experiment.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from headway.core.collector import no_collection
from headway.core.scheduler import Scheduler
from headway.core.tape import Tape, TapeWriter
from headway.errors import ExperimentError
from headway.gpu.metrics import summarise
from headway.gpu.model.device import Device
from headway.gpu.model.program import Client, Processor, on_idle_cpu, on_real_cpu
from headway.gpu.model.state import KernelsState
from headway.gpu.policies.parts import KernelsPolicy
from headway.gpu.policies.registry import build, describe
from headway.gpu.programs.sources import Source, program_of
from headway.gpu.replay import fresh_state
from headway.gpu.sim.clients import SimulatedGpu
from headway.runs.stopping import stops_on_interrupt
from headway.streams import stream
from headway.units import MILLISECOND, SECOND, format_duration

Tell = Callable[[str, float], None]
"""Told what is being done, and how much of all is done."""
LOW_PRIORITY = 1
MOST_SECONDS = 600
SETTLE = 600 * MILLISECOND
"""Time that headway's dial takes to settle where programs contend."""
SLEEP = MILLISECOND
COLD_PPM = 800_000
COLD_UNTIL = 1_200_000
"""After a pause of at least SLEEP the CPU is cold: the first COLD_UNTIL of CPU time is slower by COLD_PPM."""
REAL = Processor(request=0.085, launch=0.15, slower=1.42, phase=300 * MILLISECOND)
"""A processor of H200 machines, by 12 s of two programs alone; docs/reference/gpu-model.md has the numbers.

Launches: 0.09 to 0.22 from request to request in ten traces, 0.14 in the mean.
"""
VARIED_LAUNCHES = 8_000
MOST_VARIED = 200_000
"""Launches that are drawn before a program starts over: what the run takes, between these."""


@dataclass(frozen=True)
class Setting:
    """Settings of one run: programs above and below, the policy, the duration."""

    high: tuple[str, ...]
    low: tuple[str, ...] = ()
    policy: str = "headway"
    think: int = 0
    """Think time between the requests of the programs above."""
    seconds: float = 2.0
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    """``slo`` and ``floor``, for policies that have them."""
    device: Device = field(default_factory=Device)
    settle: int = 0
    """Time that is played before the measured part, and not counted."""

    @property
    def horizon(self) -> int:
        """Return when the run ends."""
        return self.settle + round(self.seconds * SECOND)


def options(slo: str | None, floor: str | None) -> dict[str, float]:
    """Return what ``--slo 1.05`` and ``--floor 5%`` ask for."""
    values = {}
    for name, text in (("slo", slo), ("floor", floor)):
        if text is None:
            continue
        try:
            values[name] = float(text[:-1]) / 100 if text.endswith("%") else float(text)
        except ValueError:
            wanted = "a slow-down, e.g. 1.05" if name == "slo" else "a share, e.g. 5%"
            raise ExperimentError(f"--{name} {text!r} is not {wanted}") from None
    build("headway", defaults=values)  # its rules for both, whatever policies are asked for
    return values


def check_seconds(seconds: float) -> float:
    """Return the duration of a run if it is valid; raise ExperimentError otherwise."""
    if not 0 < seconds <= MOST_SECONDS:
        raise ExperimentError(f"--seconds {seconds:g} must be above 0 and at most {MOST_SECONDS}")
    return seconds


def check_settle(settle: int) -> int:
    """Return a time to settle that is no longer than a run may be."""
    if settle > MOST_SECONDS * SECOND:
        raise ExperimentError(f"gpu settle {format_duration(settle)} must be at most {MOST_SECONDS} s")
    return settle


def clients_of(setting: Setting, sources: Mapping[str, Source] | None = None) -> tuple[Client, ...]:
    """Return the clients of a run; the start of each is drawn from the seed. ``sources``: programs read already."""
    if not setting.high:
        raise ExperimentError("a run of kernels needs a program above: headway gpu simulate resnet50 …")
    draw = stream(setting.seed, "kernels")
    clients: list[Client] = []
    for text, usual in (*((text, 0) for text in setting.high), *((text, LOW_PRIORITY) for text in setting.low)):
        name, priority = prioritised(text, usual)
        program = sources[name].program if sources is not None else program_of(name)
        if usual == 0 and setting.think >= SLEEP:
            program = on_idle_cpu(program, COLD_PPM, COLD_UNTIL)
        same = sum(client.program.name == program.name for client in clients)
        clients.append(
            Client(
                program.name if not same else f"{program.name}-{same + 1}",
                program,
                priority,
                think=setting.think if usual == 0 else 0,
                start=int(draw.integers(0, MILLISECOND)),
                first=int(draw.integers(0, len(program.request_starts))),
            )
        )
    return tuple(clients)


def on_real_cpus(
    clients: tuple[Client, ...], seed: int, horizon: int = SECOND, slow_share: float = REAL.slow_share
) -> tuple[Client, ...]:
    """Return the clients with CPU times that vary in phases, from request to request and from launch to launch.

    ``horizon``: how long they run. ``slow_share``: of the time, processors are in a slow phase.
    """
    cpu = REAL._replace(slow_share=slow_share) if slow_share else REAL._replace(slower=1.0)
    made = []
    for number, client in enumerate(clients):
        program, source = client.program, stream(seed, f"kernels cpu {number}")
        time = max(program.duration, sum(launch.gap + launch.think for launch in program.launches))
        launches = min(max(VARIED_LAUNCHES, len(program.launches) * horizon // time), MOST_VARIED)
        made.append(replace(client, program=on_real_cpu(program, partial(source.normal, 0.0), cpu, launches)))
    return tuple(made)


def prioritised(text: str, usual: int) -> tuple[str, int]:
    """Return name and priority of a text such as ``bert-b32@3``; ``usual`` where it has none."""
    name, at, priority = text.rpartition("@")
    if not at:
        return text, usual
    if not priority.isdecimal():
        raise ExperimentError(f"program {text!r}: priority {priority!r} is not a number between 0 and 9")
    return name, int(priority)


def notes(clients: Sequence[Client], before: str = "") -> list[str]:
    """Return a note for each program above that never waits: it has no slow-down."""
    highest = min(client.priority for client in clients)
    return [
        f"{before}{client.name} never waits for the GPU, so it has no request: no latency and no slow-down"
        for client in clients
        if client.priority == highest and not any(launch.waits for launch in client.program.launches)
    ]


def few(setting: Setting, policies: Sequence[str]) -> list[str]:
    """Return a note where a run is so short that the time in which headway settles is much of it."""
    usual = ((setting.high, 0), (setting.low, LOW_PRIORITY))
    priorities = {prioritised(text, priority)[1] for texts, priority in usual for text in texts}
    settles = SETTLE - setting.settle
    if len(priorities) < 2 or settles <= 0 or setting.seconds * SECOND >= 3 * settles:
        return []
    if not any(policy.startswith("headway") for policy in policies):
        return []
    first = f"the first {SETTLE / SECOND:g} s or so, until headway lets a steady amount through,"
    left_out = f"leave them out with --set gpu.settle={format_duration(SETTLE)}"
    return [f"{first} are much of these {setting.seconds:g} s: try --seconds 3, or {left_out}"]


def begun(setting: Setting, clients: tuple[Client, ...], policy: KernelsPolicy) -> tuple[KernelsState, SimulatedGpu]:
    """Return state and executor of a run before its first event."""
    state = fresh_state(clients, setting.device, policy)
    return state, SimulatedGpu(state, policy.sharing, raised=policy.raised, horizon=setting.horizon)


def compare(
    setting: Setting,
    policies: Sequence[str],
    clients: tuple[Client, ...],
    tell: Tell | None = None,
    settle: Mapping[str, int] | None = None,
) -> list[dict[str, Any]]:
    """Play the same programs under each policy; one that does not exist is refused before the first run.

    ``settle``: how long a policy is played before it counts, where that is more than for the others.
    """
    built = {name: build(name, defaults=setting.options) for name in policies}
    rows = []
    for at, (name, policy) in enumerate(built.items()):
        told = None if tell is None else _teller(tell, describe(policy), at, len(policies), setting)
        each = replace(setting, policy=name, settle=(settle or {}).get(name, setting.settle))
        tape = _played(each, clients, policy, told)
        row = summarise(clients, each.device, tape, each.horizon, each.settle)
        rows.append({"policy": describe(policy), **row, "events": len(tape), "digest": tape.digest})
    return rows


def _played(
    setting: Setting, clients: tuple[Client, ...], policy: KernelsPolicy, told: Callable[[int], None] | None
) -> Tape:
    """Return the tape of a run; raise KeyboardInterrupt where it was stopped."""
    with no_collection():  # a run makes no cycles
        state, executor = begun(setting, clients, policy)
        tape = TapeWriter(None)
        scheduler = Scheduler(state, policy, executor, tape)
        try:
            with stops_on_interrupt(scheduler.stop):
                scheduler.run(told)
        finally:
            closed = tape.close()
    if scheduler.stopped:
        raise KeyboardInterrupt
    return closed


def _teller(tell: Tell, name: str, before: int, runs: int, setting: Setting) -> Callable[[int], None]:
    """Return the progress callback of one of several runs."""
    tell(name, before / runs)
    horizon = setting.horizon

    def told(now: int) -> None:
        done = min(now, horizon)
        tell(f"{name}: {done / SECOND:.2f} of {horizon / SECOND:g} s", (before + done / horizon) / runs)

    return told

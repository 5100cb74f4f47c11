"""Prepare a run of programs that share one GPU: from names and settings to clients, a device and a policy.

A ``Setting`` is plain data without typed tables, for GPU machines without msgspec; ``prepare`` makes one from an
experiment.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from headway.core.audit import Finding
from headway.core.tape import Tape
from headway.core.tasks import Far
from headway.errors import ExperimentError
from headway.experiment.domain import RunParts, Scene, Tell, with_table
from headway.experiment.folder import Limits
from headway.experiment.gpu.sources import Source, program_of
from headway.experiment.play import play
from headway.formats.training.cluster_table import within
from headway.kernels.audit import audit
from headway.kernels.device import Device
from headway.kernels.policies.parts import KernelsPolicy
from headway.kernels.policies.registry import build, describe
from headway.kernels.program import Client, on_idle_cpu
from headway.kernels.replay import about, fresh_state, replay
from headway.kernels.rows import CLIENT_KINDS, KERNEL_KINDS, Kind
from headway.kernels.state import KernelsState
from headway.metrics.kernels import summarise
from headway.plugins import anchored, as_named, is_untrusted, resolve
from headway.sim.kernels import SimulatedGpu
from headway.streams import stream
from headway.units import MILLISECOND, SECOND, format_duration

if TYPE_CHECKING:
    from headway.formats.kernels.settings import GpuExperiment

LOW_PRIORITY = 1
MOST_SECONDS = 600
SETTLE = 600 * MILLISECOND
"""Time that headway's dial takes to settle where programs contend."""
SLEEP = MILLISECOND
COLD_PPM = 800_000
COLD_UNTIL = 1_200_000
"""After a pause of at least SLEEP the CPU is cold: the first COLD_UNTIL of CPU time is slower by COLD_PPM."""


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


@dataclass(frozen=True)
class GpuScene(Scene):
    """Programs and a GPU, before the run."""

    setting: Setting
    clients: tuple[Client, ...]
    experiment: "GpuExperiment | None" = None
    notes: tuple[str, ...] = ()

    def policy(self) -> KernelsPolicy:
        """Return a new policy; it may come from a user's file."""
        return policy_of(self.setting)

    def policy_name(self) -> str:
        """Return the policy with the options that differ from their defaults; as named where it is not trusted."""
        return as_named(self.setting.policy) if is_untrusted(self.setting.policy) else describe(self.policy())

    def inputs(self) -> Mapping[str, Sequence[Any]]:
        """Return the clients."""
        return {"client": self.clients}

    def times_decisions(self, policy: KernelsPolicy) -> bool:
        """Return False: a decision takes about as long as reading the clock."""
        return False

    def row_kinds(self) -> tuple[type[IntEnum], Limits]:
        """Return the kinds of rows about clients and kernels, and how many there are of both."""
        count, kernels = len(self.clients), max(len(client.program.kernels) for client in self.clients)
        held_up = (int(Kind.HELD_UP),)
        return Kind, {"subject": (count, CLIENT_KINDS), "place": (kernels, KERNEL_KINDS), "detail": (count, held_up)}

    def begin(self) -> RunParts:
        """Return state, policy and executor before the first event."""
        policy = self.policy()
        state = fresh_state(self.clients, self.setting.device, policy)
        executor = SimulatedGpu(state, policy.sharing, raised=policy.raised, horizon=self.setting.horizon)
        return RunParts(state, policy, executor)

    def progress(self, state: KernelsState, now: int) -> Far:
        """Return the progress in time: programs go on until the run ends."""
        horizon = self.setting.horizon
        return Far(now, horizon, horizon, min(now, horizon), len(state.waiting), len(self.clients) - len(state.waiting))

    def subjects(self) -> str:
        """Return the names of its programs."""
        return ", ".join(client.name for client in self.clients)

    def unfinished(self, state: KernelsState) -> list[str]:
        """Return the programs that have not left."""
        return [f"program {each.client.name}" for each in state.clients if not each.left]

    def store(self, folder: Path) -> "GpuExperiment":
        """Write what each program launches: stores and traces change."""
        from headway.formats.kernels import clients as kernel_clients

        assert self.experiment is not None
        kernel_clients.write(self.clients, folder / kernel_clients.NAME)
        return self.experiment

    def row_subject(self, row: Sequence[int]) -> str:
        """Return the client of a row."""
        return about(row)

    def replay(self, tape: Tape, *, complete: bool) -> Tape:
        """Show a fresh policy the recorded events."""
        return replay(self.clients, self.setting.device, tape, self.policy(), complete=complete)

    def audit(self, tape: Tape, *, complete: bool) -> Sequence[Finding]:
        """Check every launch, end and wait against the programs."""
        return audit(self.clients, self.setting.device, tape, complete=complete)


def setting_of(experiment: "GpuExperiment") -> Setting:
    """Return an experiment's tables as plain data, checked."""
    from headway.formats.training.settings import span

    table = experiment.gpu
    return Setting(
        tuple(table.high),
        tuple(table.low),
        experiment.policy.name,
        span(table.think, "gpu think"),
        check_seconds(table.seconds),
        experiment.run.seed,
        options(table.slo or None, table.floor or None),
        settle=check_settle(span(table.settle, "gpu settle")),
    )


def prepare(experiment: "GpuExperiment") -> GpuScene:
    """Make the clients of a run; where each begins in its program, and when, is drawn from the seed."""
    within("seed", experiment.run.seed, 0, 2**63 - 1)
    setting = setting_of(experiment)
    clients = clients_of(setting)
    policy_of(setting)
    named = with_table(experiment, "policy", name=anchored(experiment.policy.name))
    resolved = msgspec.structs.replace(named, variants=[])
    return GpuScene(setting, clients, resolved, (*notes(clients), *few(setting, [setting.policy])))


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


def prioritised(text: str, usual: int) -> tuple[str, int]:
    """Return name and priority of a text such as ``bert-b32@3``; ``usual`` where it has none."""
    name, at, priority = text.rpartition("@")
    if not at:
        return text, usual
    if not priority.isdecimal():
        raise ExperimentError(f"program {text!r}: priority {priority!r} is not a number between 0 and 9")
    return name, int(priority)


def notes(clients: Sequence[Client]) -> list[str]:
    """Return a note for each program above that never waits: it has no slow-down."""
    highest = min(client.priority for client in clients)
    return [
        f"{client.name} never waits for the GPU, so it has no request: no latency and no slow-down"
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


def policy_of(setting: Setting) -> KernelsPolicy:
    """Return the policy that a run names; it may come from a user's file."""
    return build(resolve(setting.policy, "gpu"), defaults=setting.options)


def summary(scene: GpuScene, tape: Tape, *, complete: bool) -> dict[str, Any]:
    """Return slow-down above, harvest below, and each program by itself; of a run cut short, up to its last step."""
    setting = scene.setting
    return summarise(scene.clients, setting.device, tape, setting.horizon if complete else 0, setting.settle)


def numbers(scene: GpuScene, tape: Tape, *, complete: bool = True) -> dict[str, Any]:
    """Return the numbers of a tape, with the name of its policy."""
    row = summary(scene, tape, complete=complete)
    return {"policy": scene.policy_name(), **row, "events": len(tape), "digest": tape.digest}


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
    scenes = [
        GpuScene(replace(setting, policy=name, settle=(settle or {}).get(name, setting.settle)), clients)
        for name in policies
    ]
    names = [scene.policy_name() for scene in scenes]
    rows = []
    for at, (name, scene) in enumerate(zip(names, scenes, strict=True)):
        told = None if tell is None else _teller(tell, name, at, len(scenes))
        result = play(scene, progress=told)
        if result.stopped:
            raise KeyboardInterrupt
        rows.append(numbers(scene, result.tape))
    return rows


def _teller(tell: Tell, name: str, before: int, runs: int) -> Callable[[Far], None]:
    """Return the progress callback of one of several runs."""
    tell(name, before / runs)

    def told(far: Far) -> None:
        what = f"{name}: {min(far.now, far.last) / SECOND:.2f} of {far.last / SECOND:g} s"
        tell(what, (before + far.share) / runs)

    return told

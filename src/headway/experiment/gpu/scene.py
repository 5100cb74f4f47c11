"""Prepare a run of programs that share one GPU: from names and settings to clients, a device and a policy.

A ``Setting`` is plain data that needs no typed tables, for machines with a GPU and little else; ``prepare`` makes one
of an experiment.
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
from headway.kernels.program import Client, cold
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
"""How long headway's dial takes, where programs contend, from where it begins to where it stays."""
SLEEP = MILLISECOND
COLD_PPM = 800_000
COLD_UNTIL = 1_200_000
"""After a pause of at least SLEEP the CPU is cold: so much longer takes the first so much CPU time of a request."""


@dataclass(frozen=True)
class Setting:
    """One run: who is above, who is below, how they share, for how long."""

    high: tuple[str, ...]
    low: tuple[str, ...] = ()
    policy: str = "headway"
    think: int = 0
    """Between the requests of those above."""
    seconds: float = 2.0
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    """``slo`` and ``floor``, for policies that have them."""
    device: Device = field(default_factory=Device)
    settle: int = 0
    """Played before that, and not counted."""

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
        """Make the policy anew, one from a file too."""
        return policy_of(self.setting)

    def policy_name(self) -> str:
        """Return the policy with the options that differ from their defaults; as named where it is not trusted."""
        return as_named(self.setting.policy) if is_untrusted(self.setting.policy) else describe(self.policy())

    def inputs(self) -> Mapping[str, Sequence[Any]]:
        """Return the clients."""
        return {"client": self.clients}

    def times_decisions(self, policy: KernelsPolicy) -> bool:
        """Time no decision: each takes about as long as a look at the clock."""
        return False

    def row_kinds(self) -> tuple[type[IntEnum], Limits]:
        """Return the kinds of rows about clients and kernels, and how many there are of both."""
        count, kernels = len(self.clients), max(len(client.program.kernels) for client in self.clients)
        held_up = (int(Kind.HELD_UP),)
        return Kind, {"subject": (count, CLIENT_KINDS), "place": (kernels, KERNEL_KINDS), "detail": (count, held_up)}

    def begin(self) -> RunParts:
        """Make the GPU before anything has happened."""
        policy = self.policy()
        state = fresh_state(self.clients, self.setting.device, policy)
        executor = SimulatedGpu(state, policy.sharing, raised=policy.raised, horizon=self.setting.horizon)
        return RunParts(state, policy, executor)

    def progress(self, state: KernelsState, now: int) -> Far:
        """Count time: programs go on until the run ends."""
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
    found = {}
    for name, text in (("slo", slo), ("floor", floor)):
        if text is None:
            continue
        try:
            found[name] = float(text[:-1]) / 100 if text.endswith("%") else float(text)
        except ValueError:
            wanted = "a slow-down, e.g. 1.05" if name == "slo" else "a share, e.g. 5%"
            raise ExperimentError(f"--{name} {text!r} is not {wanted}") from None
    build("headway", defaults=found)  # its rules for both, whatever policies are asked for
    return found


def check_seconds(seconds: float) -> float:
    """A run of some length, and one that ends before the day does."""
    if not 0 < seconds <= MOST_SECONDS:
        raise ExperimentError(f"--seconds {seconds:g} must be above 0 and at most {MOST_SECONDS}")
    return seconds


def check_settle(settle: int) -> int:
    """Return a time to settle that is no longer than a run may be."""
    if settle > MOST_SECONDS * SECOND:
        raise ExperimentError(f"gpu settle {format_duration(settle)} must be at most {MOST_SECONDS} s")
    return settle


def clients_of(each: Setting, sources: Mapping[str, Source] | None = None) -> tuple[Client, ...]:
    """The clients of a run; where each begins in its program, and when, is drawn. ``sources``: those read already."""
    if not each.high:
        raise ExperimentError("a run of kernels needs a program above: headway gpu simulate resnet50 …")
    draw = stream(each.seed, "kernels")
    clients: list[Client] = []
    for text, usual in (*((text, 0) for text in each.high), *((text, LOW_PRIORITY) for text in each.low)):
        name, priority = prioritised(text, usual)
        program = sources[name].program if sources is not None else program_of(name)
        if usual == 0 and each.think >= SLEEP:
            program = cold(program, COLD_PPM, COLD_UNTIL)
        same = sum(client.program.name == program.name for client in clients)
        clients.append(
            Client(
                program.name if not same else f"{program.name}-{same + 1}",
                program,
                priority,
                think=each.think if usual == 0 else 0,
                start=int(draw.integers(0, MILLISECOND)),
                first=int(draw.integers(0, len(program.firsts))),
            )
        )
    return tuple(clients)


def prioritised(text: str, usual: int) -> tuple[str, int]:
    """``bert-b32@3``: of priority 3."""
    name, at, priority = text.rpartition("@")
    if not at:
        return text, usual
    if not priority.isdecimal():
        raise ExperimentError(f"program {text!r}: priority {priority!r} is not a number between 0 and 9")
    return name, int(priority)


def notes(clients: Sequence[Client]) -> list[str]:
    """Return what the numbers of a run cannot say: a slow-down of a program above that never waits."""
    highest = min(client.priority for client in clients)
    return [
        f"{client.name} never waits for the GPU, so it has no request: no latency and no slow-down"
        for client in clients
        if client.priority == highest and not any(launch.waits for launch in client.program.launches)
    ]


def few(each: Setting, policies: Sequence[str]) -> list[str]:
    """Return what is to be said of a run so short that the moments in which headway settles are much of what counts."""
    usual = ((each.high, 0), (each.low, LOW_PRIORITY))
    priorities = {prioritised(text, priority)[1] for texts, priority in usual for text in texts}
    settles = SETTLE - each.settle
    if len(priorities) < 2 or settles <= 0 or each.seconds * SECOND >= 3 * settles:
        return []
    if not any(policy.startswith("headway") for policy in policies):
        return []
    first = f"the first {SETTLE / SECOND:g} s or so, until headway lets a steady amount through,"
    left_out = f"leave them out with --set gpu.settle={format_duration(SETTLE)}"
    return [f"{first} are much of these {each.seconds:g} s: try --seconds 3, or {left_out}"]


def policy_of(each: Setting) -> KernelsPolicy:
    """The policy that a run names, one from a file too."""
    return build(resolve(each.policy, "gpu"), defaults=each.options)


def summary(scene: GpuScene, tape: Tape, *, complete: bool) -> dict[str, Any]:
    """Return slow-down above, harvest below, and each program by itself; of a run cut short, up to its last step."""
    setting = scene.setting
    return summarise(scene.clients, setting.device, tape, setting.horizon if complete else 0, setting.settle)


def numbers(scene: GpuScene, tape: Tape, *, complete: bool = True) -> dict[str, Any]:
    """Return what a tape says, under the name of its policy."""
    found = summary(scene, tape, complete=complete)
    return {"policy": scene.policy_name(), **found, "events": len(tape), "digest": tape.digest}


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
    """Return what one of several runs is to tell how far it is."""
    tell(name, before / runs)

    def told(far: Far) -> None:
        what = f"{name}: {min(far.now, far.last) / SECOND:.2f} of {far.last / SECOND:g} s"
        tell(what, (before + far.share) / runs)

    return told

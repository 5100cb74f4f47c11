"""Prepare a run of programs that share one GPU: from an experiment to clients, a device and a policy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from headway.core.audit import Finding
from headway.core.tape import Tape
from headway.core.tasks import Far
from headway.gpu.audit import audit
from headway.gpu.experiment.in_memory import (
    Setting,
    begun,
    check_seconds,
    check_settle,
    clients_of,
    few,
    notes,
    options,
)
from headway.gpu.metrics import summarise
from headway.gpu.model.program import Client
from headway.gpu.model.rows import CLIENT_KINDS, KERNEL_KINDS, Kind
from headway.gpu.model.state import KernelsState
from headway.gpu.policies.parts import KernelsPolicy
from headway.gpu.policies.registry import build, describe
from headway.gpu.replay import about, replay
from headway.jobs.tables.cluster import within
from headway.plugins import anchored, as_named, is_untrusted, resolve
from headway.runs.domain import RunParts, Scene, with_table
from headway.runs.folder.folder import Limits

if TYPE_CHECKING:
    from headway.gpu.experiment.settings import GpuExperiment


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
        state, executor = begun(self.setting, self.clients, policy)
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
        from headway.gpu.programs import clients as kernel_clients

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
    from headway.jobs.tables.settings import span

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

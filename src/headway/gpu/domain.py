"""Describe the gpu scale: programs that share one GPU, kernel by kernel."""

from pathlib import Path

from headway.gpu.experiment.flags import EXAMPLES, FLAGS, WORK
from headway.gpu.experiment.in_memory import clients_of
from headway.gpu.experiment.scene import GpuScene, policy_of, prepare, setting_of
from headway.gpu.experiment.settings import GpuExperiment
from headway.gpu.policies.registry import describe
from headway.gpu.programs import clients as kernel_clients
from headway.gpu.programs.sources import files_of
from headway.plugins import of_run
from headway.runs.domain import Domain, with_table


class GpuDomain(Domain):
    """Programs of higher and lower priority on one GPU."""

    name = "gpu"
    subject = "program"
    about = "Programs that share one GPU, kernel by kernel: who is slowed down, and what do the others get?"
    tables = GpuExperiment
    work = WORK
    flags = FLAGS
    examples = EXAMPLES
    view_module = "headway.gpu.view"
    example_policies = "time-slicing,mps,headway"
    example_axis = "gpu.think=0ms,5ms"
    file_keys = dict.fromkeys(("gpu.high", "gpu.low"), files_of)

    def prepare(self, experiment: GpuExperiment) -> GpuScene:
        """Find the programs, and draw where each begins."""
        return prepare(experiment)

    def load(self, experiment: GpuExperiment, folder: Path, *, trust: bool) -> GpuScene:
        """Read the programs of a stored run back."""
        clients = kernel_clients.read(folder / kernel_clients.NAME)
        experiment = with_table(experiment, "policy", name=of_run(experiment.policy.name, folder, trust=trust))
        return GpuScene(setting_of(experiment), clients, experiment)

    def split_file_value(self, value: str) -> tuple[str, str, str]:
        """Split off the priority of a program."""
        name, at, priority = value.rpartition("@")
        return ("", name, f"@{priority}") if at else ("", value, "")

    def policy_name(self, experiment: GpuExperiment) -> str:
        """Return the policy with the options that differ from their defaults."""
        return describe(policy_of(setting_of(experiment)))

    def check(self, experiment: GpuExperiment) -> None:
        """Raise where a program or the policy does not exist."""
        setting = setting_of(experiment)
        clients_of(setting)
        policy_of(setting)


DOMAIN = GpuDomain()

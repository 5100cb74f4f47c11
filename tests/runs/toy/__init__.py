"""A fourth scale, to prove that one is a folder and a registry line: tasks that queue for one server."""

from pathlib import Path

from headway.runs.domain import Domain
from headway.runs.settings.flags import Flag
from tests.runs.toy.scene import ToyExperiment, ToyScene, drawn, policy_of, stored_tasks


class ToyDomain(Domain):
    """Tasks and one server."""

    name = "toy"
    subject = "task"
    about = "Tasks that queue for one server."
    tables = ToyExperiment
    work = (Flag("tasks", "toy.tasks", "How many tasks.", metavar="TASKS"),)
    flags = (Flag("busy", "toy.busy", "Share of the time that the server has work.", float),)
    axes = (Flag("busies", "toy.busy", "Several of them.", float),)
    examples = {  # noqa: RUF012
        "simulate": "20 --policy shortest",
        "compare": "20 --policies in-order,shortest",
        "sweep": "20 --policies in-order,shortest -o sweeps/toy",
    }
    view_module = "tests.runs.toy.view"
    example_policies = "in-order,shortest"
    example_axis = "toy.busy=1,2"
    file_keys = {}  # noqa: RUF012

    def prepare(self, experiment: ToyExperiment) -> ToyScene:
        """Draw the tasks."""
        policy_of(experiment)
        return ToyScene(experiment, drawn(experiment))

    def load(self, experiment: ToyExperiment, folder: Path, *, trust: bool) -> ToyScene:
        """Read the tasks of a stored run back."""
        return ToyScene(experiment, stored_tasks(folder))

    def policy_name(self, experiment: ToyExperiment) -> str:
        """Return the policy as it is written."""
        return policy_of(experiment).name


DOMAIN = ToyDomain()

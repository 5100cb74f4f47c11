"""The scale of inference pipelines on a fleet of workers."""

from pathlib import Path

from headway.experiment.domain import Domain
from headway.experiment.fleet.flags import FLAGS
from headway.experiment.fleet.scene import FleetScene, load, policy_name, prepare
from headway.formats.serving_settings import ServingExperiment


class FleetDomain(Domain):
    """Requests that pass through graphs of models, on a fleet."""

    name = "fleet"
    subject = "request"
    tables = ServingExperiment
    flags = FLAGS
    view_module = "headway.experiment.fleet.view"
    example_policies = "hash,compass,headway"
    file_keys = ("serving.scenario", "serving.profile", "serving.interference", "workload.arrivals")

    def prepare(self, experiment: ServingExperiment) -> FleetScene:
        """Make the catalogue, the fleet and the requests."""
        return prepare(experiment)

    def load(self, experiment: ServingExperiment, folder: Path, *, trust: bool) -> FleetScene:
        """Read the requests of a stored run back, and the scenario that lies beside them."""
        return load(experiment, folder, trust=trust)

    def policy_name(self, experiment: ServingExperiment) -> str:
        """Return the policy as it was written; one from a file by its own name."""
        return policy_name(experiment)


DOMAIN = FleetDomain()

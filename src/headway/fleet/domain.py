"""The fleet scale: inference pipelines on a fleet of workers."""

from pathlib import Path

from headway.fleet.experiment.flags import AXES, CHANGES, EXAMPLES, FLAGS, WORK
from headway.fleet.experiment.scene import FleetScene, load, policy_name, policy_of, prepare, to_measure
from headway.fleet.scenarios import file as scenario_file
from headway.fleet.scenarios.tables.settings import ServingExperiment, split_arrivals
from headway.fleet.traces.changing_rate import file_of
from headway.profiling import pairs as pair_file
from headway.runs.domain import Domain


class FleetDomain(Domain):
    """Requests that pass through graphs of models, on a fleet."""

    name = "fleet"
    subject = "request"
    about = "Inference pipelines on a fleet: which policy, how many workers, at what cost?"
    tables = ServingExperiment
    work = WORK
    flags = FLAGS
    changes = CHANGES
    axes = AXES
    examples = EXAMPLES
    view_module = "headway.fleet.view"
    example_policies = "hash,compass,headway"
    example_axis = "workload.rate=2,4"
    measured_key = "serving.controller"
    file_keys = {  # noqa: RUF012
        "serving.scenario": scenario_file.files_of,
        "serving.profile": lambda value: [] if value in scenario_file.NAMED_PROFILES else [Path(value).expanduser()],
        "serving.interference": lambda value: [pair_file.path_of(value)],
        "workload.arrivals": lambda value: [path] if (path := Path(value).expanduser()).is_file() else [],
    }

    def prepare(self, experiment: ServingExperiment) -> FleetScene:
        """Make the catalogue, the fleet and the requests."""
        return prepare(experiment)

    def load(self, experiment: ServingExperiment, folder: Path, *, trust: bool) -> FleetScene:
        """Read the requests of a stored run back, and the scenario that lies beside them."""
        return load(experiment, folder, trust=trust)

    def split_file_value(self, value: str) -> tuple[str, str, str]:
        """Split off what stands around the file of ``rates:FILE.csv,squeeze=60``."""
        kind, options = split_arrivals(value)
        name = file_of(options) if kind == "rates" else ""
        before, _, after = value.partition(name) if name else ("", "", "")
        return before, name or value, after

    def to_measure(self, experiment: ServingExperiment) -> ServingExperiment | None:
        """Return the policy on its fleet, where the decision time of its controller is to be measured."""
        return to_measure(experiment)

    def policy_name(self, experiment: ServingExperiment) -> str:
        """Return the policy as it was written; one from a file by its own name."""
        return policy_name(experiment)

    def check(self, experiment: ServingExperiment) -> None:
        """Raise where the scenario or the policy does not exist."""
        scenario_file.path_of(experiment.serving.scenario)
        policy_of(experiment)


DOMAIN = FleetDomain()

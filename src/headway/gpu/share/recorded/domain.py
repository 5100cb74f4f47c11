"""Runs that the broker of ``headway share`` recorded: they are opened, shown and checked, and never simulated."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from headway.errors import ExperimentError
from headway.gpu.share.recorded.scene import ShareScene
from headway.gpu.share.recorded.settings import ShareExperiment
from headway.runs.domain import Domain


class ShareDomain(Domain):
    """Programs that shared a real GPU."""

    name = "share"
    subject = "program"
    about = "Programs that shared a real GPU, as its broker recorded it."
    tables = ShareExperiment
    work = ()
    flags = ()
    examples: Mapping[str, str] = MappingProxyType({})
    view_module = "headway.gpu.share.recorded.view"
    example_policies = "headway"
    example_axis = ""
    file_keys: Mapping[str, Callable[[str], list[Path]]] = MappingProxyType({})

    def prepare(self, experiment: ShareExperiment) -> ShareScene:
        """Refuse: what a broker recorded happened once."""
        raise ExperimentError(
            "scale share: a broker recorded this on a real GPU, and it cannot be run again; "
            "headway gpu predict simulates how programs share a GPU"
        )

    def load(self, experiment: ShareExperiment, folder: Path, *, trust: bool) -> ShareScene:
        """Return the scene; all else is on the tape."""
        return ShareScene(experiment)

    def policy_name(self, experiment: ShareExperiment) -> str:
        """Return the policy's name: there is one."""
        return experiment.policy.name

    def draws(self, experiment: ShareExperiment) -> bool:
        """Return False: nothing is drawn."""
        return False


DOMAIN = ShareDomain()

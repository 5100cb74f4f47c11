"""What an allocation can divide: what all nodes count, or none."""

from dataclasses import replace

import pytest

from headway.errors import ExperimentError
from headway.experiment.division import check_division
from headway.formats.settings import Experiment
from headway.training.cluster import Cluster, Node
from headway.training.policies.registry import build

FULL = Node("full", 4, "gpu", 12_000, 10**11, 10**9)


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        ({"cpu_milli": None}, "node bare does not say its CPUs"),
        ({"memory_bytes": None}, "memory"),
        ({"storage_bytes_per_second": None}, "storage bandwidth"),
    ],
)
def test_a_node_that_does_not_say_what_others_do_is_refused(missing: dict[str, None], told: str) -> None:
    cluster = Cluster((FULL, replace(FULL, name="bare", **missing)))
    with pytest.raises(ExperimentError, match=f"allocation tune: .*{told}"):
        check_division(Experiment(), cluster, build("fifo+tune"))
    check_division(Experiment(), cluster, build("fifo"))
    check_division(Experiment(), Cluster((replace(FULL, **missing),)), build("fifo+tune"))

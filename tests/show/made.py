"""Small runs for reports: folders as the program leaves them, and their measures."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headway.jobs.show.page.measured import Comparison, Measured
from headway.runs.folder.folder import open_run
from headway.runs.measured import measured
from headway.runs.settings.files import variants

RACKS = [{"name": "rack", "nodes_per_domain": 4}]
BUSY: dict[str, Any] = {
    "trace": {"synthetic": {"jobs": 150, "load": 1.3}},
    "cluster": {
        "node_groups": [{"nodes": 6, "gpus": 8}, {"nodes": 2, "gpus": 4, "gpu_type": "old"}],
        "levels": RACKS,
        "partitions": [{"name": "prod", "nodes": "0-5"}, {"name": "dev", "nodes": "6-7"}],
    },
    "costs": {"preemption": "60s", "migration": "60s"},
    "failures": {"mtbf": "2d", "repair": "3h", "maintenance": [{"nodes": [1], "start": "2h", "length": "4h"}]},
}


def leave(folder: Path, document: Mapping[str, Any], policy: str = "fifo", label: str = "") -> Path:
    """Run an experiment into a folder."""
    whole = {"scale": "jobs", **document, "policy": {"name": policy}, "run": {"out": str(folder), "seed": 3}}
    ((_, each),) = variants(whole, "test")
    measured(each, label)
    return folder


def opened(*folders: Path, base: int = 0) -> Comparison:
    """The folders as the runs of a report."""
    runs = [Measured(folder.name, folder.name, open_run(folder)) for folder in folders]
    return Comparison(tuple(runs), base)

"""Define ``headway shadow``: decide beside a scheduler that somebody keeps, and say what that would have saved."""

import sys
import time
from inspect import Parameter
from pathlib import Path
from tempfile import TemporaryDirectory

from headway.cli import console
from headway.cli.answers import show_answer
from headway.cli.app import app
from headway.cli.options import JSON, Given, argument, command, option
from headway.cli.scales import SET
from headway.errors import ExperimentError
from headway.jobs.slurm.live.client import SlurmClient
from headway.jobs.slurm.shadow import answer as savings, dumps, looks as slurm
from headway.jobs.slurm.shadow.folder import SETTINGS_NAME, opened
from headway.runs.stopping import status
from headway.units import SECOND, parse_duration


@command(
    app,
    "shadow",
    [
        argument(
            "dumps", list[str] | None, "What sacct, squeue --json or scontrol printed, in order.", "[DUMP]...", None
        ),
        option("out", str, "Its folder; one that is there goes on.", "--out", "-o", default=Parameter.empty),
        option("slurm", bool, "Look at the Slurm of this machine; it changes nothing.", "--slurm", default=False),
        option("policy", str, "Who decides; site: the site's own. That of before if left out.", default=""),
        option("cluster", list[str] | None, "A file of the site: nodes, partitions, QOSs, …", metavar="FILE"),
        option("config", str, "slurm.conf, or what scontrol show config prints.", default="", metavar="FILE"),
        option("every", str, "With --slurm: time between looks.", default="60s", metavar="TIME"),
        option("looks", int, "With --slurm: end after so many; 0: at Ctrl-C.", default=0, min=0),
        option(
            "confidence",
            float,
            "Of intervals: 0.95 if left out, 0 for none.",
            default=savings.LEVEL,
            min=0.0,
            max=0.999,
        ),
        *(JSON, SET),
    ],
    "Decide beside a scheduler that you keep: carry nothing out, and say which waits that would have avoided.\n\n"
    "headway shadow --slurm --policy srtf+easy -o shadows/srtf\n\n"
    "headway shadow monday.txt tuesday.txt --cluster nodes.txt --config slurm.conf --policy fifo+easy -o shadows/easy",
)
def shadow(given: Given) -> None:
    """Take looks at a cluster, from files or from a Slurm, and say what a policy would have saved."""
    every = parse_duration(given["every"], what="--every")
    if every < SECOND:
        raise ExperimentError(f"--every {given['every']}: at least 1s")
    if given["slurm"]:
        slurm.refuse_dumps(given["dumps"] or ())
        _watch(given, every)
        return
    with opened(Path(given["out"]), *_asked(given)) as found:
        stopped = dumps.take(found, given["dumps"] or (), console.note)
        show_answer(savings.answer(found, given["confidence"]), given["as_json"])
    if stopped:
        sys.exit(status())


def _asked(given: Given) -> tuple[str, list[str], str, list[str]]:
    return given["policy"], given["cluster"] or [], given["config"], given["set"] or []


def _watch(given: Given, every: int) -> None:
    """Look at a Slurm until Ctrl-C; the files of the site are asked for at the first look."""
    client, folder = SlurmClient(), Path(given["out"])
    policy, cluster, config, more = _asked(given)
    with TemporaryDirectory() as asked:
        if not (folder / SETTINGS_NAME).is_file():
            files, own, lacking = slurm.site_files(client, Path(asked))
            cluster, config = [*cluster, *files], config or own
            for line in lacking:
                console.note(f"note: {line}")
        with opened(folder, policy, cluster, config, more) as found:
            stopped = slurm.watch(found, client, every, given["looks"], _stamped)
            show_answer(savings.answer(found, given["confidence"]), given["as_json"])
    if stopped:
        sys.exit(status())


def _stamped(line: str) -> None:
    console.note(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}")

"""Define ``headway jobs tune``: search rules of a Slurm site for a stated aim."""

import os
from inspect import Parameter

from headway import api
from headway.cli.answers import show_answer
from headway.cli.options import JSON, Given, argument, command, option, setting
from headway.cli.questions import GROUPS
from headway.cli.scales import RUN, SET
from headway.jobs.experiment.flags import FLAGS, WORK
from headway.runs.settings import common_flags

_NAMES = (
    *("cluster", "start", "end", "format", "map", "estimates", "skip_infeasible", "strict", "skip_bad_rows", "warmup"),
    *("qos", "partition", "preempt", "shares"),
)
_SETTINGS = [
    *(flag for flag in FLAGS if flag.name in _NAMES),
    common_flags.POLICY,
    common_flags.SEEDS,
    common_flags.CONFIDENCE,
    common_flags.SEED,
]


@command(
    GROUPS["jobs"],
    "tune",
    [
        argument("trace", str | None, WORK[0].help, "TRACE", None),
        option(
            "knob",
            list[str] | None,
            "A rule and its values: qos long.MaxTRESPU=gres/gpu=16|24|32.",
            metavar="RULE=A|B",
        ),
        option("lower", str, "What to lower: wait of QOS normal, wait of all.", default=Parameter.empty, metavar="AIM"),
        option(
            "keep",
            list[str] | None,
            "What may rise by 5 % at most: wait of QOS long; or so: wait of all 10%.",
            metavar="AIM",
        ),
        option("test_from", str, "Test on jobs from then on; the last third if left out.", default="", metavar="DATE"),
        *(setting(flag) for flag in _SETTINGS),
        option("processes", int | None, "Runs at a time: all cores if left out.", min=1, max=256, panel=RUN),
        *(JSON, SET),
    ],
    "Search rules of a Slurm site for an aim, test the best on a later window, and print the commands to set it.\n\n"
    "headway jobs tune sacct.txt --cluster slurm.conf --cluster qos.txt --policy slurm:slurm.conf "
    '--knob "qos long.MaxTRESPU=gres/gpu=16|24|32|48" --lower "wait of QOS normal" --keep "wait of QOS long"',
)
def tune(given: Given) -> None:
    """Search the knobs."""
    settings = {flag.name: given[flag.name] for flag in _SETTINGS}
    work = api.work("jobs", trace=given["trace"], set=given["set"], **settings)
    at_once = given["processes"] or len(os.sched_getaffinity(0))
    answer = api.tune_all(work, given["knob"] or (), given["lower"], given["keep"] or (), given["test_from"], at_once)
    show_answer(answer, given["as_json"])

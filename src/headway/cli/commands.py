"""Define the commands that belong to no scale: run an experiment file, the demo, the list of policies."""

from headway import api
from headway.cli import console
from headway.cli.app import app
from headway.cli.options import JSON, Given, argument, command, option, setting
from headway.cli.results import check_outputs, outputs_of, show_result
from headway.cli.scales import BY, PICTURE, PROCESSES, REPORT, SET
from headway.jobs.show.terminal import comparison as tables
from headway.plugins import resolve
from headway.runs.registry import domain_of
from headway.runs.settings import common_flags
from headway.runs.settings.files import read

DEMO_NODES = 128
DEMO_JOBS = 30_000
DEMO_LOAD = 0.95
DEMO_LONGEST = "2d"
"""The time limit of the cluster: without one a few jobs of weeks would outlast all others."""
DEMO_COST = "60s"
DEMO_BASELINE = "fifo+easy"
"""What many clusters run: in order of submission, small jobs filling the gaps."""
DEMO_POLICIES = (
    *("fifo", "fifo+fit", "fifo+easy", "sjf", "srtf", "las", "tiresias", "ftf", "drf", "multifactor+easy", "qssf"),
)


@command(
    app,
    "run",
    [
        argument("path", str, "An experiment as TOML.", "EXPERIMENT.toml"),
        *(setting(flag) for flag in (*common_flags.MEASURED, common_flags.OUT)),
        *(JSON, REPORT, PICTURE, BY, SET, PROCESSES),
    ],
    "Run an experiment from a TOML file; with variants, a run for each.\n\n"
    "headway run experiments/example.toml --set policy.name=srtf --set cluster.nodes=20",
)
def run(given: Given) -> None:
    """Run the experiments of a file."""
    settings = {flag.name: given[flag.name] for flag in (*common_flags.MEASURED, common_flags.OUT)}
    experiments = read(given["path"], given["set"], **settings)
    outputs = outputs_of(given, several=len(experiments) > 1)
    check_outputs(outputs, domain_of(experiments[0][1]).view, experiments[0][1].run.out)
    show_result(api.run_all(experiments, given["processes"], keep=bool(outputs.report)), outputs)


def demo_work(jobs: int, seed: int = 0) -> api.Work:
    """Return the demo's cluster in a busy week."""
    drawn = api.synthetic(jobs, load=DEMO_LOAD, longest=DEMO_LONGEST)
    costs = {"costs.migration": DEMO_COST}
    return api.Jobs(drawn, nodes=DEMO_NODES, gpus_per_node=8, preemption_cost=DEMO_COST, seed=seed, set=costs)


@command(
    app,
    "demo",
    [
        option("jobs", int, "Jobs to draw.", default=DEMO_JOBS, min=1, max=1_000_000),
        option("seed", int, "Seed of everything that is drawn.", default=0),
        *(setting(flag) for flag in (common_flags.SEEDS, common_flags.BASELINE)),
        *(JSON, PICTURE, REPORT, PROCESSES),
    ],
    "Compare policies on a drawn workload: a busy week on 1,024 GPUs, no files needed.\n\n"
    "headway demo --jobs 50000 --seed 7 --processes 8 --report demo.html",
)
def demo(given: Given) -> None:
    """Compare a dozen policies on drawn jobs."""
    outputs = outputs_of(given)
    work = demo_work(given["jobs"], given["seed"])
    check_outputs(outputs, work.domain.view, None)
    console.note(
        f"{given['jobs']:,} jobs drawn like those of the Philly cluster, {DEMO_LONGEST} long at most, on {DEMO_NODES} "
        f"nodes with 8 GPUs each, {DEMO_COST} a preemption"
    )
    settings = {"seeds": given["seeds"], "baseline": given["baseline"] or DEMO_BASELINE}
    comparison = api.compare(work, DEMO_POLICIES, processes=given["processes"], keep=bool(outputs.report), **settings)
    show_result(comparison, outputs)


@command(
    app,
    "policies",
    [JSON],
    "List every part that a policy can be made of.\n\n"
    'Parts are joined by +, options stand in brackets: headway jobs simulate … --policy "tiresias(promote=8)+easy"\n\n'
    'Those of a fleet and of a GPU are whole: headway gpu simulate … --policy "headway(slo=1.1)"',
)
def policies(given: Given) -> None:
    """List the parts of policies."""
    resolve("")
    console.print_json(tables.parts()) if given["as_json"] else console.out().print(tables.parts_table())

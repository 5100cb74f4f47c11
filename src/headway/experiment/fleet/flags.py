"""The settings of a run of a fleet that have a flag. Whatever has none is set by its key: --set serving.profile=law."""

from headway.experiment.common_flags import WARMUP
from headway.experiment.flags import Flag

FLEET = "Fleet"

WORK = (
    Flag("scenario", "serving.scenario", "A scenario by name, or a file of your own (.toml, .py).", metavar="SCENARIO"),
)
AXES = (
    Flag("rates", "workload.rate", "Requests a second: 2,4,8.", float),
    Flag("workers", "serving.workers", "Workers: 4,8.", int),
)
EXAMPLES = {
    "simulate": "compass --policy compass --workers 5 --rate 2 --requests 1000 --out runs/compass",
    "compare": "esg --setting strict-light --policies stagewise,plan-once,esg,headway --requests 20000",
    "sweep": "compass --policies compass,headway --workers 4,8 --rates 1,2,4 -o sweeps/fleet",
}
FLAGS = (
    Flag("workers", "serving.workers", "Workers, a GPU each; the scenario's if left out.", int),
    Flag("rate", "workload.rate", "Requests a second in total; the scenario's if left out.", float),
    Flag("requests", "workload.requests", "How many requests; the scenario's if left out.", int),
    Flag(
        "arrivals",
        "workload.arrivals",
        "poisson, gamma:CV, onoff, uniform:A,B, or a trace of requests.",
        metavar="HOW|FILE",
    ),
    Flag("slo", "workload.slo", "Deadline for all graphs: 500ms, or 1.2L: times the least path."),
    Flag("setting", "serving.setting", "A setting of the scenario; esg has strict-light, relaxed-heavy, …"),
    Flag(
        "skip_bad_rows", "workload.skip_bad_rows", "Go on although a rule drops over a tenth of the rows.", bool, FLEET
    ),
    WARMUP,
    Flag(
        "failures",
        "failures.*",
        "mtbf=30d,repair=4h of one worker, or every=30s,repair=10s of some worker.",
        panel=FLEET,
    ),
    Flag("push_interval", "serving.push_interval", "How often workers tell the others of themselves.", panel=FLEET),
    Flag(
        "control", "serving.control", "central or decentralised; as the scenario or the policy wants it.", panel=FLEET
    ),
    Flag(
        "fidelity", "serving.fidelity", "true, or authors: the simplifications of the papers' simulators.", panel=FLEET
    ),
)

"""Command-line flags of fleet runs. Settings without a flag are set by their key: --set serving.interference=h200."""

from headway.runs.settings.common_flags import STATISTICS
from headway.runs.settings.flags import Flag

FLEET = "Fleet"

WORK = (
    Flag("scenario", "serving.scenario", "A scenario by name, or a file of your own (.toml, .py).", metavar="SCENARIO"),
)
AXES = (
    Flag("rates", "workload.rate", "Requests a second: 2,4,8.", float),
    Flag("loads", "workload.load", "Or parts of what the fleet serves: 0.4,0.8.", float),
    Flag("workers", "serving.workers", "Workers: 4,8.", int),
)
EXAMPLES = {
    "simulate": "compass --policy compass --workers 5 --rate 2 --requests 1000 --out runs/compass",
    "compare": "esg --setting strict-light --policies stagewise,esg,headway",
    "sweep": "compass --policies compass,headway --workers 4,8 --rates 1,2,4 -o sweeps/fleet",
}
FLAGS = (
    Flag("workers", "serving.workers", "Workers, a GPU each; the scenario's if left out.", int),
    Flag("slices", "serving.slices", "Of an app: sevenths of a GPU, worker by worker: 1,2,4.", metavar="SHARES"),
    Flag("gpu_memory", "serving.gpu_memory", "GPU memory of each; the scenario's if left out.", metavar="SIZE"),
    Flag("rate", "workload.rate", "Requests a second; the scenario's if left out.", float),
    Flag("load", "workload.load", "Or: a part of what the fleet serves, e.g. 0.6.", float),
    Flag("requests", "workload.requests", "How many requests; the scenario's if left out.", int),
    Flag(
        "arrivals",
        "workload.arrivals",
        "poisson, gamma:CV, onoff, uniform:A,B, diurnal(peak=3,period=24h), rates:FILE.csv, a trace.",
        metavar="HOW|FILE",
    ),
    Flag("slo", "workload.slo", "Deadline: 500ms, or 1.2L: times the least path; of tokens ttft=500ms,tpot=50ms."),
    Flag("prompt_tokens", "workload.prompt_tokens", "Of requests that generate: 512, lognormal:400,0.9.", panel=FLEET),
    Flag("output_tokens", "workload.output_tokens", "The tokens that they generate, as above.", panel=FLEET),
    Flag("setting", "serving.setting", "Of the scenario; esg has strict-light, …"),
    Flag("start", "serving.start", "cold, or warm: with processes and weights.", panel=FLEET),
    Flag("profile", "serving.profile", "law, measured, paper, or a file.", panel=FLEET),
    Flag("autoscale", "serving.autoscale", "none, utilisation(target=0.6), queue or headway.", panel=FLEET),
    Flag("startup", "serving.startup", "How long a worker takes to start: 60s.", panel=FLEET),
    Flag("skip_bad_rows", "workload.skip_bad_rows", "Go on, however many are dropped.", bool, FLEET),
    Flag("warmup", "measure.warmup", "Do not measure the first 10% of the requests.", panel=STATISTICS),
    Flag(
        "failures",
        "failures.*",
        "Means: mtbf=30d,repair=4h, or every=30s.",
        panel=FLEET,
        needs=("mtbf", "every"),
        beside=("repair",),
    ),
    Flag("push_interval", "serving.push_interval", "How often workers tell of themselves.", panel=FLEET),
    Flag("control", "serving.control", "central or decentralised; else the policy's.", panel=FLEET),
    Flag("controller", "serving.controller", "Time of a decision: none, 10ms, calibrated.", panel=FLEET),
    Flag("fidelity", "serving.fidelity", "true, or authors: as the papers simulate.", panel=FLEET),
)
CHANGES = ("add_workers", "remove_workers", "memory", "policy", "slo", "start", "failures", "load", "set")
"""What a what-if may change."""

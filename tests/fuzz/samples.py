"""Hold what inputs start from: small sound files of every kind, four runs and a sweep."""

from pathlib import Path
from typing import Any

SAMPLES = Path(__file__).resolve().parent.parent / "samples"

TRACE = "submit_s,work_s,gpus,name,tenant,estimate_s,checkpoint_s,checkpoint_every_s\n" + "".join(
    f"{number * 7},{30 + number * 13 % 90},{1 + number % 4},j{number},{'ab'[number % 2]},{120},{number % 2},{20}\n"
    for number in range(12)
)

TRACES = {
    **dict.fromkeys(("acme-kalos.csv", "acme.csv", "headway.csv", "helios-log.csv", "helios.csv"), ","),
    **dict.fromkeys(("openb-pods.csv", "philly.csv", "synergy.csv", "table.csv"), ","),
    "sacct.txt": "|",
    "sacct-old.txt": "|",
    "swf.swf": " ",
    "scontrol-jobs.txt": " ",
    **dict.fromkeys(("azure-llm.csv", "azure-llm-2024.csv", "requests.csv"), ","),
}
"""Samples that are tables, and what stands between their cells."""
DOCUMENTS = ("philly-json.json", "sacct.json", "pods.json", "mooncake.jsonl")
CLUSTERS = ("scontrol-nodes.txt", "sinfo-nodes.txt", "sinfo-plain.txt", "sinfo.json", "nodes.json", "openb-nodes.csv")

EXPERIMENT: dict[str, Any] = {
    "scale": "jobs",
    "trace": {"path": "jobs.csv", "format": "headway", "load": 1.2, "estimates": "trace", "skip_infeasible": True},
    "cluster": {
        "node_groups": [
            {"nodes": 2, "gpus": 4, "gpu_type": "a100", "cpus": 16, "memory": "64GB"},
            {"nodes": 1, "gpus": 4, "gpu_type": "v100", "cpus": 16, "memory": "64GB", "names": ["old"]},
        ],
        "gpu_speed": {"v100": 0.5},
        "levels": [{"name": "rack", "nodes_per_domain": 2, "bandwidth": "25GB/s"}, {"name": "node"}],
        "sharing_penalty": 0.2,
        "partitions": [{"name": "debug", "nodes": "2-2", "priority": 10}],
        "tenants": [{"name": "a", "weight": 2, "guaranteed_gpus": 4, "limit_gpus": 8, "borrow": True}],
    },
    "policy": {"name": "fifo", "backfill": "easy", "placement": "best-fit", "preemption": "on", "quantum": "5s"},
    "costs": {"preemption": "3s", "migration": "6s"},
    "failures": {
        "mtbf": "10m",
        "repair": "1m",
        "maintenance": [{"nodes": "0-0", "start": "30s", "length": "20s", "lead": "10s"}],
    },
    "measure": {"warmup": "5%", "seeds": 1, "confidence": 0.9},
    "run": {"seed": 1},
    "variants": [{"name": "one", "set": {"policy": {"name": "fifo"}}}, {"name": "two", "set": {"run": {"seed": 2}}}],
}

DIVIDED: dict[str, Any] = {
    "scale": "jobs",
    "trace": {"synergy": {"jobs": 8, "rate": "60/h", "split": "50,0,50", "gpus": "multi"}},
    "cluster": {"nodes": 2, "gpus_per_node": 4, "cpus_per_node": 16, "memory_per_node": "64GB"},
    "policy": {"name": "srtf", "allocation": "tune", "round": "300s"},
    "speed": {"model": "matrix", "error": 0.1},
    "costs": {"reallocation": "1s"},
    "run": {"completions": "round", "seed": 3},
}

SERVED: dict[str, Any] = {
    "scale": "fleet",
    "serving": {"scenario": "mine.toml", "workers": 2, "control": "central"},
    "workload": {"requests": 20, "rate": 2.0, "slo": "2L"},
    "policy": {"name": "headway"},
    "run": {"seed": 1},
}

SHARED: dict[str, Any] = {
    "scale": "gpu",
    "gpu": {
        "high": ["resnet50"],
        "low": ["bert", "gpt2@3"],
        "think": "1ms",
        "seconds": 0.01,
        "settle": "1ms",
        "slo": "1.05",
        "floor": "5%",
    },
    "policy": {"name": "headway"},
    "run": {"seed": 1},
    "measure": {"seeds": 1, "confidence": 0.9},
    "variants": [{"name": "one", "set": {"policy": {"name": "mps"}}}, {"name": "two", "set": {"gpu": {"low": []}}}],
}

SWEEPS: dict[str, dict[str, Any]] = {
    "jobs": {
        "scale": "jobs",
        "trace": {"path": "jobs.csv"},
        "cluster": {"nodes": 2, "gpus_per_node": 4},
        "sweep": {"policy.name": ["fifo", "srtf"], "trace.load": [1.0, 1.5]},
        "measure": {"seeds": 1},
    },
    "fleet": {
        "scale": "fleet",
        "serving": {"scenario": "mine.toml"},
        "workload": {"requests": 15},
        "sweep": {"policy.name": ["hash", "headway"], "serving.workers": [1, 2]},
        "measure": {"seeds": 1, "baseline": "hash"},
    },
    "gpu": {
        "scale": "gpu",
        "gpu": {"high": ["resnet50"], "low": ["bert"], "seconds": 0.01},
        "sweep": {"policy.name": ["mps", "headway"], "gpu.think": ["0ms", "1ms"]},
        "measure": {"seeds": 1},
    },
}
"""A grid of each scale."""

CLUSTER: dict[str, Any] = EXPERIMENT["cluster"]

SCENARIO: dict[str, Any] = {
    "about": "Questions about pictures",
    "models": {"vision": "1.7GB", "language": "5.5GB"},
    "functions": {
        "look": {"models": ["vision"], "ms": 28, "cold_start": "0.2s", "instance_memory": "1GB", "spread": 0.03},
        "answer": {"models": ["language"], "cells": [[1, 1, 1, 56], [1, 1, 2, 34], [4, 1, 1, 129], [4, 1, 2, 79]]},
    },
    "graphs": {
        "ask": {
            "slo": "1.5s",
            "tasks": [
                {"name": "look", "function": "look", "input": "3000KB", "output": "2KB"},
                {"name": "answer", "function": "answer", "after": ["look"], "output": "1KB"},
            ],
        },
        "caption": {"chain": ["look", "answer"], "input": "3000KB", "output": "2KB"},
    },
    "law": {"batches": [1, 2, 4], "cpus": 2, "slices": [1, 2, 3], "batch_fixed": 0.25, "spread": 0.05},
    "fleet": {
        "hosts_per_rack": 4,
        "keep_alive": "10m",
        "workers": [
            {"count": 2, "name": "w", "gpu": "A100", "memory": "40GB", "slices": 3, "cpus": 4, "hour_usd": 4.2},
        ],
        "links": {"host_to_gpu": "24GiB", "latency": "10us"},
        "prices": {"cpu_hour": 0.034, "slice_hour": 0.67, "memory_gib_hour": 0.0044},
    },
    "workload": {"arrivals": "poisson", "rate": 5, "requests": 20, "slo": "2L", "mix": {"ask": 3, "caption": 1}},
    "settings": {"rush": {"rate": 25}},
}

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "headway"
PROFILE = (PACKAGE / "jobs" / "profiling" / "shipped" / "res18.toml").read_text()
PROGRAM = (PACKAGE / "gpu" / "programs" / "shipped" / "graph-b64.parquet").read_bytes()
"""The kernels of a program, recorded."""
PAIRS = (PACKAGE / "profiling" / "h200-pairs.json").read_text()
SITE = """ClusterName=orchid
PriorityType=priority/multifactor
PriorityWeightAge=1000
PriorityWeightFairShare=4000
PriorityMaxAge=3-0
PriorityDecayHalfLife=3-0
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=120,bf_max_job_test=200
PreemptType=preempt/qos
"""

OWN_ORDER = """from headway.jobs.policies.parts import Order


class Mine(Order):
    \"\"\"A user's own order.\"\"\"

    name = "mine"

    def key(self, now, js):
        return {key}
"""
KEYS = (
    *(
        "js.id",
        "js.id if js.id % 2 else 'x'",
        "float('nan')",
        "float('nan') if js.id % 2 else 1.0",
        "None",
        "(js.id, 'a')",
    ),
    *("1 / 0", "[]", "js.job.work_", "10 ** 400", "lambda: 0", "(1,) if js.id % 2 else 2", "complex(1, 2)", "now"),
)
"""What a user's order may give as a job's key, sound and unsound."""

RUNS = {
    "first": ("jobs", "simulate", "jobs.csv", "--nodes", "1", "--gpus-per-node", "4", "--policy", "fifo"),
    "second": ("jobs", "simulate", "jobs.csv", "--nodes", "2", "--gpus-per-node", "4", "--policy", "srtf+easy"),
    "served": ("fleet", "simulate", "mine.toml", "--policy", "headway", "--requests", "20"),
    "shared": ("gpu", "simulate", "resnet50", "bert", "--policy", "headway", "--seconds", "0.01"),
}
"""Runs that inputs look into, damaged or whole."""
SWEPT = {
    "swept": (
        *("jobs", "sweep", "jobs.csv", "--nodes", "2", "--gpus-per-node", "4", "--policies", "fifo,srtf"),
        *("--loads", "1,2", "--keep-runs", "--processes", "1"),
    ),
}
"""A sweep that inputs go on with."""

"""The figures of Compass and ESG as runs: keeps their numbers, prints the tables of docs/background/results/serving.md.

    python -m bench.serving authors true scale staleness workers bursts esg esg-traces speed decide --out FOLDER \
        --data FOLDER

Each run that ends is a line of ``runs.jsonl`` in the folder, so a command that was stopped goes on where it was; a run
whose settings or whose serving code changed is another run. ``--data`` is searched for traces of requests (Azure LLM,
Mooncake); parts that need them are left out without them, and say so.
"""

import argparse
import hashlib
import json
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import thread_time_ns
from typing import Any
from unittest.mock import patch

import headway
from headway.fleet.model.actions import Action
from headway.fleet.policies.headway import Headway
from headway.fleet.scenarios.tables.settings import ServingExperiment
from headway.fleet.state.state import ServingState
from headway.formats import toml
from headway.runs.measured import measured
from headway.runs.play import run

RATES = (0.5, 2.0, 2.5)
COMPASS = ("compass", "compass(adjust=off)", "jit", "hash", "heft", "headway")
ESG = ("stagewise", "plan-once", "esg", "exact", "headway")
SETTINGS = ("strict-light", "moderate-normal", "relaxed-heavy")
TRACES = {
    "Azure LLM": "AzureLLMInferenceTrace_conv.csv.gz",
    "Mooncake": "conversation_trace.jsonl.gz",
}
AUTHORS = {
    ("compass", 0.5): 1.32,
    ("compass", 2.0): 2.13,
    ("compass", 2.5): 3.1,
    ("compass(adjust=off)", 0.5): 1.34,
    ("compass(adjust=off)", 2.0): 2.10,
    ("compass(adjust=off)", 2.5): 2.9,
    ("jit", 0.5): 3.26,
    ("jit", 2.0): 7.29,
    ("jit", 2.5): 12.1,
    ("hash", 0.5): 3.49,
    ("hash", 2.0): 14.5,
    ("hash", 2.5): 41.5,
    ("heft", 0.5): 7.0,
}
"""What the authors' own simulator gives."""
SCALE_COMPASS = (74.15, 5.65, 4.27, 4.13, 4.46, 3.99, 3.38, 3.95, 3.96, 3.99, 4.53, 4.08)
SCALE_HASH = (113.74, 37.62, 17.21, 9.49, 6.89, 4.72, 4.18, 3.77, 3.40, 3.19, 2.98, 2.97)
FIVE = """
about = "A chain of five functions, for what a decision takes"

[functions]
first = { ms = 319, cold_start = "2s" }
second = { ms = 86, cold_start = "2s" }
third = { ms = 1047, cold_start = "2s" }
fourth = { ms = 293, cold_start = "2s" }
fifth = { ms = 147, cold_start = "2s" }

[graphs.chain]
chain = ["first", "second", "third", "fourth", "fifth"]
input = "3000KB"
output = "3000KB"

[law]
batches = [1, 2, 4, 8]
cpus = 8
slices = 7
batch_fixed = 0.25
batch_power = 0.85
cpu_share = 0.25
cpu_power = 0.6
slice_power = 0.7
spread = 0.05

[fleet]
workers = [{ count = 20, memory = "141GB", slices = 7, cpus = 16 }]

[workload]
arrivals = "poisson"
rate = 30
requests = 3000
slo = "1.2L"
"""
"""Five stages of 224 configurations each."""
P95 = 3.0
"""The slow-down at the 95th percentile that the number of workers is looked for."""


def code() -> str:
    """A digest of everything that a serving run goes through."""
    root = Path(headway.__file__).parent
    rooms = ("audit", "metrics", "model", "policies", "scenarios", "sim", "state", "traces")
    folders = ("core", *(f"fleet/{room}" for room in rooms))
    digest = hashlib.sha256()
    for folder in folders:
        assert (root / folder).is_dir(), folder
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".py", ".toml"):
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


class Runs:
    """What runs gave, kept in a file."""

    def __init__(self, folder: Path, *, stale: bool) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "runs.jsonl"
        self.code = code()
        self.mixed = False
        self.kept: dict[str, tuple[str, dict[str, Any]]] = {}
        if self.path.exists():
            for line in self.path.read_text().splitlines():
                found = json.loads(line)
                if stale or found["code"] == self.code:
                    self.kept[found["key"]] = (found["code"], found["row"])

    def of(self, **settings: Any) -> dict[str, Any]:
        """The numbers of one run."""
        document: toml.Document = {}
        for key, value in settings.items():
            if value is not None:
                toml.put(document, key.replace("__", "."), value)
        key = json.dumps(document, sort_keys=True)
        if key not in self.kept:
            each = toml.typed(document, ServingExperiment, "bench")
            row = measured(each).row
            row.pop("graphs", None)
            self.kept[key] = (self.code, row)
            with self.path.open("a") as file:
                file.write(json.dumps({"key": key, "code": self.code, "row": row}) + "\n")
            print(f"  {each.policy.name}: {row['wall_s']:.1f} s", file=sys.stderr, flush=True)
        made, row = self.kept[key]
        self.mixed = self.mixed or made != self.code
        return row

    def seeds(self, count: int, **settings: Any) -> list[dict[str, Any]]:
        """The same of several seeds."""
        return [self.of(run__seed=seed, **settings) for seed in range(count)]


def mean(rows: Sequence[dict[str, Any]], key: str) -> float:
    """Over seeds."""
    return statistics.fmean(row[key] for row in rows)


def spread(rows: Sequence[dict[str, Any]], key: str) -> float:
    """Their deviation."""
    return statistics.stdev(row[key] for row in rows) if len(rows) > 1 else 0.0


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> Iterator[str]:
    """As Markdown."""
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for line in lines:
        yield "| " + " | ".join(line) + " |"
    yield ""


# --- Compass --------------------------------------------------------------------------------------------------


def compass(runs: Runs, fidelity: str, policies: Sequence[str], seeds: int) -> Iterator[str]:
    """Mean slow-down on 5 workers."""
    lines = []
    for policy in policies:
        cells = []
        for rate in RATES:
            rows = runs.seeds(seeds, **_compass(policy, rate, fidelity), workload__requests=1000)
            said = AUTHORS.get((policy, rate)) if fidelity == "authors" else None
            against = f" (authors {said})" if said else ""
            cells.append(f"{mean(rows, 'slowdown_mean'):.2f} ± {spread(rows, 'slowdown_mean'):.2f}{against}")
        rows = runs.seeds(seeds, **_compass(policy, 2.0, fidelity), workload__requests=1000)
        lines.append([f"`{policy}`", *cells, f"{100 * mean(rows, 'cache_hit_rate'):.1f} %"])
    yield from table(["policy", *(f"{rate:g}/s" for rate in RATES), "cache hits at 2/s"], lines)


def _compass(policy: str, rate: float, fidelity: str, **more: Any) -> dict[str, Any]:
    return {
        "serving__scenario": "compass",
        "serving__fidelity": fidelity,
        "policy__name": policy,
        "workload__rate": rate,
        "workload__overload": True,
        **more,
    }


def authors(runs: Runs, seeds: int, _data: Path | None) -> Iterator[str]:
    """As the authors simulate it."""
    yield f"### Five workers, the authors' simplifications, mean slow-down over {seeds} seeds\n"
    yield from compass(runs, "authors", COMPASS, seeds)


def true(runs: Runs, seeds: int, _data: Path | None) -> Iterator[str]:
    """As it is."""
    yield f"### Five workers, shared models, look-ahead, prefetch, remainders, mean slow-down over {seeds} seeds\n"
    yield from compass(runs, "true", ("compass", "jit", "hash", "heft", "headway"), seeds)


def scale(runs: Runs, _seeds: int, _data: Path | None) -> Iterator[str]:
    """20 to 240 workers."""
    yield "### 1,000 requests at 40 a second, the authors' simplifications: median slow-down (workers used)\n"
    lines = []
    for index, workers in enumerate(range(20, 241, 20)):
        cells = []
        for policy in ("compass", "hash", "headway"):
            row = runs.of(**_compass(policy, 40, "authors", serving__workers=workers, workload__requests=1000))
            cells.append(f"{row['slowdown_p50']:.2f} ({row['workers_used']})")
        lines.append([str(workers), cells[0], f"{SCALE_COMPASS[index]}", cells[1], f"{SCALE_HASH[index]}", cells[2]])
    yield from table(["workers", "compass", "authors", "hash", "authors", "headway"], lines)


def staleness(runs: Runs, seeds: int, _data: Path | None) -> Iterator[str]:
    """How old rows may be."""
    count = min(seeds, 5)
    yield f"### Rows pushed less often: mean slow-down at 2 requests a second, {count} seeds\n"
    lines = []
    for interval in ("0s", "1ms", "10ms", "50ms", "200ms", "1s"):
        cells = []
        for fidelity in ("authors", "true"):
            pair = []
            for policy in ("compass", "headway"):
                settings = _compass(policy, 2.0, fidelity, serving__push_interval=interval, workload__requests=1000)
                pair.append(mean(runs.seeds(count, **settings), "slowdown_mean"))
            cells += [f"{pair[0]:.3f}", f"{pair[1]:.3f}", f"{pair[0] - pair[1]:.3f}"]
        lines.append([interval, *cells])
    head = [f"{policy}, {f}" for f in ("authors", "true") for policy in ("compass", "headway", "gain")]
    yield from table(["push interval", *head], lines)


def workers(runs: Runs, _seeds: int, _data: Path | None) -> Iterator[str]:
    """How many workers the same p95 takes."""
    yield f"### Workers needed for a slow-down of at most {P95:g} at the 95th percentile (shared models)\n"
    lines = []
    for rate in (1.0, 2.0, 4.0, 8.0, 16.0):
        needed = []
        for policy in ("hash", "heft", "jit", "compass", "headway"):
            needed.append(_needed(lambda n, p=policy, r=rate: _p95(runs, p, r, n), max(2, int(rate / 2))))  # type: ignore[misc]
        lines.append([f"{rate:g}/s", *(str(each or "> 64") for each in needed)])
    yield from table(["rate", "hash", "heft", "jit", "compass", "headway"], lines)


def _p95(runs: Runs, policy: str, rate: float, count: int) -> bool:
    row = runs.of(**_compass(policy, rate, "true", serving__workers=count, workload__requests=1000))
    return bool(row["slowdown_p95"] <= P95)


def _needed(enough: Callable[[int], bool], first: int) -> int:
    """The least number that is enough, 0 when 64 are not."""
    count = first
    while not enough(count):
        if count >= 64:
            return 0
        count = min(64, count * 2)
    low = count // 2 if count > first else 0
    while count - low > 1:
        middle = (count + low) // 2
        if enough(middle):
            count = middle
        else:
            low = middle
    return count


def bursts(runs: Runs, _seeds: int, data: Path | None) -> Iterator[str]:
    """Arrivals of real traces."""
    yield "### The Compass graphs with bursts, 2 requests a second on average: mean slow-down (p95)\n"
    kinds = {"Poisson": "poisson", "Gamma, CV 4": "gamma:4", "on/off": "onoff", **_traces(data)}
    lines = []
    for label, arrivals in kinds.items():
        cells = []
        for policy in ("hash", "jit", "compass", "headway"):
            row = runs.of(**_compass(policy, 2.0, "true", workload__arrivals=arrivals, workload__requests=2000))
            cells.append(f"{row['slowdown_mean']:.2f} ({row['slowdown_p95']:.2f})")
        lines.append([label, *cells])
    yield from table(["arrivals", "hash", "jit", "compass", "headway"], lines)


def _traces(data: Path | None) -> dict[str, str]:
    found = {}
    for label, name in TRACES.items():
        path = next(iter(sorted(data.rglob(name))), None) if data is not None else None
        if path is None:
            print(f"{label}: no {name} in --data; left out", file=sys.stderr)
        else:
            found[label] = str(path)
    return found


# --- ESG ------------------------------------------------------------------------------------------------------


def esg(runs: Runs, _seeds: int, _data: Path | None) -> Iterator[str]:
    """The three settings, with the stand-in law and the measured profile."""
    for profile in ("law", "measured"):
        yield f"### ESG's applications, 20,000 requests, profile `{profile}`: in time, dollars for 1,000 requests\n"
        yield from _esg(runs, {setting: {"serving__setting": setting} for setting in SETTINGS}, profile, 20_000)


def esg_traces(runs: Runs, _seeds: int, data: Path | None) -> Iterator[str]:
    """The same with the arrivals of real traces."""
    rates = {"strict-light": 1000 / 53.6, "moderate-normal": 1000 / 26.8, "relaxed-heavy": 1000 / 13.4}
    for label, path in _traces(data).items():
        yield f"### ESG's applications with the arrivals of {label} at the settings' mean rates, 10,000 requests\n"
        settings = {
            name: {"serving__setting": name, "workload__arrivals": path, "workload__rate": rate}
            for name, rate in rates.items()
        }
        for profile in ("measured", "law"):
            yield f"Profile `{profile}`:\n"
            yield from _esg(runs, settings, profile, 10_000)


def _esg(runs: Runs, settings: dict[str, dict[str, Any]], profile: str, requests: int) -> Iterator[str]:
    lines = []
    for policy in ESG:
        cells = []
        for given in settings.values():
            row = runs.of(
                **given,
                serving__scenario="esg",
                serving__profile=profile,
                policy__name=policy,
                workload__requests=requests,
                workload__overload=True,
            )
            dropped = f", {row['dropped']:,} dropped" if row["dropped"] else ""
            cells.append(f"{100 * row['slo_hit_rate']:.2f} %, ${1000 * row['cost_per_request_usd']:.4f}{dropped}")
        lines.append([f"`{policy}`", *cells])
    yield from table(["policy", *settings], lines)


# --- speed ----------------------------------------------------------------------------------------------------


def speed(runs: Runs, _seeds: int, _data: Path | None) -> Iterator[str]:
    """Tasks a second, and what a decision takes."""
    yield "### Speed, one core: tasks a second; microseconds a decision, median and 99th percentile\n"
    lines = []
    for policy in ("hash", "compass", "headway"):
        for count, rate in ((5, 2.0), (20, 8.0), (60, 24.0), (250, 100.0)):
            row = runs.of(**_compass(policy, rate, "true", serving__workers=count, workload__requests=3000))
            took = f"{row['decide_p50_us']:.0f}, {row['decide_p99_us']:.0f}"
            lines.append([f"`{policy}`", str(count), f"{row['tasks_per_s']:,.0f}", took])
    for policy in ("esg", "headway"):
        row = runs.of(
            serving__scenario="esg", serving__setting="moderate-normal", policy__name=policy, workload__requests=5000
        )
        took = f"{row['decide_p50_us']:.0f}, {row['decide_p99_us']:.0f}"
        lines.append([f"`{policy}`, ESG moderate-normal", "16", f"{row['tasks_per_s']:,.0f}", took])
    yield from table(["policy", "workers", "tasks/s", "decision, µs"], lines)


def decide(runs: Runs, _seeds: int, _data: Path | None) -> Iterator[str]:
    """What headway's decisions take by themselves, on a graph of five stages."""
    yield "### Decisions of headway on a chain of five stages of 224 configurations, 1.5 requests a second a worker\n"
    path = runs.path.with_name("five.toml")
    path.write_text(FIVE)
    lines = []
    for control in ("decentralised", "central"):
        for count in (20, 250):
            settings = {
                "serving.scenario": str(path),
                "serving.control": control,
                "serving.workers": count,
                "policy.name": "headway",
                "workload.rate": 1.5 * count,
                "workload.requests": 3000,
            }
            document: toml.Document = {}
            for key, value in settings.items():
                toml.put(document, key, value)
            with patch.object(Headway, "decide", _timed(Headway.decide, took := [])):  # type: ignore[var-annotated]
                run(toml.typed(document, ServingExperiment, "bench"))
            cuts = statistics.quantiles(took, n=100)
            means = [sum(took) / 1000 / 3000 / parts for parts in (5, 1)]
            lines.append(
                [control, str(count), *(f"{each:,.0f}" for each in (cuts[49] / 1000, cuts[98] / 1000, *means))]
            )
    yield from table(["control", "workers", "median, µs", "p99, µs", "mean a task, µs", "mean a request, µs"], lines)


def _timed(
    inner: Callable[[Headway, int, ServingState], Iterator[Action]], took: list[int]
) -> Callable[[Headway, int, ServingState], Iterator[Action]]:
    """``inner``, each call's own time on this thread's clock put into ``took``: neighbours do not count."""

    def decided(policy: Headway, now: int, state: ServingState) -> Iterator[Action]:
        started = thread_time_ns()
        actions = iter(inner(policy, now, state))
        spent = 0
        while (action := next(actions, None)) is not None:
            spent += thread_time_ns() - started
            yield action
            started = thread_time_ns()
        took.append(spent + thread_time_ns() - started)

    return decided


PARTS: dict[str, Callable[[Runs, int, Path | None], Iterator[str]]] = {
    "authors": authors,
    "true": true,
    "scale": scale,
    "staleness": staleness,
    "workers": workers,
    "bursts": bursts,
    "esg": esg,
    "esg-traces": esg_traces,
    "speed": speed,
    "decide": decide,
}


def main() -> None:
    """Run the parts that are named, and print their tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"all of {', '.join(PARTS)} if left out")
    parser.add_argument("--out", type=Path, required=True, help="folder for what runs gave")
    parser.add_argument("--data", type=Path, help="folder with traces of requests")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--stale", action="store_true", help="also use what other code gave")
    given = parser.parse_args()
    unknown = [part for part in given.parts if part not in PARTS]
    if unknown:
        parser.error(f"unknown part {unknown[0]}: {', '.join(PARTS)}")
    runs = Runs(given.out, stale=given.stale)
    for part in given.parts or PARTS:
        for line in PARTS[part](runs, given.seeds, given.data):
            print(line, flush=True)
    if runs.mixed:
        print("(Some of these runs are of other code.)")


if __name__ == "__main__":
    main()

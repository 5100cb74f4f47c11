"""Draw the mixed workload on which Slurm's own scheduler and headway's policies are compared (``slurm_headway.py``).

Users submit jobs in bursts, mostly of one to four and now and then a sweep of up to twelve. Run times are heavy tailed
and scaled down to seconds; the time limit, in whole minutes as Slurm keeps it, is all that anybody is told of them.
Seed and numbers were fixed before the first run.
"""

import math
import random
from dataclasses import dataclass

NODES, GPUS_A_NODE = 16, 4
SEED = 2212
JOBS = 200
LOAD = 1.1
"""Share of the GPUs that jobs want while they come."""
MEDIAN_S, SIGMA = 16.0, 1.0
SHORTEST_S, LONGEST_S = 5.0, 120.0
WIDTHS, WIDTH_WEIGHTS = (1, 2, 4, 8), (0.45, 0.25, 0.2, 0.1)
LIMITS_MIN = (1, 2, 3, 5, 10, 15)
"""What users ask for, in minutes: the first that is long enough for what they fear."""
FEARED = (1.2, 6.0)
"""How many times as long as it takes a user fears that a job takes."""
SAVE_S = LOAD_S = 1.0
"""What a checkpoint takes to write, and to read."""
ACCOUNTS = {"vision": 0.4, "language": 0.35, "physics": 0.25}
QOS = {"high": 0.15, "normal": 0.55, "low": 0.3}
"""Parts of all bursts. Jobs of ``low`` are preempted by all others."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A job to come."""

    number: int
    at_s: float
    gpus: int
    length_s: float
    limit_min: int
    account: str
    qos: str

    @property
    def nodes(self) -> int:
        """Return on how many nodes it runs."""
        return max(1, self.gpus // GPUS_A_NODE)


def workload(jobs: int = JOBS, seed: int = SEED) -> list[Planned]:
    """Return the jobs by the time at which they come."""
    draw = random.Random(seed)
    bursts: list[list[tuple[int, float, int, str, str]]] = []
    left = jobs
    while left:
        count = min(left, draw.randint(5, 12) if draw.random() < 0.1 else draw.randint(1, 4))
        bursts.append(_burst(draw, count))
        left -= count
    wanted = sum(gpus * length for burst in bursts for gpus, length, *_ in burst)
    span = wanted / (LOAD * NODES * GPUS_A_NODE)
    times = sorted(draw.uniform(0.0, span) for _ in bursts)
    planned = [
        (round(at - times[0] + 0.2 * place, 2), job)
        for at, burst in zip(times, bursts, strict=True)
        for place, job in enumerate(burst)
    ]
    planned.sort(key=lambda each: each[0])
    return [Planned(number, at, *job) for number, (at, job) in enumerate(planned)]


def _burst(draw: random.Random, count: int) -> list[tuple[int, float, int, str, str]]:
    """Draw jobs of one user that are alike: as wide, and of like lengths and limits."""
    (account,) = draw.choices(list(ACCOUNTS), list(ACCOUNTS.values()))
    (qos,) = draw.choices(list(QOS), list(QOS.values()))
    (gpus,) = draw.choices(WIDTHS, WIDTH_WEIGHTS)
    usual, feared = draw.lognormvariate(math.log(MEDIAN_S), SIGMA), draw.uniform(*FEARED)
    jobs = []
    for _ in range(count):
        length = round(min(LONGEST_S, max(SHORTEST_S, usual * draw.lognormvariate(0.0, 0.3))), 1)
        limit = next((each for each in LIMITS_MIN if 60 * each >= length * feared), LIMITS_MIN[-1])
        jobs.append((gpus, length, limit, account, qos))
    return jobs

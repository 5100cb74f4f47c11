"""Check Little's law as an identity: the integral of the queue length equals the sum of all waits, exactly."""

from collections.abc import Sequence

import numpy as np

from headway.core.tape import Tape
from headway.jobs.metrics.ledger import Ledger
from headway.jobs.metrics.timeline import waiting
from headway.jobs.model.cluster import Cluster, Node
from headway.jobs.model.job import Job
from headway.statistics.series import exact_sum


def little(tape: Tape, jobs: Sequence[Job]) -> tuple[int, int]:
    """Return (integral of the queue length, sum of all waits), both in job-nanoseconds up to the last row.

    The first adds up who joined and left the queue, the second is each job's life less what it held; on a sound
    tape they are equal.
    """
    nodes = int(tape.column("place").max(initial=0)) + 1
    ledger = Ledger(tape, jobs, Cluster(tuple(Node(f"n{index}", 0) for index in range(nodes))))
    queue = waiting(ledger, np.ones(len(jobs), dtype=np.int64))
    return queue.integral(0, ledger.horizon), exact_sum(ledger.wait)

"""A queue in the process of the test that drives jobs of a real Slurm: turned by hand, and taken up as after a kill."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.slurm_lab import SlurmLab, missing
from headway.jobs.live.ground import Settings
from headway.jobs.live.queue import LiveQueue
from headway.jobs.live.store import Past, Store
from headway.jobs.slurm.live.client import SlurmClient
from headway.jobs.slurm.live.commands import Slurm
from headway.jobs.slurm.live.ground import SlurmGround
from headway.jobs.slurm.live.rows import JobRow
from headway.units import HOUR
from tests.jobs.live.queues import Bench

LOOK_S = 0.2
needs_slurm = pytest.mark.skipif(
    bool(missing(accounted=False)) or os.geteuid() != 0, reason="needs slurmctld, slurmd, munge, and root"
)


class AsNobody(Slurm):
    """Slurm's commands as a user without rights."""

    def run(self, *command: str, stdin: str = "") -> str:
        """Return what a command prints."""
        return super().run("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *command, stdin=stdin)


class SlurmBench(Bench):
    """A folder with a queue that the test turns, on a Slurm."""

    within_s = 90.0

    def __init__(self, folder: Path, lab: SlurmLab, policy: str = "fifo+easy", kind: type[Slurm] = Slurm) -> None:
        self.lab = lab
        self.client = SlurmClient(kind(lab.environment))
        self.ground = SlurmGround("", lambda line: self.log.append(line), self.client, LOOK_S)
        self.held = self.ground.held()
        self.held.__enter__()
        super().__init__(folder, policy)

    def settings(self, policy: str, gpus: int, profiles: Sequence[str]) -> Settings:
        """Make the settings of the run."""
        return self.ground.settings(policy, HOUR, profiles, None)

    def taken_up(self, store: Store, past: Past) -> LiveQueue:
        """Make the queue of a run as it was."""
        return self.ground.queue(self.place, store, past)

    def close(self) -> None:
        """End everything that is left, and look at the tape."""
        self.lab.run("scancel", *self.lab.run("squeue", "-h", "-o", "%A").split(), "999999")
        self.held.__exit__(None, None, None)
        if self.queue.jobs:
            self.check()
        self.queue.store.close()
        end = time.monotonic() + 60
        while any(not row.ended for row in self.client.jobs()):
            assert time.monotonic() < end
            time.sleep(0.05)

    def row(self, number: int) -> JobRow:
        """A job of Slurm by its number there."""
        return next(row for row in self.client.jobs() if row.id == number)

    def of(self, job: int) -> JobRow:
        """A job of the queue, as Slurm has it."""
        return self.row(self.queue.programs[job].slurm)

    def until_state(self, job: int, state: str) -> None:
        """Turn the queue until Slurm says so of a job."""
        self.until(lambda: self.of(job).state == state, f"job {job} is {state}")

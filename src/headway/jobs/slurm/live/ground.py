"""Run training jobs on a Slurm: from its nodes, partitions and limits to a queue that drives its jobs."""

import os
import pwd
import re
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import structs

from headway.errors import QueueError, SlurmError
from headway.files import write_whole
from headway.jobs.experiment.observed import last_rows
from headway.jobs.experiment.scene import checked, with_paths
from headway.jobs.live.ground import SLURM, Settings, clock_of, kept, rebuilt, scene_of
from headway.jobs.live.local.engine import logs_of
from headway.jobs.live.place import Place
from headway.jobs.live.queue import LiveQueue, Rules
from headway.jobs.live.store import Past, Store, read
from headway.jobs.rules.preemption.table import PreemptionTable
from headway.jobs.slurm.live.board import LOOK_S, Board
from headway.jobs.slurm.live.client import SlurmClient
from headway.jobs.slurm.live.engine import SlurmEngine
from headway.jobs.slurm.live.giving_back import GivenBack, give_back
from headway.jobs.slurm.live.lock import SlurmLock
from headway.jobs.slurm.live.script import GIVEN
from headway.jobs.slurm.live.site import SlurmSite
from headway.jobs.slurm.output.scontrol import records
from headway.jobs.slurm.shadow.looks import site_files
from headway.jobs.tables.cluster import ClusterTable, node_names
from headway.jobs.tables.settings import CostsTable, Experiment, JobsRunTable, PolicyTable, SpeedTable
from headway.jobs.traces.clusters import file as cluster_file
from headway.plugins import anchored

REDIVISION = "10s"
"""What another share of CPUs and memory costs a job that runs: a requeue."""
CYCLES = 2
"""A job that was released and does not start within so many of Slurm's cycles is held again."""
LEAST_START_S = 5.0
_INTERVALS = {"bf_interval": 30, "sched_interval": 60}
"""Seconds between two looks of Slurm at its queue, where its settings do not say."""


class SlurmGround:
    """A Slurm, with the queue that drives jobs of it."""

    def __init__(
        self, token: str, log: Callable[[str], None], client: SlurmClient | None = None, look_s: float = LOOK_S
    ) -> None:
        """``token``: what jobs are marked with; empty: a new one. ``look_s``: between two looks at Slurm's queue."""
        self._look_s = look_s
        self._token, self._log = token or secrets.token_hex(4), log
        self._client = client or SlurmClient()
        self._lock = SlurmLock(self._client, self._token)

    def settings(self, policy: str, estimate: int, profiles: Sequence[str], before: ClusterTable | None) -> Settings:
        """Return the settings of a run there, checked; while jobs are left, limits are those of before."""
        cluster = cluster_of(self._client, self._log)
        if before is not None and before.node_groups == cluster.node_groups and before != cluster:
            self._log("limits or partitions of Slurm have changed; they count here from the next run, there at once")
            cluster = before
        experiment = Experiment(
            cluster=cluster,
            policy=with_paths(PolicyTable(name=policy), anchored),
            costs=CostsTable(migration=REDIVISION, reallocation=REDIVISION),
            speed=SpeedTable(profiles=list(profiles)),
            run=JobsRunTable(engine=SLURM),
        )
        return Settings(checked(experiment)[0], (), estimate, self._token)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold it against other headways."""
        try:
            self._lock.take()
        except SlurmError as problem:
            raise QueueError(f"no job can be submitted to this Slurm, not even a lock: {problem}") from None
        try:
            yield
        finally:
            self._lock.release()

    def queue(self, place: Place, store: Store, past: Past) -> LiveQueue:
        """Return the queue of a run, as it was."""
        settings = kept(past)
        scene = scene_of(settings, past.jobs)
        state, policy = rebuilt(scene, past.tape, self._log)
        names = node_names(settings.experiment.cluster)
        jobs, programs, own = list(past.jobs), list(past.programs), _user()
        board = Board(
            self._client,
            f"{self._token}.{past.run}",
            self._look_s,
            lambda job, user: user == ((jobs[job].user if job < len(jobs) else "") or own),
        )
        engine = SlurmEngine(
            board,
            place.run(past.run),
            lambda job: (jobs[job], programs[job]),
            names,
            start_s=start_s(self._client.config()),
            log=self._log,
        )
        site = SlurmSite(board, engine, self._lock, names, self._log)
        rules = Rules(settings.estimate, self._cpu_milli(settings), self._partition(), 1000)
        queue = LiveQueue(
            state, policy, store, engine, clock_of(past), past=past, site=site, rules=rules, log=self._log
        )
        jobs, programs = queue.jobs, queue.programs
        return queue

    @staticmethod
    def _cpu_milli(settings: Settings) -> int:
        """Return the CPUs that go with a GPU, on the nodes that have fewest."""
        groups = [group for group in settings.experiment.cluster.node_groups if group.gpus and group.cpus]
        return 1000 * max(1, min(((group.cpus or 0) // group.gpus for group in groups), default=1))

    def _partition(self) -> str:
        found = [record for _, record in records(self._client.partitions_text())]
        return next((each["PartitionName"] for each in found if each.get("Default") == "YES"), "")


def cluster_of(client: SlurmClient, log: Callable[[str], None]) -> ClusterTable:
    """Return the cluster that a Slurm describes, with its limits; nodes that are away are looked at as it runs."""
    with tempfile.TemporaryDirectory() as folder:
        files, _, lacking = site_files(client, Path(folder))
        read = cluster_file.read(files)
    for line in lacking:
        log(f"{line}; Slurm keeps to it")
    for rule in read.unread:
        log(f"Slurm's {rule.what} is not followed here; Slurm keeps to it")
    return structs.replace(read.table, outages=[], reservations=[], preemption=PreemptionTable(), qos=[])


def _user() -> str:
    """Return what this user is called in Slurm."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def start_s(config: Mapping[str, str]) -> float:
    """Return how long a released job may take to start: two of the longest cycles of Slurm's schedulers."""
    told = config.get("schedulerparameters", "")
    found = {key: int(value) for key, value in re.findall(r"\b(bf_interval|sched_interval)=(\d{1,6})", told)}
    return max(LEAST_START_S, float(CYCLES * max({**_INTERVALS, **found}.values())))


def release_all(place: Place, log: Callable[[str], None]) -> list[GivenBack]:
    """Give the jobs of a queue that does not run back to Slurm, in their order."""
    with place.held():
        past = read(place.store)
        if past is None or kept(past).experiment.run.engine != SLURM:
            raise QueueError(f"{place.folder} has no jobs in Slurm: nothing is to be given back")
        settings, client = kept(past), SlurmClient()
        state, _ = rebuilt(scene_of(settings, past.jobs), past.tape, log)
        board = Board(client, f"{settings.token}.{past.run}")
        order = [job for _, job in state.queue.in_order()]
        order += [job for job in range(len(past.jobs)) if job not in last_rows(past.tape) and job not in order]
        waiting = [job for job in order if job not in state.running]

        def mark(job: int) -> None:
            if not past.programs[job].external:
                write_whole(logs_of(place.run(past.run), job)[0].with_name(GIVEN), "", QueueError)

        return give_back(board, sorted(state.running), waiting, past.submitted_s, mark)

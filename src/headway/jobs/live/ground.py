"""Run training jobs for real: from the settings of a queue to its loop, taken up where an earlier one was."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from hashlib import sha256
from time import monotonic_ns, time
from typing import Protocol

import msgspec

from headway.core.clock import Clock
from headway.core.tape import Tape
from headway.errors import QueueError, TapeError, unknown_name
from headway.files import write_whole
from headway.jobs.audit.replay import Walk
from headway.jobs.experiment.observed import last_rows
from headway.jobs.experiment.policy import policy_of
from headway.jobs.experiment.scene import JobsScene, checked, with_paths
from headway.jobs.experiment.speed import PROFILES_NAME
from headway.jobs.live import door
from headway.jobs.live.local import cgroups
from headway.jobs.live.local.engine import LocalEngine
from headway.jobs.live.local.machine import AUTO, Machine, held, machine
from headway.jobs.live.place import Place
from headway.jobs.live.queue import LiveQueue, Rules
from headway.jobs.live.store import Past, Program, Store, boot, read
from headway.jobs.model.job import Job
from headway.jobs.policies.compose import ComposedPolicy
from headway.jobs.state.state import TrainingState
from headway.jobs.tables import profiles as profile_file
from headway.jobs.tables.cluster import ClusterTable, NodeGroup, build
from headway.jobs.tables.settings import CostsTable, Experiment, JobsRunTable, PolicyTable, SpeedTable
from headway.plugins import anchored
from headway.units import HOUR, SECOND, counted

LOCAL, SLURM = "local", "slurm"
POLICY = "fifo+easy"
ESTIMATE = HOUR


class Settings(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a run of a queue has throughout."""

    experiment: Experiment
    gpus: tuple[str, ...]
    """What CUDA_VISIBLE_DEVICES calls them."""
    estimate: int
    """Nanoseconds, of jobs whose users do not know."""
    token: str = ""
    """What jobs of this queue are marked with in Slurm."""


def settings_of(found: Machine, policy: str, estimate: int, profiles: Sequence[str] = ()) -> Settings:
    """Return the settings of a queue on a machine, checked. ``profiles``: files that nobody changes."""
    node = NodeGroup(
        nodes=1,
        gpus=len(found.gpus),
        gpu_type=found.gpu_type,
        cpus=len(found.cpus),
        memory=f"{found.memory_bytes}B",
        names=[found.name],
    )
    experiment = Experiment(
        cluster=ClusterTable(node_groups=[node]),
        policy=with_paths(PolicyTable(name=policy), anchored),
        costs=CostsTable(migration=0),
        speed=SpeedTable(profiles=list(profiles)),
        run=JobsRunTable(engine=LOCAL),
    )
    return Settings(checked(experiment)[0], found.gpus, estimate)


def run_queue(
    place: Place,
    gpus: str,
    policy: str,
    estimate: int,
    profiles: Sequence[str],
    say: Callable[[str], None],
    on_open: Callable[[], None],
    *,
    engine: str = "",
) -> None:
    """Run a queue in a folder until it is ended; one that was there before is taken up.

    What is empty or 0 is that of before, or all GPUs, ``POLICY``, ``ESTIMATE`` and this machine.
    """
    with place.held(), ExitStack() as stack:
        past = read(place.store)
        was = kept(past) if past is not None else None
        policy = policy or (was.experiment.policy.name if was is not None else POLICY)
        estimate = estimate or (was.estimate if was is not None else ESTIMATE)
        profiles = _kept_profiles(place, profiles) or (was.experiment.speed.profiles if was is not None else ())
        ground = ground_of(engine or (was.experiment.run.engine if was is not None else LOCAL), gpus, was, say)
        left = len(past.jobs) - len(last_rows(past.tape)) if past is not None else 0
        before = was.experiment.cluster if was is not None and left else None
        settings = ground.settings(policy, estimate, profiles, before)
        encoded = msgspec.json.encode(settings)
        if past is not None and past.settings != encoded:
            if left:
                raise QueueError(_why_not(left, kept(past), settings))
            past = None
        stack.enter_context(ground.held())
        store = Store(place.store)
        place.store.chmod(0o600)
        try:
            if past is None:
                store.begin(encoded)
                past = read(place.store, store.run)
                assert past is not None
            store.take_up(past)
            asyncio.run(door.serve(ground.queue(place, store, past), place, on_open))
        finally:
            store.close()


def _kept_profiles(place: Place, profiles: Sequence[str]) -> list[str]:
    """Return copies of profiles in the folder of the queue, named by what is in them: a run keeps those it has."""
    found = []
    for path in profile_file.listed(profiles):
        profile_file.read(path)  # refused here rather than in the middle of a run
        data = path.read_bytes()
        target = place.folder / PROFILES_NAME / f"{sha256(data).hexdigest()[:12]}-{path.name}"
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(target, data, QueueError)
        found.append(str(target))
    return found


class Ground(Protocol):
    """Where the programs of a queue run."""

    def settings(self, policy: str, estimate: int, profiles: Sequence[str], before: ClusterTable | None) -> Settings:
        """Return the settings of a run there, checked; ``before``: the cluster of jobs that are left."""

    def held(self) -> AbstractContextManager[None]:
        """Hold it against other queues; QueueError where one has it."""

    def queue(self, place: Place, store: Store, past: Past) -> LiveQueue:
        """Return the queue of a run that was begun, as it was when it was last written down."""


def ground_of(engine: str, gpus: str, was: Settings | None, log: Callable[[str], None]) -> Ground:
    """Return where programs run."""
    if engine == SLURM:
        from headway.jobs.slurm.live.ground import SlurmGround

        return SlurmGround(was.token if was is not None else "", log)
    if engine != LOCAL:
        raise QueueError(unknown_name("engine", engine, (LOCAL, SLURM)))
    before = was is not None and was.experiment.run.engine == LOCAL
    return LocalGround(machine(gpus or (str(len(was.gpus)) if was is not None and before else AUTO)), log)


class LocalGround:
    """This machine."""

    def __init__(self, found: Machine, log: Callable[[str], None]) -> None:
        self._found, self._log = found, log

    def settings(self, policy: str, estimate: int, profiles: Sequence[str], before: ClusterTable | None) -> Settings:
        """Return the settings of a run here, checked."""
        return settings_of(self._found, policy, estimate, profiles)

    def held(self) -> AbstractContextManager[None]:
        """Hold the GPUs."""
        return held(self._found)

    def queue(self, place: Place, store: Store, past: Past) -> LiveQueue:
        """Return the queue of a run, as it was."""
        return queue_of(place, store, past, self._found, self._log)


def kept(past: Past) -> Settings:
    return msgspec.json.decode(past.settings, type=Settings)


def _why_not(left: int, was: Settings, settings: Settings) -> str:
    """Return why other settings are refused while jobs wait or run under those of before."""
    values = {
        "policy": (was.experiment.policy.name, settings.experiment.policy.name),
        "--engine": (was.experiment.run.engine, settings.experiment.run.engine),
        "--gpus": (len(was.gpus), len(settings.gpus)),
    }
    others = [f"{key} {before}, not {now}" for key, (before, now) in values.items() if before != now]
    differs = " and ".join(others) or "other settings of this machine, or other nodes of this Slurm"
    return (
        f"{counted(left, 'job')} {'is' if left == 1 else 'are'} left, submitted under {differs}: start it as it was, "
        "and change it when all have ended"
    )


def queue_of(place: Place, store: Store, past: Past, found: Machine, log: Callable[[str], None]) -> LiveQueue:
    """Return the queue of a run that was begun, as it was when it was last written down."""
    settings = kept(past)
    scene = scene_of(settings, past.jobs)
    state, policy = rebuilt(scene, past.tape, log)
    groups, why = cgroups.found(cgroups.name_of(place.folder, past.run))
    if why:
        log(why)
    programs: list[Program] = []
    shares = bool(found.gpus) and not found.pretended
    engine = LocalEngine(place.run(past.run), lambda job: programs[job], found.gpus, found.cpus, groups, shares=shares)
    share = 1000 * len(found.cpus) // max(1, len(found.gpus))
    rules = Rules(settings.estimate, share - share % 1000 or share)  # whole CPUs, where there are enough
    queue = LiveQueue(state, policy, store, engine, clock_of(past), past=past, rules=rules, log=log)
    programs = queue.programs
    return queue


def clock_of(past: Past) -> Clock:
    """Return the clock of a run that is taken up; it never stands before the last row."""
    last = int(past.tape.column("time")[-1]) + 1 if len(past.tape) else 0
    if past.began.boot == boot():
        return Clock(min(past.began.monotonic_ns, monotonic_ns() - last))
    gone_by = round((time() - past.began.wall_s) * SECOND)  # the machine was restarted: its calendar is all there is
    return Clock(monotonic_ns() - max(last, gone_by))


def scene_of(settings: Settings, jobs: Sequence[Job]) -> JobsScene:
    """Return the scene of a live run."""
    return JobsScene(settings.experiment, build(settings.experiment.cluster), tuple(jobs))


def rebuilt(scene: JobsScene, tape: Tape, log: Callable[[str], None]) -> tuple[TrainingState, ComposedPolicy]:
    """Return state and policy as a tape leaves them: the policy decides again, which rebuilds its memory."""
    for asking in (True, False):
        policy = policy_of(scene.experiment)
        walk = Walk(scene.cluster, scene.jobs, tape, policy, asking=asking, speed=scene.speed(), costs=scene.costs())
        try:
            for _ in walk:
                pass
        except TapeError as problem:
            if not asking:
                raise
            log(f"{problem}; the policy goes on without its memory of before")
        else:
            break
    return walk.state, policy

"""Keep a shadow in a folder: what was seen, look by look, the files of the site, and the run as it stands.

What was seen is appended and on the disk before anything is made of it; the rest can be made of it again. The folder is
a run folder too: ``headway report``, ``story``, ``explain`` and ``audit`` read it.
"""

import os
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from headway.core.collector import no_collection
from headway.core.tape import FINAL_NAME, write as write_tape
from headway.door.own_folder import held
from headway.errors import InfeasibleJobError, NoJobsError, TapeError
from headway.files import write_whole
from headway.formats import toml
from headway.jobs.experiment.policy import policy_of
from headway.jobs.experiment.scene import JobsScene, prepare, with_paths
from headway.jobs.slurm.accounting.queue import NAME as FORMAT
from headway.jobs.slurm.shadow.records import Look, Records, replayed
from headway.jobs.slurm.shadow.world import Played, World
from headway.jobs.slurm.site import policy as slurm_site
from headway.jobs.tables.settings import Experiment
from headway.plugins import SITE as SITE_PREFIX, anchored
from headway.runs.domain import RunResult
from headway.runs.folder.folder import RESULT_NAME, refuse_run, store as store_scene
from headway.runs.measured import numbers
from headway.runs.settings import common_flags
from headway.runs.settings.files import typed
from headway.runs.settings.python_input import put_settings

SETTINGS_NAME, LOOKS_NAME, RECORDS_NAME, SITE_FOLDER = "shadow.json", "looks.jsonl", "records.txt", "site"
EVENTS_NAME = "events.txt"
"""Nodes that took no jobs, as they were seen."""
COUNTS_NAME = "counts.json"
_BEGUN = (".lock", SITE_FOLDER)
"""What a shadow leaves that was refused before it began."""
SITE = "site"
"""The policy of the site, as its settings describe it."""


class Settings(msgspec.Struct, frozen=True):
    """What a shadow has throughout."""

    policy: str
    files: tuple[str, ...]
    """In the folder of the site's files."""
    config: str = ""
    """That of them which has the site's settings; empty: none."""
    set: tuple[str, ...] = ()
    """Other settings of the experiment, as ``key=value``."""


class Counts(msgspec.Struct):
    """What is known of a shadow besides what was seen."""

    outran: list[str] = msgspec.field(default_factory=list)
    """Jobs that had run longer in the shadow than was known of them at some look, by name."""
    revised: int = 0
    settled: int = 0
    """Of the run on the disk: everything before this time is settled."""
    at: int = 0
    """Of the run on the disk: when it was last looked, in its time."""


@dataclass(slots=True)
class Shadow:
    """A shadow that goes on."""

    folder: Path
    settings: Settings
    records: Records
    counts: Counts
    world: World = field(default_factory=World)
    played: Played | None = None

    def take(self, look: Look) -> None:
        """Write a look down, and play it."""
        with no_collection():
            fresh = self.records.fresh(look)
            line = msgspec.json.encode(fresh) + b"\n"
            _append(self.folder / LOOKS_NAME, line)
            self.records.add(fresh)
            self.play()

    def play(self) -> None:
        """Decide with what is known; on a quiet cluster that may be nothing, and it goes on with the next look."""
        if not self.records.rows:
            return
        try:
            scene = self.scene(self.settings.policy)
        except (NoJobsError, InfeasibleJobError):  # all that was seen had ended before the first look, or never fits
            return
        self.played = self.world.look(scene, self.at(scene))
        known = set(self.counts.outran)
        self.counts.outran += [name for name in self.played.ahead if name not in known]

    def scene(self, policy: str) -> JobsScene:
        """Return the jobs that were seen, under a policy."""
        write_whole(self.folder / RECORDS_NAME, self.records.table())
        if events := self.records.events():
            write_whole(self.folder / EVENTS_NAME, events)
        return prepare(experiment_of(self.folder, self.settings, policy, self.records.first))

    def at(self, scene: JobsScene) -> int:
        """Return when it was last looked, in the time of the run."""
        calendar = scene.calendar
        assert calendar is not None
        return max(0, self.records.at - calendar.begins)

    def store(self) -> None:
        """Write the run as it stands."""
        if self.played is None:
            return
        played, folder = self.played, self.folder
        for name in (RESULT_NAME, FINAL_NAME):
            (folder / name).unlink(missing_ok=True)
        store_scene(played.scene, folder)
        write_tape(played.tape, folder)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        took = (True, played.wall_s, peak, folder, ())
        numbers(RunResult(played.scene, played.scene.policy_name(), played.tape, *took, played.end))
        self.counts.revised += self.world.revised
        self.world.revised = 0
        self.counts.settled, self.counts.at = played.settled, self.at(played.scene)
        write_whole(folder / COUNTS_NAME, msgspec.json.encode(self.counts))


def experiment_of(folder: Path, settings: Settings, policy: str, first: str) -> Experiment:
    """Return the experiment of a shadow under a policy."""
    path = str(folder / RECORDS_NAME)
    files = [str(folder / SITE_FOLDER / name) for name in settings.files]
    files += [str(folder / EVENTS_NAME)] if (folder / EVENTS_NAME).exists() else []
    trace = {"path": path, "format": FORMAT, "start": first, "skip_infeasible": True, "skip_bad_rows": True}
    document: toml.Document = {
        "scale": "jobs",
        "trace": trace,
        "cluster": {"file": files},
        "policy": {"name": policy_named(folder, settings, policy)},
    }
    put_settings(document, common_flags.ALL, {"set": list(settings.set)})
    experiment: Experiment = typed(document, "settings")
    return msgspec.structs.replace(experiment, policy=with_paths(experiment.policy, anchored))


def _check_set(texts: Sequence[str]) -> None:
    """Refuse settings that are what was seen, and not a choice."""
    for text in texts:
        key = text.partition("=")[0].strip()
        if key.startswith(("trace.", "cluster.file", "policy.name", "run.", "measure.")) and key != "trace.zone":
            raise TapeError(f"--set {text}: a shadow takes that from what it sees, or has a flag for it")


def policy_named(folder: Path, settings: Settings, policy: str) -> str:
    """Return a policy with ``site`` as what the site's settings come to."""
    if policy != SITE:
        return policy
    if not settings.config:
        raise TapeError("--policy site: nothing tells the site's settings: give --config with slurm.conf")
    path = str(folder / SITE_FOLDER / settings.config)
    if any(mark in path for mark in "+("):  # which would end the file's name in a policy's
        return slurm_site.read(path).policy
    return f"{SITE_PREFIX}{path}"


@contextmanager
def opened(
    folder: Path, policy: str = "", cluster: Sequence[str] = (), config: str = "", set: Sequence[str] = ()
) -> Iterator[Shadow]:
    """Open the folder of a shadow, and keep others out; it is made where it is not there.

    What is empty is that of before.
    """
    _refuse_other(folder)
    _check_set(set)
    taken = (
        f"--out {folder}: another headway shadow (process {{pid}}) writes there: wait for it, or take another folder"
    )
    with held(folder / ".lock", taken, TapeError):
        settings = _settings(folder, policy, cluster, config, set)
        records = replayed(read_looks(folder))
        yield Shadow(folder, settings, records, _counts(folder))


def _refuse_other(folder: Path) -> None:
    if (folder / SETTINGS_NAME).is_file():
        return
    if folder.is_dir() and any(each.name not in _BEGUN for each in folder.iterdir()):
        raise TapeError(f"--out {folder}: holds other files, and no shadow: take another folder, or a new one")
    refuse_run(folder, f"--out {folder}")


def _settings(folder: Path, policy: str, cluster: Sequence[str], config: str, set: Sequence[str]) -> Settings:
    """Return the settings of a folder; those of a new one are checked and written."""
    path = folder / SETTINGS_NAME
    if path.is_file():
        was = kept_settings(folder)
        if policy and _absolute(policy) != was.policy:
            raise TapeError(f"--out {folder}: shadows {was.policy}, not {policy}: take another folder for it")
        if set and tuple(set) != was.set:
            raise TapeError(
                f"--out {folder}: was begun with --set {' '.join(was.set) or 'nothing'}: leave it out to go on"
            )
        if cluster or config:
            _refuse_changed(folder, was, cluster, config)
        return was
    if not cluster:
        raise TapeError(
            "a shadow needs the site's nodes: give --cluster with what scontrol show node -o prints, and the other "
            "files of the site; or --slurm, which asks for them"
        )
    files = [*cluster, *([config] if config and config not in cluster else [])]
    named = [f"{number:02}-{Path(each).name}" for number, each in enumerate(files)]
    texts = [_read(each) for each in files]
    own = named[files.index(config)] if config else ""
    settings = Settings(_absolute(policy or SITE), tuple(named), own, tuple(set))
    place = folder / SITE_FOLDER
    place.mkdir(exist_ok=True)
    for name, text in zip(named, texts, strict=True):
        write_whole(place / name, text)
    policy_of(experiment_of(folder, settings, settings.policy, ""))  # refuses what is no policy of jobs
    write_whole(path, msgspec.json.encode(settings))
    return settings


def _absolute(policy: str) -> str:
    return policy if policy == SITE else anchored(policy)


def _refuse_changed(folder: Path, was: Settings, cluster: Sequence[str], config: str) -> None:
    files = [*cluster, *([config] if config and config not in cluster else [])]
    kept = [(folder / SITE_FOLDER / name).read_bytes() for name in was.files]
    if [_read(each) for each in files] != kept:
        raise TapeError(
            f"--out {folder}: was begun with other files of the site: leave --cluster and --config out to go on, or "
            "take another folder"
        )


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as problem:
        raise TapeError(f"--cluster {path}: cannot be read ({problem.strerror})") from None


def kept_settings(folder: Path) -> Settings:
    """Return the settings of the shadow in a folder."""
    try:
        return msgspec.json.decode((folder / SETTINGS_NAME).read_bytes(), type=Settings)
    except FileNotFoundError:
        raise TapeError(f"{folder}: holds no shadow: headway shadow --slurm -o {folder} begins one") from None
    except (OSError, ValueError) as problem:
        raise TapeError(f"{folder / SETTINGS_NAME}: cannot be read ({problem})") from None


def _counts(folder: Path) -> Counts:
    try:
        return msgspec.json.decode((folder / COUNTS_NAME).read_bytes(), type=Counts)
    except (FileNotFoundError, ValueError):
        return Counts()


def read_looks(folder: Path) -> list[Look]:
    """Return what was seen; the last line, where its writing was cut short, is taken away."""
    path = folder / LOOKS_NAME
    if not path.exists():
        return []
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        os.truncate(path, len(whole))
    try:
        return [msgspec.json.decode(line, type=Look) for line in whole.splitlines()]
    except ValueError as problem:
        raise TapeError(f"{path}: cannot be read ({problem}): it was changed, or is not of this version") from None


def _append(path: Path, line: bytes) -> None:
    """Append a line and wait for the disk; what could not be written whole is taken back."""
    try:
        with path.open("ab") as file:
            before = file.tell()
            try:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
            except OSError:
                os.truncate(path, before)
                raise
    except OSError as problem:
        raise TapeError(f"{path}: cannot be written ({problem.strerror}): what was seen before is kept") from None

"""Read pods of a Kubernetes cluster, as ``kubectl get pods -A -o json`` writes them: a pod or a gang of pods is a job.

A job's work is the time from the start of its first pod to the end of its last. Containers restart inside their pod,
which keeps its GPUs: that is one run. A pod that still runs has worked until the latest time that the file tells. Pods
that cannot be jobs (they never ran, ask for nothing, belong to their node) are left out and accounted for, which is no
reason to refuse a file; an object that contradicts itself is.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway.core.collector import no_collection
from headway.errors import TraceError
from headway.formats.dates import Calendar
from headway.formats.head import Head
from headway.formats.table import mapped
from headway.jobs.kubernetes import WHOLE, Item, ObjectError, PodRecord, Slicing, objects, pod, slicing
from headway.jobs.model.job import Job, Outcome, broken_rule, workload
from headway.jobs.traces.build import build
from headway.jobs.traces.trace import Dropped, Trace
from headway.units import WHOLE_GPU_MILLI

NAME = "kubernetes"
_OF_A_NODE = ("DaemonSet", "Node")
_SHOWN = 60
_FIELDS = (
    "submit", "work", "gpus", "gpu_milli", "nodes", "name", "tenant", "gpu_types", "cpu_milli", "memory_bytes",
    "estimate", "priority", "qos", "outcome", "outcome_after",
)  # fmt: skip
_Row = tuple[Any, ...]
_SEVERITY = (Outcome.FINISHES, Outcome.FAILS, Outcome.CANCELLED)


def recognises(head: Head) -> bool:
    """Return whether it begins like the JSON of Kubernetes objects."""
    return head.json and '"apiVersion"' in head.text and '"kind"' in head.text


def read(path: Path, strict: bool) -> Trace:
    """Return the jobs of a file of pods."""
    data = mapped(path)
    with no_collection():
        pods = _Pods(path)
        shared = pods.take(data, {})
        if shared:
            # The file tells how its nodes share GPUs: what a pod's request means is known only now.
            pods = _Pods(path)
            pods.take(data, shared)
        pods.refuse(strict)
        return pods.trace()


@dataclass
class _Pods:
    """The pods of one file, by their position in it, and those that are not taken."""

    path: Path
    records: dict[int, PodRecord] = field(default_factory=dict)
    bad: dict[int, Dropped] = field(default_factory=dict)
    left_out: dict[int, Dropped] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    rows: int = 0

    def take(self, data: bytes | memoryview, shared: Mapping[str, Slicing]) -> dict[str, Slicing]:
        """Read each pod; of several versions of one the last counts. The answer is how nodes share their GPUs."""
        latest: dict[str, int] = {}
        others: Counter[str] = Counter()
        nodes: dict[str, Slicing] = {}
        for position, item in enumerate(objects(data, f"trace {self.path}", TraceError), start=1):
            if item.kind != "Pod" and (item.kind or isinstance(item, Item)):
                others[item.kind or "no kind"] += 1
                if (
                    isinstance(item, Item)
                    and item.kind == "Node"
                    and (slicing_of_node := slicing(item.metadata.labels or {})) is not WHOLE
                ):
                    nodes[item.metadata.name] = slicing_of_node
                continue
            self.rows += 1
            try:
                if isinstance(item, ObjectError):
                    raise item
                record = pod(item, shared)
            except ObjectError as wrong:
                self.bad[position] = Dropped(position, wrong.field, wrong.value[:_SHOWN], wrong.rule)
                continue
            self.records[position] = record
            key = record.uid or _name(record)
            if key in latest:
                del self.records[latest[key]]
            latest[key] = position
        self._remark(others)
        return nodes

    def _remark(self, others: Counter[str]) -> None:
        if not self.rows:
            holds = ", ".join(sorted(others)) or "nothing"
            raise TraceError(
                f"trace {self.path}: holds no pod (it holds: {holds}); write one with kubectl get pods -A -o json"
            )
        if again := self.rows - len(self.records) - len(self.bad):
            self.notes.append(f"earlier versions of pods: {again:,}; passed over, the last of each counts")
        others.pop("Node", None)
        if others:
            self.notes.append(
                f"objects that are no pods: {others.total():,}; passed over ({', '.join(sorted(others))})"
            )

    def refuse(self, strict: bool) -> None:
        """Stop at the first bad pod if so asked, or if all are."""
        if self.bad and (strict or len(self.bad) == self.rows):
            first = str(next(iter(self.bad.values()))).replace("line", "item", 1)
            prefix = "" if strict else f"all {self.rows} pods are bad; the first is "
            raise TraceError(f"trace {self.path}: {prefix}{first}")

    def trace(self) -> Trace:
        """Return the jobs, in order of submission."""
        now = max([record.seen for record in self.records.values()])
        rows = [(row, gang) for gang in self._gangs() if (row := self._row(gang, now)) is not None]
        if not rows:
            first = str(next(iter(self.left_out.values()))).replace("line", "item", 1)
            raise TraceError(f"trace {self.path}: none of its {self.rows} pods can be a job; the first: {first}")
        rows.sort(key=lambda each: each[0][0])
        self._explain([self.records[at] for _, gang in rows for at in gang])
        jobs = self._built([row for row, _ in rows], [gang for _, gang in rows])
        dropped = sorted((*self.bad.values(), *self.left_out.values()), key=lambda each: each.line)
        # All of them have been checked, ordered and numbered, unless one was left out last.
        kept = tuple(jobs) if len(jobs) == len(rows) else workload(jobs)
        dates = Calendar(rows[0][0][0], instants=True)
        return Trace(kept, NAME, self.rows, tuple(dropped), tuple(self.notes), calendar=dates)

    def _gangs(self) -> list[list[int]]:
        """Return the pods of each job-to-be, by position. A pod of a node and one that wants nothing are none."""
        gangs: dict[tuple[str, str] | int, list[int]] = {}
        for at, record in self.records.items():
            if record.owner in _OF_A_NODE:
                self._leave_out([at], f"is a pod of a {record.owner}: it belongs to its node, it is no job")
            elif record.gang:
                gangs.setdefault((record.namespace, record.gang), []).append(at)
            elif not (record.gpus or record.cpu_milli or record.memory_bytes):
                self._leave_out([at], "asks for no GPU, no CPU and no memory")
            else:
                gangs[at] = [at]
        return [part for gang in gangs.values() for part in (self._apart(gang) if len(gang) > 1 else (gang,))]

    def _apart(self, gang: list[int]) -> list[list[int]]:
        """Split the members of an indexed Job that did not run at the same time into jobs of their own."""
        if not self.records[gang[0]].gang_if_at_once:
            return [gang]
        members = _members([self.records[at] for at in gang])
        starts = [each.started for each in members]
        ends = [each.ended for each in members if each.ended is not None]
        if None not in starts and (not ends or max(start for start in starts if start is not None) < min(ends)):
            return [gang]
        return [[at] for at in gang]

    def _row(self, gang: list[int], now: int) -> _Row | None:
        """Return the values of a job, unless its pods cannot be one."""
        pods = [self.records[at] for at in gang]
        row = _alone(pods[0], now) if len(pods) == 1 else None
        if row is None and self._ran(gang):
            row = _values(pods, now)
        if row is not None and row[1] <= 0:
            self._leave_out(gang, "ran for less than a second: there is nothing to run")
            return None
        return row

    def _ran(self, gang: list[int]) -> bool:
        members = [self.records[at] for at in gang]
        if not any(each.gpus or each.cpu_milli or each.memory_bytes for each in members):
            rule = "asks for no GPU, no CPU and no memory"
        elif all(each.started is None for each in members):
            rule = f"never started (it is {members[0].phase}): how long it would run is not known"
        elif any(each.phase in ("Succeeded", "Failed") and each.ended is None for each in members):
            rule = "ended, but nothing says when"
        else:
            return True
        self._leave_out(gang, rule)
        return False

    def _leave_out(self, gang: Iterable[int], rule: str, *, fault: bool = False) -> None:
        for at in gang:
            self.left_out[at] = Dropped(at, "pod", _name(self.records[at])[:_SHOWN], rule, fault)

    def _built(self, rows: Sequence[_Row], gangs: Sequence[list[int]]) -> list[Job]:
        columns: dict[str, Sequence[Any]] = dict(zip(_FIELDS, zip(*rows, strict=True), strict=True))
        first = columns["submit"][0]
        columns["submit"] = [submit - first for submit in columns["submit"]]
        columns["name"] = _unique(columns["name"])
        sound = []
        for job, gang in zip(build(len(rows), columns), gangs, strict=True):
            if (rule := broken_rule(job)) is None:
                sound.append(job)
            else:
                self._leave_out(gang, rule, fault=True)
        return sound

    def _explain(self, records: list[PodRecord]) -> None:
        """Count what a reader of results should know about the pods that were taken."""
        running = sum(1 for each in records if each.ended is None and each.started is not None)
        restarted = sum(1 for each in records if each.restarts)
        stopped = sum(1 for each in records if each.stopped)
        guessed = sum(1 for each in records if each.share_guessed)
        unmodelled = Counter(what for each in records for what in each.unmodelled)
        told = [
            (running, "pods that still ran", "their work is counted until the latest time in the file"),
            (restarted, "pods that restarted containers", "each is one run, from its first start to its end"),
            (stopped, "pods that were evicted, preempted or deleted", "cancelled after what they ran"),
            (guessed, "pods that share a GPU in a way the file does not explain", "half a GPU each"),
            *((count, f"pods with {what}", "it is not modelled") for what, count in sorted(unmodelled.items())),
        ]
        self.notes.extend(f"{who}: {count:,}; {what}" for count, who, what in told if count)


def _name(record: PodRecord) -> str:
    return f"{record.namespace}/{record.name}"


def _unique(names: Sequence[str]) -> list[str]:
    """Return the names, those that were used before with a number."""
    if len(set(names)) == len(names):
        return list(names)
    used: Counter[str] = Counter()
    given = []
    for name in names:
        used[name] += 1
        given.append(name if used[name] == 1 else f"{name}#{used[name]}")
    return given


def _values(pods: list[PodRecord], now: int) -> _Row:
    """Return the values, in the order of ``_FIELDS``, of the job that some pods are together."""
    first = pods[0]
    members = _members(pods)
    ran = [each for each in pods if each.started is not None]
    start = min([each.started or 0 for each in ran])
    work = max([now if each.ended is None else each.ended for each in ran]) - start
    outcome = max(map(_outcome, members), key=_SEVERITY.index)
    return (
        min([each.created for each in pods]),
        work,
        *_gpus(members),
        f"{first.namespace}/{first.gang}",
        first.namespace,
        next((each.gpu_types for each in members if each.gpu_types), ()),
        sum([each.cpu_milli for each in members]),
        sum([each.memory_bytes for each in members]),
        max([each.deadline for each in members]),
        max([each.priority for each in members]),
        first.qos,
        outcome,
        0 if outcome is Outcome.FINISHES else work,
    )


def _alone(pod: PodRecord, now: int) -> _Row | None:
    """Return the same for a job of one pod; None if it asked for nothing, never started, or tells no end."""
    if pod.started is None or not (pod.gpus or pod.cpu_milli or pod.memory_bytes):
        return None
    if pod.ended is None and pod.phase in ("Succeeded", "Failed"):
        return None
    work = (now if pod.ended is None else pod.ended) - pod.started
    outcome = _outcome(pod)
    return (
        pod.created,
        work,
        *((pod.gpus, pod.gpu_milli, 0 if pod.gpus == 1 else 1) if pod.gpus else (0, WHOLE_GPU_MILLI, 0)),
        _name(pod),
        pod.namespace,
        pod.gpu_types,
        pod.cpu_milli,
        pod.memory_bytes,
        pod.deadline,
        pod.priority,
        pod.qos,
        outcome,
        0 if outcome is Outcome.FINISHES else work,
    )


def _outcome(record: PodRecord) -> Outcome:
    if record.stopped:
        return Outcome.CANCELLED
    return Outcome.FAILS if record.phase == "Failed" else Outcome.FINISHES


def _members(pods: list[PodRecord]) -> list[PodRecord]:
    """Return the last pod of each rank: those before it were replaced by it."""
    in_order = sorted(pods, key=lambda pod: pod.created)
    return list({pod.rank or f"\x00{pod.uid or pod.name}": pod for pod in in_order}.values())


def _gpus(members: list[PodRecord]) -> tuple[int, int, int]:
    """Return (gpus, gpu_milli, nodes) of a job. Parts of GPUs add up to whole ones, unless there is one only."""
    wide = [each for each in members if each.gpus]
    if len(wide) == 1:
        return wide[0].gpus, wide[0].gpu_milli, 0 if wide[0].gpus == 1 else 1
    total = sum(each.gpus * each.gpu_milli for each in wide)
    gpus = -(-total // WHOLE_GPU_MILLI)
    if not wide or any(each.gpus == 1 or each.gpus != wide[0].gpus for each in wide):
        return gpus, WHOLE_GPU_MILLI, 0
    where = [each.node for each in wide if each.node]
    return gpus, WHOLE_GPU_MILLI, len(wide) if len(set(where)) == len(where) else 0

"""Flatten a pod to one record: its requests, its owner, its gang, and how it ended.

Nothing is left out or made up here: times that the object does not tell are None, and what becomes of such pods is for
the reader of the record to decide. Times are nanoseconds since 1970.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache

from msgspec import Struct

from headway.jobs.kubernetes.nodes import PRODUCTS, gpu_type, slicing
from headway.jobs.kubernetes.objects import (
    EPOCH,
    ContainerStatus,
    Item,
    Metadata,
    Spec,
    Status,
    Stay,
    conditions,
    nanoseconds,
)
from headway.jobs.kubernetes.resources import (
    WHOLE,
    Amounts,
    Container,
    GpuRequest,
    ObjectError,
    Quantity,
    Resources,
    Slicing,
    effective,
    gpu_request,
    marked,
)
from headway.units import SECOND

GANGS = (
    "scheduling.x-k8s.io/pod-group",
    "pod-group.scheduling.sigs.k8s.io",
    "pod-group.scheduling.sigs.k8s.io/name",
    "scheduling.k8s.io/group-name",
    "scheduling.volcano.sh/group-name",
    "pod-group-name",
    "kueue.x-k8s.io/pod-group-name",
    "jobset.sigs.k8s.io/jobset-name",
    "training.kubeflow.org/job-name",
)
"""Labels or annotations whose value names the gang of a pod, the strongest first."""
INDEXES = (
    "training.kubeflow.org/replica-index",
    "batch.kubernetes.io/job-completion-index",
    "volcano.sh/task-index",
)
"""Labels or annotations that number the members of a gang; a pod that replaces another has its number."""
ROLES = (
    "training.kubeflow.org/replica-type",
    "jobset.sigs.k8s.io/replicatedjob-name",
    "jobset.sigs.k8s.io/job-index",
    "volcano.sh/task-spec",
)
"""Labels or annotations within whose value the numbers count."""
QUEUES = ("kueue.x-k8s.io/queue-name", "kai.scheduler/queue", "runai/queue", "scheduling.volcano.sh/queue-name")
STOPPED = frozenset((
    "Evicted", "Preempting", "Preempted", "DeletionByTaintManager",
    "NodeLost", "NodeShutdown", "Shutdown", "Terminated",
))  # fmt: skip
"""Reasons of a pod that was stopped from outside."""
_JOBS = ("batch.kubernetes.io/job-name", "job-name")
_REPLICATED = ("ReplicaSet", "DaemonSet")
_HARMLESS = frozenset(f"{prefix}kubernetes.io/{what}" for prefix in ("", "beta.") for what in ("os", "arch"))
_CARD_MODEL = "alibabacloud.com/gpu-card-model"
_MIRROR = "kubernetes.io/config.mirror"
_KNOWN = frozenset((*GANGS, *INDEXES, *ROLES, *QUEUES, *_JOBS, _CARD_MODEL, _MIRROR))
_NUMBERED, _RANKS = frozenset(INDEXES), (*ROLES, *INDEXES)
_NOTHING: dict[str, str] = {}
_OVER = ("Succeeded", "Failed")


class PodRecord(Struct, frozen=True, gc=False):
    """One pod."""

    name: str
    namespace: str
    uid: str
    owner: str
    """The kind of object that made it, e.g. Job; Node for a static pod."""
    phase: str
    created: int
    started: int | None
    """When its node took it on; None if that never happened."""
    ended: int | None
    seen: int
    """The latest time that it tells."""
    stopped: bool
    """Ended from outside: evicted, preempted, deleted while it ran."""
    restarts: int
    gpus: int
    gpu_milli: int
    share_guessed: bool
    cpu_milli: int
    memory_bytes: int
    gpu_types: tuple[str, ...]
    gang: str
    """Empty: it stands alone."""
    gang_if_at_once: bool
    """Its gang is one only if its members ran at the same time: an indexed Job may also be a plain array."""
    rank: str
    """Which member of the gang it is."""
    node: str
    priority: int
    qos: str
    deadline: int
    """Nanoseconds that it may run; 0 means no limit."""
    unmodelled: tuple[str, ...]
    """What it asked for beyond what a job can say."""


def pod(item: Item, nodes: Mapping[str, Slicing] | None = None) -> PodRecord:
    """Return the record of a pod; ``nodes`` tells how GPUs are shared, by node. Raises ``ObjectError``."""
    meta, spec, status = item.metadata, item.spec, item.status
    if not meta.name:
        raise ObjectError("metadata.name", "", "is missing: a pod needs a name")
    if meta.creation_timestamp is None:
        raise ObjectError("metadata.creationTimestamp", "", "is missing")
    notes = _notes(meta) if meta.labels or meta.annotations else _NOTHING
    marks = marked(meta.annotations) if meta.annotations else None
    sliced = _slicing(spec, nodes) if nodes or spec.node_selector else WHOLE
    gpus, cpu_milli, memory_bytes = _request(spec, marks, sliced)
    choosy = spec.node_selector or spec.affinity or spec.resource_claims or _CARD_MODEL in notes
    types, unmodelled = _wants(spec, notes) if choosy else ((), ())
    owner = "Node" if _MIRROR in notes else meta.owner_references[0].kind if meta.owner_references else ""
    gang, loose = _gang(spec, notes, owner) if notes or spec.scheduling_group else ("", False)
    return PodRecord(
        meta.name, meta.namespace, meta.uid, owner, status.phase,
        *_times(item),
        sum([each.restart_count for each in status.container_statuses]) if status.container_statuses else 0,
        gpus.gpus, gpus.gpu_milli, gpus.guessed, cpu_milli, memory_bytes,
        types, gang, loose, _rank(notes) if gang else "",
        spec.node_name or "", spec.priority or 0, spec.priority_class_name or _first_of(QUEUES, notes) or "",
        max(0, spec.active_deadline_seconds or 0) * SECOND, unmodelled,
    )  # fmt: skip


def _notes(meta: Metadata) -> Mapping[str, str]:
    """Return labels and annotations if any of them is known here, else an empty table."""
    labels, annotations = meta.labels or {}, meta.annotations or {}
    if _KNOWN.isdisjoint(labels) and _KNOWN.isdisjoint(annotations):
        return _NOTHING
    return {**annotations, **labels} if annotations else labels


def _first_of(names: Sequence[str], notes: Mapping[str, str]) -> str | None:
    """Return the value of the first of these names that is there."""
    for name in names:
        if name in notes:
            return notes[name]
    return None


def _request(spec: Spec, by_annotation: Amounts | None, slicing: Slicing) -> tuple[GpuRequest, int, int]:
    """Return the GPUs, thousandths of a CPU and bytes of memory that a pod asks for."""
    if by_annotation or spec.resources:
        asked = effective(spec.containers or (), spec.init_containers or (), spec.overhead, spec.resources)
        return _totals({**asked, **(by_annotation or {})}, slicing)
    listed = spec.containers or ()
    if len(listed) == 1 and slicing is WHOLE and not (spec.init_containers or spec.overhead):
        return _single(listed[0].resources)
    containers = tuple([each.resources for each in listed])
    before = [(each.resources, each.restart_policy) for each in spec.init_containers or ()]
    return _usual(containers, tuple(before), tuple((spec.overhead or {}).items()), slicing)


@lru_cache(maxsize=1 << 14)
def _single(resources: Resources | None) -> tuple[GpuRequest, int, int]:
    """Return the same for a pod with one container; cached, as a file has far fewer different ones than pods."""
    return _totals(effective([Container(resources)]), WHOLE)


@lru_cache(maxsize=1 << 14)
def _usual(
    containers: tuple[Resources | None, ...],
    before: tuple[tuple[Resources | None, str | None], ...],
    overhead: tuple[tuple[str, Quantity], ...],
    slicing: Slicing,
) -> tuple[GpuRequest, int, int]:
    """Return the same for a pod with several containers, or on a GPU that is shared."""
    first = [Container(*each) for each in before]
    return _totals(effective([Container(each) for each in containers], first, dict(overhead)), slicing)


def _totals(asked: Amounts, slicing: Slicing) -> tuple[GpuRequest, int, int]:
    return gpu_request(asked, slicing), asked.get("cpu", 0), asked.get("memory", 0) // 1000


def _slicing(spec: Spec, nodes: Mapping[str, Slicing] | None) -> Slicing:
    if nodes and (known := nodes.get(spec.node_name or "")):
        return known
    return slicing(spec.node_selector) if spec.node_selector else WHOLE


def _gang(spec: Spec, notes: Mapping[str, str], owner: str) -> tuple[str, bool]:
    """Return the gang, and whether only members that run at once make it one."""
    if owner in _REPLICATED:
        return "", False  # replicas of a service come and go one by one, whatever scheduler groups them
    if spec.scheduling_group and spec.scheduling_group.pod_group_name:
        return spec.scheduling_group.pod_group_name, False
    if (named := _first_of(GANGS, notes)) is not None:
        return named, False
    return (_first_of(_JOBS, notes) or "", True) if INDEXES[1] in notes else ("", False)


def _rank(notes: Mapping[str, str]) -> str:
    if _NUMBERED.isdisjoint(notes):
        return ""
    return "/".join([notes[name] for name in _RANKS if name in notes])


def _wants(spec: Spec, notes: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the GPU types a pod accepts, and what else it wants of its node that is not modelled."""
    types: tuple[str, ...] = tuple(filter(None, notes[_CARD_MODEL].split("|"))) if _CARD_MODEL in notes else ()
    unmodelled: list[str] = []
    if spec.node_selector:
        chosen, others_too = _selected(tuple(spec.node_selector.items()))
        types = chosen or types
        unmodelled.extend(("a node selector",) if others_too else ())
    if spec.affinity:
        listed, others = _affinity(spec.affinity)
        types = types or listed
        unmodelled.extend(others)
    if spec.resource_claims:
        unmodelled.append("resource claims")
    return types, tuple(unmodelled)


@lru_cache(maxsize=1024)
def _selected(selector: tuple[tuple[str, str], ...]) -> tuple[tuple[str, ...], bool]:
    """Return the GPU types of a node selector, and whether it asks for anything else."""
    types = tuple([gpu_type(value) for name, value in selector if name in PRODUCTS])
    return types, any(name not in _HARMLESS and name not in PRODUCTS for name, _ in selector)


def _affinity(affinity: Mapping[str, object]) -> tuple[tuple[str, ...], list[str]]:
    """Return the GPU types that the required node affinity lists (terms are alternatives), and its other demands."""
    others = [
        name
        for key, name in (("podAffinity", "pod affinity"), ("podAntiAffinity", "pod anti-affinity"))
        if affinity.get(key)
    ]
    types: list[str] = []
    free = False
    for term in _terms(affinity):
        listed = [
            gpu_type(str(value))
            for name, operator, values in term
            if name in PRODUCTS and operator == "In"
            for value in values
        ]
        if any(name not in _HARMLESS and not (name in PRODUCTS and operator == "In") for name, operator, _ in term):
            others.append("node affinity")
        free = free or not listed
        types.extend(listed)
    return () if free else tuple(dict.fromkeys(types)), list(dict.fromkeys(others))


def _terms(affinity: Mapping[str, object]) -> Iterable[list[tuple[str, str, list[object]]]]:
    node = affinity.get("nodeAffinity")
    required = node.get("requiredDuringSchedulingIgnoredDuringExecution") if isinstance(node, dict) else None
    terms = required.get("nodeSelectorTerms") if isinstance(required, dict) else None
    for term in terms if isinstance(terms, list) else ():
        rules = term.get("matchExpressions") if isinstance(term, dict) else None
        listed = [rule for rule in rules if isinstance(rule, dict)] if isinstance(rules, list) else []
        yield [(str(rule.get("key")), str(rule.get("operator")), list(rule.get("values") or ())) for rule in listed]


def _times(item: Item) -> tuple[int, int | None, int | None, int, bool]:
    """Return (created, started, ended, latest time in the object, whether the pod was stopped from outside)."""
    meta, status = item.metadata, item.status
    assert meta.creation_timestamp is not None
    started, ended, stopped = status.start_time or _started(status), None, False
    seen = created = nanoseconds(meta.creation_timestamp)
    if status.phase in _OVER:
        ended = _ended(status)
        stopped = status.phase == "Failed" and (
            status.reason in STOPPED or _since(status, "DisruptionTarget") is not None
        )
    else:
        changes = [each.last_transition_time for each in conditions(status)]
        told = [time for time in (*changes, *_starts(status.container_statuses)) if time is not None]
        seen = max(seen, nanoseconds(max(told))) if told else seen
    began = None if started is None else nanoseconds(started)
    end = None if ended is None else nanoseconds(ended)
    seen = max(seen, began or seen, end or seen)
    if ended is None and meta.deletion_timestamp is not None:
        ended, stopped = meta.deletion_timestamp, status.phase != "Succeeded"
        end = nanoseconds(ended)
    if began is not None and end is not None and end < began:
        spelt = [time.isoformat() for time in (ended, started) if time is not None]
        raise ObjectError("status: its end", spelt[0], f"is before its start {spelt[1]}")
    return created, began, end, seen, stopped


def _started(status: Status) -> datetime | None:
    return _since(status, "PodScheduled") or min(_starts(status.container_statuses), default=None)


def _since(status: Status, condition: str) -> datetime | None:
    true = (each for each in conditions(status) if each.type == condition and each.status == "True")
    return next((each.last_transition_time for each in true), None)


def _starts(statuses: Iterable[ContainerStatus] | None) -> Iterable[datetime]:
    for each in statuses or ():
        for state in (each.state, each.last_state):
            for stay in (state.running, state.terminated) if state else ():
                if stay is not None and stay.started_at is not None:
                    yield stay.started_at


def _ended(status: Status) -> datetime | None:
    """Return the end of the last container; if none tells one, when the pod was evicted or last changed."""
    for statuses in (status.container_statuses, status.init_container_statuses):
        last = None
        for each in statuses or ():
            if each.state and each.state.terminated:
                end = _end(each.state.terminated)
                last = end if last is None or (end is not None and end > last) else last
        if last is not None:
            return last
    changes = [each.last_transition_time for each in conditions(status) if each.last_transition_time]
    return _since(status, "DisruptionTarget") or max(changes, default=None)


def _end(stay: Stay) -> datetime | None:
    """Return when a container ended; one that was lost is said to have ended in 1970."""
    began, end = stay.started_at, stay.finished_at
    if end is None or end <= EPOCH:
        return None
    if began is not None and end < began:
        raise ObjectError("finishedAt", end.isoformat(), f"is before startedAt {began.isoformat()}")
    return end

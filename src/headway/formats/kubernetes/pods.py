"""A pod in one flat record: what it asked for, whose it was, which gang it belonged to, and what became of it.

Nothing is left out or made up here: times that the object does not tell are None, and what becomes of such pods is for
the reader of the record to decide. Times are nanoseconds since 1970.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from msgspec import Struct

from headway.formats.kubernetes.nodes import PRODUCTS, gpu_type, slicing
from headway.formats.kubernetes.objects import ContainerStatus, Item, Spec, Status, Stay, nanoseconds
from headway.formats.kubernetes.resources import WHOLE, ObjectError, Slicing, effective, gpu_request, marked
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
_GANG_KEYS = frozenset(GANGS)
_CARD_MODEL = "alibabacloud.com/gpu-card-model"
_MIRROR = "kubernetes.io/config.mirror"


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
    """The record of a pod; ``nodes`` tells how GPUs are shared, by node. Raises ``ObjectError``."""
    meta, spec, status = item.metadata, item.spec, item.status
    if not meta.name:
        raise ObjectError("metadata.name", "", "is missing: a pod needs a name")
    if meta.creation_timestamp is None:
        raise ObjectError("metadata.creationTimestamp", "", "is missing")
    notes = {**(meta.annotations or {}), **(meta.labels or {})}
    asked = effective(spec.containers or (), spec.init_containers or (), spec.overhead, spec.resources)
    if by_annotation := marked(meta.annotations):
        asked = {**asked, **by_annotation}
    gpus = gpu_request(asked, _slicing(spec, nodes))
    types, unmodelled = _wants(spec, notes)
    owner = "Node" if _MIRROR in notes else meta.owner_references[0].kind if meta.owner_references else ""
    gang, loose = _gang(spec, notes, owner)
    created, started, ended, seen, stopped = _times(item)
    return PodRecord(
        meta.name, meta.namespace, meta.uid, owner, status.phase,
        created, started, ended, seen, stopped,
        sum([each.restart_count for each in status.container_statuses or ()]),
        gpus.gpus, gpus.gpu_milli, gpus.guessed, asked.get("cpu", 0), asked.get("memory", 0) // 1000,
        types, gang, loose, _rank(notes) if gang else "",
        spec.node_name or "", spec.priority or 0,
        spec.priority_class_name or next((notes[name] for name in QUEUES if name in notes), ""),
        max(0, spec.active_deadline_seconds or 0) * SECOND, unmodelled,
    )  # fmt: skip


def _slicing(spec: Spec, nodes: Mapping[str, Slicing] | None) -> Slicing:
    known = nodes.get(spec.node_name or "") if nodes else None
    return known or (slicing(spec.node_selector) if spec.node_selector else WHOLE)


def _gang(spec: Spec, notes: Mapping[str, str], owner: str) -> tuple[str, bool]:
    """The gang, and whether only members that run at once make it one."""
    if owner in _REPLICATED:
        return "", False  # replicas of a service come and go one by one, whatever scheduler groups them
    if spec.scheduling_group and spec.scheduling_group.pod_group_name:
        return spec.scheduling_group.pod_group_name, False
    if named := _GANG_KEYS & notes.keys():
        return notes[min(named, key=GANGS.index)], False
    if INDEXES[1] in notes:
        return next((notes[name] for name in _JOBS if name in notes), ""), True
    return "", False


def _rank(notes: Mapping[str, str]) -> str:
    if not any(name in notes for name in INDEXES):
        return ""
    return "/".join(notes[name] for name in (*ROLES, *INDEXES) if name in notes)


def _wants(spec: Spec, notes: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The GPU types a pod accepts, and what else it wants of its node that is not modelled."""
    if not (spec.node_selector or spec.affinity or spec.resource_claims or _CARD_MODEL in notes):
        return (), ()
    types: tuple[str, ...] = tuple(filter(None, notes[_CARD_MODEL].split("|"))) if _CARD_MODEL in notes else ()
    unmodelled = []
    if spec.node_selector:
        chosen = [gpu_type(value) for name, value in spec.node_selector.items() if name in PRODUCTS]
        types = tuple(chosen) or types
        if spec.node_selector.keys() - _HARMLESS - set(PRODUCTS):
            unmodelled.append("a node selector")
    if spec.affinity:
        listed, others = _affinity(spec.affinity)
        types = types or listed
        unmodelled.extend(others)
    if spec.resource_claims:
        unmodelled.append("resource claims")
    return types, tuple(unmodelled)


def _affinity(affinity: Mapping[str, object]) -> tuple[tuple[str, ...], list[str]]:
    """GPU types that the required node affinity lists (terms are alternatives), and what else it requires."""
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
    """Created, started, ended, the latest time told, and whether it was stopped from outside."""
    meta, status = item.metadata, item.status
    assert meta.creation_timestamp is not None
    started = _started(status)
    over = status.phase in ("Succeeded", "Failed")
    ended = _ended(status) if over else None
    stopped = status.phase == "Failed" and (status.reason in STOPPED or _since(status, "DisruptionTarget") is not None)
    seen = max(filter(None, (meta.creation_timestamp, started, ended)))
    if not over:
        changes = (each.last_transition_time for each in status.conditions or ())
        seen = max((seen, *filter(None, changes), *_starts(status.container_statuses)))
    if ended is None and meta.deletion_timestamp is not None:
        ended, stopped = meta.deletion_timestamp, status.phase != "Succeeded"
    if started is not None and ended is not None and ended < started:
        raise ObjectError("status: its end", ended.isoformat(), f"is before its start {started.isoformat()}")
    return (
        nanoseconds(meta.creation_timestamp),
        None if started is None else nanoseconds(started),
        None if ended is None else nanoseconds(ended),
        nanoseconds(seen),
        stopped,
    )


def _started(status: Status) -> datetime | None:
    if status.start_time is not None:
        return status.start_time
    return _since(status, "PodScheduled") or min(_starts(status.container_statuses), default=None)


def _since(status: Status, condition: str) -> datetime | None:
    for each in status.conditions or ():
        if each.type == condition and each.status == "True":
            return each.last_transition_time
    return None


def _starts(statuses: Iterable[ContainerStatus] | None) -> Iterable[datetime]:
    for each in statuses or ():
        for state in (each.state, each.last_state):
            for stay in (state.running, state.terminated) if state else ():
                if stay is not None and stay.started_at is not None:
                    yield stay.started_at


def _ended(status: Status) -> datetime | None:
    """The end of the last container, or where none tells one, when the pod was evicted or last changed."""
    for statuses in (status.container_statuses, status.init_container_statuses):
        ends = [_end(each.state.terminated) for each in statuses or () if each.state and each.state.terminated]
        if told := [end for end in ends if end is not None]:
            return max(told)
    changes = [each.last_transition_time for each in status.conditions or () if each.last_transition_time]
    return _since(status, "DisruptionTarget") or max(changes, default=None)


def _end(stay: Stay) -> datetime | None:
    """When a container ended; one that was lost is said to have ended in 1970."""
    began, end = stay.started_at, stay.finished_at
    if end is None or end.timestamp() <= 0:
        return None
    if began is not None and end < began:
        raise ObjectError("finishedAt", end.isoformat(), f"is before startedAt {began.isoformat()}")
    return end

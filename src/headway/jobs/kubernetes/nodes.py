"""Parse the nodes of a Kubernetes cluster: capacity, GPUs, how GPUs are shared, and the node pool."""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from headway.errors import ExperimentError
from headway.jobs.kubernetes import quotas as quota
from headway.jobs.kubernetes.objects import Item, conditions, objects
from headway.jobs.kubernetes.resources import WHOLE, ObjectError, Slicing, amounts, gpu_request, slice_milli
from headway.jobs.traces.clusters.records import Described, NodeRecord
from headway.units import WHOLE_GPU_MILLI

PRODUCTS = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "cloud.google.com/gke-accelerator",
    "gpu.nvidia.com/model",
    "karpenter.k8s.aws/instance-gpu-name",
    "accelerator",
)
"""Labels that name the type of a node's GPUs, the strongest first."""
POOLS = (
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
    "agentpool",
    "karpenter.sh/nodepool",
)
"""Labels that name the pool of a node; it becomes a partition."""
_OVERSOLD = ("hami.io/node-nvidia-register", "volcano.sh/node-vgpu-register")
"""Annotations of nodes whose number of ``…/gpu`` is that of virtual GPUs."""
_SHARED = "-shared"
_COUNT = re.compile(r"[0-9]{1,9}")
_MIG = re.compile(r"-mig-([0-9]+g\.[0-9]+gb)[^/]*$")
_VENDORS = re.compile(r"^(nvidia-|amd-|intel-|tesla-|instinct-)+")
_SHOWN = 5


def describes(text: str) -> bool:
    """Return whether this begins like the JSON of Kubernetes objects."""
    head = text.lstrip()[:4096]
    return head[:1] in ("{", "[") and '"apiVersion"' in head


def cluster(text: str, where: str) -> Described:
    """Return the nodes and the resource quotas in a file."""
    nodes_by_name: dict[str, Item] = {}
    quotas: list[Item] = []
    kinds: set[str] = set()
    for position, item in enumerate(objects(text.encode(), where, ExperimentError), start=1):
        if isinstance(item, ObjectError) and item.kind in ("Node", quota.KIND, ""):
            raise ExperimentError(f"{where}: item {position}: {item}")
        kinds.add(item.kind)
        if isinstance(item, Item) and item.kind == "Node":
            if not item.metadata.name:
                raise ExperimentError(f"{where}: item {position}: metadata.name is missing: a node needs a name")
            nodes_by_name[item.metadata.name] = item
        elif isinstance(item, Item) and item.kind == quota.KIND:
            quotas.append(item)
    if not nodes_by_name and not quotas:
        holds = ", ".join(sorted(kinds)) or "nothing"
        raise ExperimentError(f"{where}: holds no node ({holds}): write one with kubectl get nodes -o json")
    try:
        nodes = tuple(_node(item) for item in nodes_by_name.values())
        limits, unread, told = quota.limits_of(quotas)
    except ObjectError as problem:
        raise ExperimentError(f"{where}: {problem}") from None
    notes = (*_notes(nodes_by_name.values()), *told)
    return Described(nodes=nodes, notes=notes, limits=limits, unread=unread)


@lru_cache(maxsize=1024)
def gpu_type(label: str) -> str:
    """Return a GPU's product in short: ``NVIDIA-A100-SXM4-80GB-SHARED`` is ``a100-sxm4-80gb``."""
    text = re.sub(r"[\s_]+", "-", label.strip().lower()).removesuffix(_SHARED)
    return _VENDORS.sub("", _MIG.sub("", text)) or "gpu"


def product(labels: Mapping[str, str]) -> str:
    """Return the label that names the GPUs, as it is written; empty where there is none."""
    return next((labels[name] for name in PRODUCTS if labels.get(name)), "")


def slicing(labels: Mapping[str, str]) -> Slicing:
    """Return how the GPUs of a node with these labels are shared."""
    return _sliced(product(labels).lower(), labels.get("nvidia.com/gpu.replicas", ""))


@lru_cache(maxsize=1024)
def _sliced(text: str, replicas: str) -> Slicing:
    match = _MIG.search(text.removesuffix(_SHARED))
    count = int(replicas) if _COUNT.fullmatch(replicas) else 0
    replica = WHOLE_GPU_MILLI // count if 0 < count <= WHOLE_GPU_MILLI else 0
    device = slice_milli(match.group(1)) if match else WHOLE_GPU_MILLI
    if text.endswith(_SHARED) and replica:
        device = max(1, device * replica // WHOLE_GPU_MILLI)
    if device == WHOLE_GPU_MILLI and not replica:
        return WHOLE
    return Slicing(device, replica)


def _node(item: Item) -> NodeRecord:
    labels = item.metadata.labels or {}
    has = amounts({**(item.status.capacity or {}), **(item.status.allocatable or {})})
    pool = next((labels[name] for name in POOLS if labels.get(name)), "")
    return NodeRecord(
        item.metadata.name,
        _gpus(item, has, labels),
        gpu_type(product(labels)),
        max(1, has["cpu"] // 1000) if "cpu" in has else None,
        max(1, has["memory"] // 1000) if "memory" in has else None,
        (pool,) if pool else (),
    )


def _gpus(item: Item, has: dict[str, int], labels: Mapping[str, str]) -> int:
    count = labels.get("nvidia.com/gpu.count", "")
    if count and any(name in (item.metadata.annotations or {}) for name in _OVERSOLD):
        if not _COUNT.fullmatch(count):
            raise ObjectError("nvidia.com/gpu.count", count, "must be a whole number, 0 or more")
        return int(count)
    return gpu_request(has, slicing(labels)).gpus


def _notes(nodes: Iterable[Item]) -> list[str]:
    away, short = [], []
    for item in nodes:
        ready = next((each.status for each in conditions(item.status) if each.type == "Ready"), "True")
        if item.spec.unschedulable or ready != "True":
            away.append(item.metadata.name)
        capacity, allocatable = amounts(item.status.capacity), amounts(item.status.allocatable)
        if any(allocatable.get(name, amount) < amount for name, amount in capacity.items() if name.endswith("/gpu")):
            short.append(item.metadata.name)
    told = (
        (away, "nodes that are cordoned or not ready count all the same"),
        (short, "nodes whose allocatable GPUs are fewer than they have count with those"),
    )
    return [f"{what}: {_named(names)}" for names, what in told if names]


def _named(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more

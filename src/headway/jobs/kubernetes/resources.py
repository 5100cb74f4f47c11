"""Compute what a pod requests and a node offers, by Kubernetes' rules: quantities, effective requests, GPU resources.

Amounts are integers in thousandths (of a CPU, a byte, a device), rounded up as Kubernetes rounds. A GPU may be asked
for as a device, a MIG slice, a time-sliced replica, a percentage, a fraction or an amount of its memory; all of them
become whole devices or a share of one in thousandths.
"""

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from math import ceil

from msgspec import Struct

from headway.errors import InputError
from headway.units import WHOLE_GPU_MILLI

Quantity = str | int | float
Amounts = dict[str, int]
"""Thousandths by the name of the resource."""

GUESSED_SHARE_MILLI = 500
"""Of a GPU that is shared by a measure the file does not explain (memory, replicas): half of it."""

_NUMBER = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3}|[KMGTPE]i|[numkMGTPE]?)")
_SUFFIXES = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_LARGEST = 2**63 - 1
_LONGEST = 40
_MIG = re.compile(r"mig-(?:[0-9]+c\.)?(([0-9]+)g\.[0-9]+gb)")
_SLICES, _SLICES_A30 = 7, 4
_ORDINARY = frozenset(("cpu", "memory", "ephemeral-storage"))
_A30 = ("1g.6gb", "2g.12gb", "4g.24gb")
_DEVICES = (
    "gpu.intel.com/i915",
    "gpu.intel.com/xe",
    "volcano.sh/vgpu-number",
    "alibabacloud.com/gpu-count",
    "gpu-fraction-num-devices",
)
_PERCENT = (
    "koordinator.sh/gpu",
    "koordinator.sh/gpu-core",
    "koordinator.sh/gpu-memory-ratio",
    "aliyun.com/gpu-core.percentage",
    "tencent.com/vcuda-core",
)
_PERCENT_EACH = (
    "nvidia.com/gpucores",
    "nvidia.com/gpumem-percentage",
    "volcano.sh/vgpu-cores",
    "volcano.sh/vgpu-memory-percentage",
)
_MEMORY = (
    "nvidia.com/gpumem",
    "volcano.sh/vgpu-memory",
    "aliyun.com/gpu-mem",
    "alibabacloud.com/gpu-mem",
    "gpu-memory",
)
_MILLI_EACH = ("alibabacloud.com/gpu-milli",)
_FRACTION_EACH = ("gpu-fraction",)
_ANNOTATIONS = frozenset((*_MILLI_EACH, *_FRACTION_EACH, *_MEMORY[3:], *_DEVICES[3:]))


class ObjectError(InputError):
    """A value that cannot be used: what it is, the value, and the rule. The caller drops the object or refuses it."""

    def __init__(self, field: str, value: object, rule: str, kind: str = "") -> None:
        super().__init__(f"{field} {str(value)!r} {rule}")
        self.field, self.value, self.rule = field, str(value), rule
        self.kind = kind


class Resources(Struct, gc=False, eq=False):
    """Of a container or a pod. Each is a key of its own: those that a file spells alike are one object."""

    requests: dict[str, Quantity] | None = None
    limits: dict[str, Quantity] | None = None


class Container(Struct, rename="camel", gc=False):
    """A container as its pod describes it."""

    resources: Resources | None = None
    restart_policy: str | None = None
    """Always, on an init container: a sidecar."""


class Slicing(Struct, frozen=True):
    """How a node hands out its GPUs, where they are shared."""

    device_milli: int = WHOLE_GPU_MILLI
    """What one ``…/gpu`` is of a device."""
    replica_milli: int = 0
    """What one ``…/gpu.shared`` is; 0 where nothing tells."""


class GpuRequest(Struct, frozen=True):
    """Whole devices, or a share of one."""

    gpus: int = 0
    gpu_milli: int = WHOLE_GPU_MILLI
    guessed: bool = False
    """The share is not told by the file."""


WHOLE = Slicing()
NONE = GpuRequest()


@lru_cache(maxsize=1 << 14)
def thousandths(text: str, field: str = "quantity") -> int:
    """Parse a quantity like ``500m``, ``64Gi``, ``1e3`` or ``2k`` into thousandths, rounded up."""
    match = _NUMBER.fullmatch(text.strip()) if len(text) <= _LONGEST else None
    if match is None:
        negative = text.strip().startswith("-")
        raise ObjectError(
            field, text, "must not be negative" if negative else "is no quantity like 500m, 2, 1e3 or 64Gi"
        )
    number, suffix = Fraction(match.group(1)), match.group(2)
    if suffix.endswith("i"):
        number *= 1024 ** (1 + "KMGTPE".index(suffix[0]))
    else:
        number *= Fraction(10) ** (int(suffix[1:]) if len(suffix) > 1 else _SUFFIXES[suffix])
    amount = ceil(number * 1000)
    if amount > _LARGEST:
        raise ObjectError(field, text, "is too large")
    return amount


def amounts(quantities: Mapping[str, Quantity] | None) -> Amounts:
    """Return a table of quantities in thousandths."""
    return {name: thousandths(str(value), name) for name, value in quantities.items()} if quantities else {}


@lru_cache(maxsize=1 << 14)
def _asked(resources: Resources | None) -> Amounts:
    """Return a container's requests, not to be changed; a limit without one is its request."""
    if resources is None:
        return {}
    asked = amounts(resources.requests)
    if resources.limits:
        for name, value in resources.limits.items():
            if name not in asked:
                asked[name] = thousandths(str(value), name)
    return asked


def _add(total: Amounts, more: Amounts) -> Amounts:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount
    return total


def effective(
    containers: Sequence[Container],
    before: Sequence[Container] = (),
    overhead: Mapping[str, Quantity] | None = None,
    pod: Resources | None = None,
) -> Amounts:
    """Return what a pod asks for: its containers together, or the widest of its init containers if that is more.

    An init container that restarts always is a sidecar: it stays, beside the init containers after it and all
    containers. What the pod asks for as a whole replaces the sum; overhead comes on top.
    """
    together: Amounts = {}
    for container in containers:
        _add(together, _asked(container.resources))
    staying: Amounts = {}
    peak: Amounts = {}
    for container in before:
        asked = _asked(container.resources)
        if container.restart_policy == "Always":
            at_once = dict(_add(staying, asked))
        else:
            at_once = _add(dict(staying), asked)
        peak = {name: max(peak.get(name, 0), at_once.get(name, 0)) for name in {**peak, **at_once}}
    _add(together, staying)
    for name, amount in peak.items():
        together[name] = max(together.get(name, 0), amount)
    if pod is not None:
        together.update(_asked(pod))
    return _add(together, amounts(overhead)) if overhead else together


def marked(annotations: Mapping[str, str] | None) -> Amounts:
    """Return the GPUs that a pod asks for by annotation, in thousandths by name."""
    if not annotations or _ANNOTATIONS.isdisjoint(annotations):
        return {}
    return {name: thousandths(annotations[name], name) for name in _ANNOTATIONS & annotations.keys()}


@lru_cache(maxsize=1024)
def _kind(name: str) -> tuple[str, int]:
    """Return how a resource counts GPUs, and what one is in thousandths of a device; ('', 0) for no GPU."""
    if match := _MIG.search(name):
        return "slices", slice_milli(match.group(1))
    table = (("percent", _PERCENT, 10), ("each", _PERCENT_EACH, 10), ("each", _MILLI_EACH, 1))
    more = (("each", _FRACTION_EACH, WHOLE_GPU_MILLI), ("memory", _MEMORY, 0), ("devices", _DEVICES, 0))
    for kind, names, milli in (*table, *more):
        if name in names:
            return kind, milli
    prefix, _, last = name.rpartition("/")
    kinds = {"gpu": "devices", "gpu.shared": "replicas"}
    return (kinds.get(last, "") if prefix else "", 0)


def counts_devices(name: str) -> bool:
    """Return whether a resource is whole GPUs by their number."""
    return _kind(name)[0] == "devices"


def slice_milli(profile: str) -> int:
    """Return a MIG profile like ``3g.20gb`` in thousandths of a GPU, rounded down so that all slices fit."""
    slices = int(profile.partition("g")[0])
    return min(WHOLE_GPU_MILLI, slices * WHOLE_GPU_MILLI // (_SLICES_A30 if profile in _A30 else _SLICES))


def gpu_request(asked: Amounts, slicing: Slicing = WHOLE) -> GpuRequest:
    """Return the GPUs among amounts. More than one device in parts is rounded up to whole ones."""
    counts: dict[str, int] = {}
    for name, amount in asked.items():
        if name in _ORDINARY:
            continue
        kind, milli = _kind(name)
        if not kind or not amount:
            continue
        if amount % 1000 and kind in ("devices", "slices", "replicas"):
            raise ObjectError(name, f"{amount}m", "must be a whole number of devices")
        if kind in ("percent", "each"):
            counts[kind] = max(counts.get(kind, 0), ceil(amount * milli / 1000))
        else:
            counts[kind] = counts.get(kind, 0) + amount // 1000 * (milli or 1)
    return _request(counts, slicing) if counts else NONE


@lru_cache(maxsize=1024)
def _devices(count: int) -> GpuRequest:
    return GpuRequest(count)


def _request(counts: dict[str, int], slicing: Slicing) -> GpuRequest:
    if len(counts) == 1 and "devices" in counts and slicing is WHOLE:
        return _devices(counts["devices"])
    devices, each = counts.get("devices", 0), counts.get("each", 0)
    guessed = False
    if each:
        shared = min(each, WHOLE_GPU_MILLI) if devices <= 1 else devices * WHOLE_GPU_MILLI
    elif counts.get("memory") and devices <= 1:
        shared, guessed = GUESSED_SHARE_MILLI, True
    else:
        shared = devices * slicing.device_milli
    if replicas := counts.get("replicas", 0):
        guessed = guessed or not slicing.replica_milli
        shared += replicas * slicing.replica_milli or GUESSED_SHARE_MILLI
    total = max(shared + counts.get("slices", 0), counts.get("percent", 0))
    if total < WHOLE_GPU_MILLI:
        return GpuRequest(1, total, guessed) if total else NONE
    return GpuRequest(ceil(total / WHOLE_GPU_MILLI), WHOLE_GPU_MILLI, guessed)

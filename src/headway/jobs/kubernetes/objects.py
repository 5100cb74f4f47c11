"""Decode Kubernetes objects from JSON: only the fields that headway uses, typed.

A file holds a list, one object, several of either one after the other, or watch events. A list without a fault is
decoded at once; otherwise objects are decoded one by one, so that a bad one costs one object and can be named.
"""

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from headway.errors import InputError
from headway.jobs.kubernetes.resources import Container, ObjectError, Quantity, Resources
from headway.units import SECOND

Time = Annotated[datetime, Meta(tz=True)]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS_A_DAY = 86_400
_PIECE = 1 << 20
"""Bytes that are checked to be text at a time."""


class Owner(Struct):
    """Who made an object."""

    kind: str = ""


class Metadata(Struct, rename="camel", gc=False):
    """Of a pod or a node."""

    name: str = ""
    namespace: str = "default"
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    owner_references: list[Owner] | None = None


class Group(Struct, rename="camel"):
    """The pod group of a pod, in the field of the scheduler itself."""

    pod_group_name: str | None = None


class ScopeRule(Struct, rename="camel"):
    """Which pods a quota counts."""

    scope_name: str = ""
    operator: str = ""
    values: list[str] | None = None


class ScopeSelector(Struct, rename="camel"):
    """The same, all of them together."""

    match_expressions: list[ScopeRule] | None = None


class Spec(Struct, rename="camel", gc=False):
    """Of a pod, a node or a quota."""

    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    overhead: dict[str, Quantity] | None = None
    resources: Resources | None = None
    resource_claims: list[Any] | None = None
    scheduling_group: Group | None = None
    node_name: str | None = None
    node_selector: dict[str, str] | None = None
    affinity: dict[str, Any] | None = None
    priority: int | None = None
    priority_class_name: str | None = None
    active_deadline_seconds: int | None = None
    unschedulable: bool | None = None
    hard: dict[str, Quantity] | None = None
    scopes: list[str] | None = None
    scope_selector: ScopeSelector | None = None


class Condition(Struct, rename="camel", gc=False):
    """One thing that is true, false or unknown of an object, and since when."""

    type: str = ""
    status: str = ""
    last_transition_time: Time | None = None


class Stay(Struct, rename="camel", gc=False):
    """One run of a container."""

    started_at: Time | None = None
    finished_at: Time | None = None


class ContainerState(Struct, gc=False):
    """What a container does or did."""

    running: Stay | None = None
    terminated: Stay | None = None


class ContainerStatus(Struct, rename="camel", gc=False):
    """What became of a container."""

    restart_count: int = 0
    state: ContainerState | None = None
    last_state: ContainerState | None = None


class Status(Struct, rename="camel", gc=False):
    """Of a pod or a node."""

    phase: str = ""
    reason: str | None = None
    start_time: Time | None = None
    conditions: Any = None
    """As the file has them: ask ``conditions`` for them."""
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    allocatable: dict[str, Quantity] | None = None
    capacity: dict[str, Quantity] | None = None


class Item(Struct, gc=False):
    """A pod, a node, a quota, or something else that is passed over."""

    kind: str = ""
    metadata: Metadata = field(default_factory=Metadata)
    spec: Spec = field(default_factory=Spec)
    status: Status = field(default_factory=Status)


class _List(Struct, gc=False):
    kind: str
    items: list[msgspec.Raw]


class _Container(Container, rename="camel", gc=False):
    """Resources are text at first: most pods ask for what others ask for, and each text is read once."""

    resources: msgspec.Raw = msgspec.Raw()  # type: ignore[assignment]


class _Spec(Spec, rename="camel", gc=False):
    containers: list[_Container] | None = None  # type: ignore[assignment]
    init_containers: list[_Container] | None = None  # type: ignore[assignment]


class _Status(Status, rename="camel", gc=False):
    conditions: msgspec.Raw = msgspec.Raw()


class _Item(Item, gc=False):
    spec: _Spec = field(default_factory=_Spec)
    status: _Status = field(default_factory=_Status)


class _Sound(Struct, gc=False):
    kind: str
    items: list[_Item]


_decode = msgspec.json.Decoder(Item).decode
_resources = msgspec.json.Decoder(Resources | None).decode


def conditions(status: Status) -> tuple[Condition, ...]:
    """Return the conditions of an object. Of most pods nobody asks for them: they are read when somebody does."""
    told = status.conditions
    if not isinstance(told, tuple):
        try:
            plain = (msgspec.json.decode(told) if bytes(told) else None) if isinstance(told, msgspec.Raw) else told
            told = status.conditions = tuple(msgspec.convert(plain, list[Condition] | None) or ())
        except msgspec.ValidationError as problem:
            raise _explained(problem, plain, "Pod", "status.conditions") from None
    return told


def nanoseconds(time: datetime) -> int:
    """Convert a time to nanoseconds since 1970."""
    if not time.microsecond:
        return int(time.timestamp()) * SECOND
    since = time - EPOCH
    return ((since.days * _SECONDS_A_DAY + since.seconds) * 1_000_000 + since.microseconds) * 1000


def objects(data: bytes | memoryview, where: str, error: type[InputError]) -> Iterator[Item | ObjectError]:
    """Yield the objects of a file in their order, or for each why it cannot be read.

    Raises ``error``, with ``where`` before the reason, if the file as a whole cannot be.
    """
    data = data[3:] if bytes(data[:3]) == codecs.BOM_UTF8 else data
    _check_text(data, where, error)
    try:
        if (sound := _sound(data)) is not None:
            sound.reverse()
            while sound:
                yield sound.pop()  # and with it goes its room
            return
        data = bytes(data)
        try:
            whole = msgspec.json.decode(data, type=_List)
        except msgspec.MsgspecError:
            for document in _documents(data, where, error):
                for each, kind in _flat(document, "", where, error):
                    yield _item(each, kind)
            return
        kind = whole.kind.removesuffix("List")
        for raw in whole.items:
            yield _decoded(raw, kind)
    except RecursionError:
        raise error(f"{where}: is not a Kubernetes object: it is nested too deeply") from None


def _check_text(data: bytes | memoryview, where: str, error: type[InputError]) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(data), _PIECE):
            decoder.decode(data[start : start + _PIECE], start + _PIECE >= len(data))
    except UnicodeDecodeError:
        raise error(f"{where}: is not UTF-8 text") from None


def _sound(data: bytes | memoryview) -> list[_Item] | None:
    """Return the objects of a list in which there is nothing to explain; None for any other file."""
    try:
        whole = msgspec.json.decode(data, type=_Sound)
        kind = whole.kind.removesuffix("List")
        known: dict[bytes, Resources | None] = {b"": None}
        for item in whole.items:
            item.kind = item.kind or kind
            _look_up(item.spec.containers or (), known)
            if item.spec.init_containers:
                _look_up(item.spec.init_containers, known)
    except msgspec.MsgspecError:
        return None
    return whole.items


def _look_up(containers: Iterable[_Container], known: dict[bytes, Resources | None]) -> None:
    """Read the resources of containers, or take what the same text said before."""
    for container in containers:
        text = bytes(container.resources)
        if text not in known:
            known[text] = _resources(text)
        container.resources = known[text]  # type: ignore[assignment]


def _decoded(raw: msgspec.Raw, kind: str) -> Item | ObjectError:
    try:
        item = _decode(raw)
    except msgspec.MsgspecError:
        return _item(msgspec.json.decode(raw), kind)
    item.kind = item.kind or kind
    return item


def _documents(data: bytes, where: str, error: type[InputError]) -> Iterable[Any]:
    """Return what a file holds, one JSON text after the other."""
    try:
        return [msgspec.json.decode(data)]
    except msgspec.DecodeError:
        return _one_by_one(data.decode(), where, error)


def _one_by_one(text: str, where: str, error: type[InputError]) -> Iterator[Any]:
    decoder, at, end = json.JSONDecoder(), 0, len(text.rstrip())
    while at < end:
        try:
            document, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError as problem:
            if problem.pos >= end or problem.msg.startswith("Unterminated"):
                raise error(f"{where}: the JSON is truncated: it ends in the middle of an object") from None
            raise error(f"{where}: line {problem.lineno} is not JSON ({problem.msg})") from None
        yield document
        while at < end and text[at] in " \t\r\n,":
            at += 1


def _flat(document: Any, kind: str, where: str, error: type[InputError]) -> Iterator[tuple[Any, str]]:
    """Yield the objects in a document, and the kind that their list says they are."""
    if isinstance(document, list):
        for each in document:
            yield from _flat(each, kind, where, error)
    elif not isinstance(document, dict) or not (kind or {"kind", "object"} & document.keys()):
        raise error(f"{where}: is not a Kubernetes object: {str(document)[:40]!r} has no kind")
    elif "items" in document:
        if not isinstance(document["items"], list):
            raise error(f"{where}: items of the {document.get('kind')} must be a list")
        implied = str(document.get("kind") or "").removesuffix("List")
        for each in document["items"]:
            yield each, implied
    elif "object" in document and "metadata" not in document:
        yield from _flat(document["object"], kind, where, error)
    else:
        yield document, kind


def _item(document: Any, kind: str) -> Item | ObjectError:
    try:
        item = msgspec.convert(document, Item)
    except msgspec.ValidationError as problem:
        own = str(document.get("kind") or kind) if isinstance(document, dict) else ""
        return _explained(problem, document, own)
    item.kind = item.kind or kind
    return item


def _explained(problem: msgspec.ValidationError, document: Any, kind: str, within: str = "") -> ObjectError:
    rule, _, place = str(problem).partition(" - at `$")
    place = place.strip("`.")
    rule = re.sub(r"`([\w| ]+)`", r"\1", rule[:1].lower() + rule[1:])
    return ObjectError(f"{within}{place}" or "object", _at(document, place), f"is not understood: {rule}", kind)


def _at(document: Any, place: str) -> Any:
    """Return the value at a place like ``status.conditions[0].type``; a table's key cannot be told from ``[...]``."""
    for step in re.findall(r"[^.\[\]]+", place):
        try:
            document = document[int(step) if isinstance(document, list) else step]
        except (KeyError, IndexError, TypeError, ValueError):
            return ""
    return document if not isinstance(document, dict | list) else json.dumps(document)[:40]

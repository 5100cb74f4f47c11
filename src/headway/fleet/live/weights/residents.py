"""Models as a worker holds them: modules over a range of memory, and any other object, which is built again.

What a task writes into a module's parameters or buffers is lost when the module is evicted: it comes back as it was
built.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Protocol

from headway.fleet.live.weights.host import Host
from headway.fleet.live.weights.modules import Skeleton, skeleton, sketched
from headway.fleet.live.weights.ranges import Range


class Resident(Protocol):
    """A model that comes and goes."""

    name: str
    size_bytes: int

    @property
    def value(self) -> Any:
        """Return what a task is called with while the model is loaded."""

    def load(self) -> None:
        """Bring the model in."""

    def evict(self) -> None:
        """Give its memory back."""


class Rebuilt:
    """Any object: loaded by building it again."""

    def __init__(self, name: str, build: Callable[[], Any], size_bytes: int) -> None:
        self.name = name
        self.value: Any = None
        self.size_bytes = size_bytes
        """As declared; 0: not declared."""
        self._build = build

    def load(self) -> None:
        """Build it."""
        self.value = self._build()

    def evict(self) -> None:
        """Drop it."""
        self.value = None


class Placed:
    """A module whose weights lie in a range of memory."""

    def __init__(self, name: str, build: Callable[[], Any], parts: Skeleton, place: Range, host: Host) -> None:
        self.name = name
        self.value: Any = parts.module
        self.size_bytes = place.size_bytes
        self._build, self._place, self._host = build, place, host
        self._parts: Skeleton | None = parts
        """None: its tensors are bound to the range."""
        self._entries = parts.entries
        self._source = host.source(name, parts.entries)
        if self._source is not None:
            place.attach(self._source)

    def load(self) -> None:
        """Map the range, fill it, and bind the tensors if they are not."""
        self._place.map()
        try:
            self._fill()
            if self._parts is not None:
                self._parts.bind(self._place.flat())
                self._parts = None
        except BaseException:
            self._place.unmap()
            raise

    def _fill(self) -> None:
        if self._source is None:
            with self._host.turn(self.name):
                self._source = self._host.source(self.name, self._entries)
        if self._source is not None:
            with self._host.turn(self._place.link) if self._place.link else nullcontext():
                self._place.fill(self._source)
            return
        if (built := skeleton(self._build())) is None or built.entries != self._entries:
            raise TypeError(f"model {self.name}: its function built another model than before")
        values = built.values()
        for entry in self._entries:
            self._place.write(entry.begin, values[entry.name])

    def evict(self) -> None:
        """Give the pages back."""
        self._place.unmap()


class Unprepared:
    """A model that could not be prepared; every load tries it anew, and says what is wrong."""

    def __init__(self, name: str, prepare: Callable[[], Resident], size_bytes: int) -> None:
        self.name = name
        self.size_bytes = size_bytes
        self._prepare = prepare
        self._prepared: Resident | None = None

    @property
    def value(self) -> Any:
        """Return what a task is called with; None before it is prepared."""
        return self._prepared.value if self._prepared is not None else None

    def load(self) -> None:
        """Prepare it if it is not, and bring it in."""
        self._prepared = self._prepared or self._prepare()
        self._prepared.load()

    def evict(self) -> None:
        """Give its memory back."""
        if self._prepared is not None:
            self._prepared.evict()


def prepared(
    name: str, build: Callable[[], Any], declared_bytes: int, host: Host, reserve: Callable[[int], Range]
) -> Resident:
    """Return a model that is ready to be loaded; make its copy in host memory if nobody has."""
    with host.turn(name):
        parts = _parts(name, build, host)
        if parts is None:
            return Rebuilt(name, build, declared_bytes)
        parts.empty()
        return Placed(name, build, parts, reserve(parts.size_bytes), host)


def _parts(name: str, build: Callable[[], Any], host: Host) -> Skeleton | None:
    """Return the skeleton of a model, and see that its weights are kept; None where it is no module."""
    if host.is_object(name):
        return None
    header = host.header(name)
    if header is not None and (found := sketched(build)) is not None and header.matches(found.entries):
        return found
    if (found := skeleton(host.built(name, build))) is None:
        host.note_object(name)
    elif header is None or not header.matches(found.entries):
        host.keep(name, found.entries, found.values())
    return found

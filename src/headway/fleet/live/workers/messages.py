"""Messages between the server and its workers: msgpack, each with its length before it.

A server sends orders; a worker answers with what happened. Models and functions are numbers: their place in the lists
of ``Setup``, which is the first message.
"""

from typing import TypeAlias

import msgspec
from msgspec import Struct

from headway.fleet.live.workers.payload import Payload

NO_LEASE = -1
"""The lease in a refusal of an order that has none: ``Setup``, after which the worker ends, and ``Evict``."""


class Setup(Struct, frozen=True, array_like=True, tag=0):
    """Prepare to serve an application; answered by ``Hello``, or by ``Rejected`` with ``NO_LEASE``."""

    app: str
    """The user's file."""
    worker: int
    functions: tuple[str, ...]
    """Names of tasks."""
    models: tuple[str, ...]
    memory_bytes: int
    """The budget of models and activations."""
    device: str
    """``cpu``, ``cuda:0``, …"""
    prefix: str
    """Of blocks of shared memory; another one for each start of a worker."""
    host_folder: str
    """Where the one host copy of each model lies, for all workers of the machine."""
    weights_folder: str
    """Where weights are kept on disk; empty: nowhere."""
    cpus: tuple[int, ...] = ()
    """Numbers of the CPUs that the process may run on; empty: all."""
    booked_bytes: int = 0
    """Of the budget, what the server's books hold for models; 0: what the process leaves."""
    model_bytes: tuple[int, ...] = ()
    """By model: its bytes in the server's books; empty: as they come out."""
    warm: bool = False
    """Whether to run all tasks on their examples first."""


class Run(Struct, frozen=True, array_like=True, tag=1):
    """Run a batch: evict and load models first. Answered by ``Loaded`` if that is awaited, then by ``Finished``; or by
    ``Rejected``.
    """

    lease: int
    function: int
    inputs: tuple[tuple[Payload, ...], ...]
    """By task of the batch: its inputs, one from each predecessor; an entry task has one, the request's."""
    models: tuple[int, ...]
    """The models of the function, in the order of its arguments."""
    evict: tuple[int, ...] = ()
    cpus: int = 1
    slices: int = 1
    awaited: bool = True
    """Whether the server waits for ``Loaded``: not where all models were there, and a message less is sent."""


class Fetch(Struct, frozen=True, array_like=True, tag=2):
    """Load a model ahead of any batch, while batches run. Answered by ``Fetched`` or ``Rejected``."""

    lease: int
    model: int
    evict: tuple[int, ...] = ()


class Evict(Struct, frozen=True, array_like=True, tag=3):
    """Remove a model that no batch uses."""

    model: int


class Stop(Struct, frozen=True, array_like=True, tag=4):
    """End after the batches that run."""


Order: TypeAlias = Setup | Run | Fetch | Evict | Stop


class Hello(Struct, frozen=True, array_like=True, tag=0):
    """The worker is ready for orders."""

    pid: int
    model_bytes: tuple[int, ...]
    """By model: the bytes of its weights; 0 where they cannot be counted."""
    overhead_bytes: int = 0
    """What the process takes on its device besides models: its context and its libraries."""


class Loaded(Struct, frozen=True, array_like=True, tag=1):
    """The models of a batch are there; it computes from now on."""

    lease: int


class Finished(Struct, frozen=True, array_like=True, tag=2):
    """A batch ended."""

    lease: int
    results: tuple[Payload, ...]
    """By task; empty data where it failed."""
    failures: dict[int, str]
    """By position in the batch: why a task failed."""
    run_ns: int
    """How long the function itself took."""


class Fetched(Struct, frozen=True, array_like=True, tag=3):
    """A model that was fetched ahead is there."""

    lease: int
    model: int


class Rejected(Struct, frozen=True, array_like=True, tag=4):
    """An order was not carried out. Where its models could not be loaded, those it was to evict may be gone."""

    lease: int
    reason: str
    missing: tuple[int, ...] = ()
    """Of its models, those that are not there."""
    stale: bool = False
    """Whether it contradicts the worker's own books: nothing of it was done, and only a new process agrees again."""


class Beat(Struct, frozen=True, array_like=True, tag=5):
    """The worker is alive, and so much of its memory is used."""

    used_bytes: int
    """Of models and activations, by its own books."""
    device_bytes: int = 0
    """What the device reports for the process; 0: it does not say."""


class Lost(Struct, frozen=True, array_like=True, tag=6):
    """Models were evicted without an order, because memory ran out."""

    models: tuple[int, ...]
    after: int
    """The last lease that the worker had seen by then: an order with a later one brings its models again."""


Answer: TypeAlias = Hello | Loaded | Finished | Fetched | Rejected | Beat | Lost

ORDERS: msgspec.msgpack.Decoder[Order] = msgspec.msgpack.Decoder(Order)
ANSWERS: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)

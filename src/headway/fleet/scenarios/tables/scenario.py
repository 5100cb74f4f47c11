"""Typed tables of a scenario: graphs, functions, models, the fleet, and the default workload.

Sizes are text like ``5.72GB``, links bytes a second, durations text like ``3503ms`` or a number of seconds.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from msgspec import Struct, field

from headway.errors import ExperimentError, ProfileError, unknown_name
from headway.fleet.model.fleet import FIXED, FREE, MIG, WHOLE, Fleet, Gpu, Links, Prices, Store, Worker
from headway.fleet.scenarios.tables.profile import LawTable, Rows, Size, size
from headway.fleet.scenarios.tables.settings import MOST_WORKERS, ServingTable
from headway.fleet.scenarios.tables.tokens import GenerateTable, PrefixTable, SloTable, Tokens
from headway.jobs.tables.cluster import within
from headway.jobs.tables.settings import Span, optional_span

MOST_SLICES = 1024
MOST_CPUS = 4096
MIG_SLICES = 7
UNBOUNDED = 1 << 62
"""Bytes of unlimited host memory."""


class TaskTable(Struct, kw_only=True, forbid_unknown_fields=True):
    """A node of a graph."""

    function: str
    name: str = ""
    """The function's unless given."""
    after: list[str] = field(default_factory=list)
    """The tasks whose results it needs."""
    input: Size = ""
    """Size of the request's own input; counts for tasks without predecessors. Empty: the function's."""
    output: Size = ""
    """Size of its result; empty: the function's."""


class GraphTable(Struct, kw_only=True, forbid_unknown_fields=True):
    """Tasks, or a chain of functions one after the other."""

    tasks: list[TaskTable] = field(default_factory=list)
    chain: list[str] = field(default_factory=list)
    input: Size = 0
    """Of a chain's first task, unless its function says it."""
    output: Size = 0
    """Of each task of a chain, unless its function says it."""
    slo: str | SloTable = ""
    """Its own deadline, before the workload's; or deadlines of the whole answer, of its first token and of the others:
    ``{ latency = "10s", ttft = "500ms", tpot = "50ms" }``."""
    prefix: PrefixTable | None = None
    """Tokens at the beginning of prompts that several requests share."""


class FunctionTable(Struct, kw_only=True, forbid_unknown_fields=True):
    """A function: its models, and its time at (1, 1, 1) or all its cells."""

    models: list[str] = field(default_factory=list)
    ms: float | None = None
    """At the least configuration; the scenario's law, where there is one, makes the other cells from it."""
    cpus: int | None = None
    """The CPUs that ``ms`` is given for; 1 unless given."""
    slices: int | None = None
    """The slices that ``ms`` is given for; 1 unless given. 0: it takes CPUs alone, and nothing of the GPU."""
    cells: Rows | dict[str, Rows] = field(default_factory=list)
    """Instead of ``ms``: rows of batch, cpus, slices, ms; or such rows by type of GPU."""
    sparse: bool = False
    """Whether holes in the grid of cells are allowed."""
    guess: str = ""
    """What measures its times, where those given are a first guess: a profile in use that has the function comes before
    them, and a run without one says so."""
    spread: float | None = None
    cold_start: Span = 0
    instance_memory: Size = 0
    activation: Size = 0
    input: Size = ""
    """Of a request that begins with it, unless the task says it."""
    output: Size = ""
    """Of its result, unless the task says it."""
    generate: GenerateTable | None = None
    """How it generates tokens, instead of ``ms`` and ``cells``."""


class WorkersTable(Struct, kw_only=True, forbid_unknown_fields=True):
    """A number of equal workers."""

    count: int = 1
    name: str = "worker"
    gpu: str = ""
    """The type; empty: the one that the profile in use was measured on."""
    memory: Size
    """Of the GPU."""
    slices: int | None = None
    """1 unless given, 7 with MIG."""
    geometry: str = FREE
    cpus: int = 1
    host_memory: Size = ""
    """For weights; empty: unlimited."""
    per_host: int = 1
    """How many of them share a host."""
    hour_usd: float | None = None
    """Price of one for an hour; left out: that of its CPUs and slices."""


class LinksTable(Struct, kw_only=True, forbid_unknown_fields=True):
    """Bytes a second; what is left out is as in the Compass simulator."""

    host_to_gpu: Size = ""
    disk_to_host: Size = ""
    within_host: Size = ""
    within_rack: Size = ""
    between_racks: Size = ""
    latency: Span = ""
    write_back: bool = False
    """Evicting weights costs as much as fetching them."""
    shared: bool = False
    """Workers of one device share its ``host_to_gpu``: what they fetch comes one after the other."""


class StoreTable(Struct, kw_only=True, forbid_unknown_fields=True):
    """A store between stages: results are written to it and read from it."""

    rate: Size
    """Bytes a second, of each worker."""
    latency: Span = ""
    """Of each write and each read."""


class PricesTable(Struct, kw_only=True, forbid_unknown_fields=True):
    """US dollars an hour."""

    cpu_hour: float = Prices().cpu_hour
    slice_hour: float = Prices().slice_hour
    memory_gib_hour: float = Prices().memory_gib_hour


class FleetTable(Struct, kw_only=True, forbid_unknown_fields=True):
    """The workers, the links between them, and prices."""

    workers: list[WorkersTable]
    hosts_per_rack: int = 0
    """0: all in one rack."""
    devices: int = 0
    """GPUs, or sets of CPUs, that the workers share in turn; 0: each has its own."""
    shared_cpus: int = 0
    """CPUs that all workers of a device share; 0: each worker has its own."""
    links: LinksTable = field(default_factory=LinksTable)
    store: StoreTable | None = None
    """Left out: workers send results to each other."""
    prices: PricesTable = field(default_factory=PricesTable)
    keep_alive: Span = "10m"
    """How long an idle process is kept."""
    startup: Span = "60s"
    """How long a worker takes to start, where workers are started and stopped."""
    preloaded: bool = True
    """Whether hosts hold all weights that fit from the start."""
    control: str = ""
    """central or decentralised; empty: the policy's default."""


class WorkloadPart(Struct, kw_only=True, forbid_unknown_fields=True):
    """The workload; in a setting, only what differs."""

    arrivals: str = ""
    rate: float | None = None
    requests: int | None = None
    slo: str = ""
    mix: dict[str, float] | None = None
    tenants: int | None = None
    classes: dict[str, dict[str, Any]] | None = None
    """By name, as ``ClassTable`` says; an empty table in a setting removes those of the workload."""
    prompt_tokens: Tokens = ""
    output_tokens: Tokens = ""


class FidelityTable(Struct, kw_only=True, forbid_unknown_fields=True):
    """What differs under ``--fidelity authors``."""

    share_models: bool = True
    """Off: a model that two graphs use is two models."""
    write_back: bool | None = None


class InterferenceTable(Struct, kw_only=True, forbid_unknown_fields=True):
    """How much longer a function takes beside another on one GPU."""

    function: str
    beside: str
    slower: float
    """1.2: a fifth longer."""


class ScenarioTable(Struct, kw_only=True, forbid_unknown_fields=True):
    """The tables of a scenario; functions and graphs are typed one at a time, so that an error names them."""

    base: str = ""
    """Another scenario, of which this one changes some keys."""
    about: str = ""
    source: str = ""
    models: dict[str, Size] = field(default_factory=dict)
    functions: dict[str, dict[str, Any]] = field(default_factory=dict)
    graphs: dict[str, dict[str, Any]] = field(default_factory=dict)
    fleet: FleetTable
    workload: WorkloadPart = field(default_factory=WorkloadPart)
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    authors: FidelityTable = field(default_factory=FidelityTable)
    law: LawTable | None = None
    measured: list[str] | str = field(default_factory=list)
    """Profile files, beside the scenario's own; one for each type of GPU."""
    profile: str = ""
    """law or measured, unless an experiment chooses; empty: law, or the functions' own cells."""
    interference: list[InterferenceTable] = field(default_factory=list)


def check_given(table: FunctionTable, where: str, *, law: bool) -> None:
    """Check the CPUs and slices that the time of a function is given for; ``law``: its scenario has one."""
    for key, least, most in (("cpus", 1, MOST_CPUS), ("slices", 0, MOST_SLICES)):
        if (value := getattr(table, key)) is None:
            continue
        within(f"{where}: {key}", value, least, most)
        if table.ms is None:
            raise ProfileError(f"{where}: {key} says what ms is given for; cells have their own, leave it out")
        if law and table.slices != 0:
            rule = "the law makes its configurations; leave it out, or give slices = 0 for CPUs alone"
            raise ProfileError(f"{where}: {key} is {value}: {rule}")


def chained(graph: GraphTable, functions: Mapping[str, FunctionTable]) -> list[TaskTable]:
    """Return the tasks of a chain; sizes of functions come before those of the chain."""
    names = [f"{name}-{index}" if graph.chain.count(name) > 1 else name for index, name in enumerate(graph.chain)]
    return [
        TaskTable(
            function=function,
            name=names[index],
            after=names[index - 1 : index] if index else [],
            input=0 if index else known.input if known and known.input != "" else graph.input,
            output=known.output if known and known.output != "" else graph.output,
        )
        for index, function in enumerate(graph.chain)
        for known in [functions.get(function)]
    ]


# --- the fleet --------------------------------------------------------------------------------------------------


def fleet_of(table: FleetTable, wanted: int | None, gpu: str, links: Links, where: str) -> Fleet:
    """Build the fleet, with ``wanted`` workers if given; ``gpu`` is the type of workers that name none."""
    for kind in table.workers:
        _check_kind(kind, where)
    within(f"{where}: hosts_per_rack", table.hosts_per_rack, 0, MOST_WORKERS)
    within(f"{where}: devices", table.devices, 0, MOST_WORKERS)
    within(f"{where}: shared_cpus", table.shared_cpus, 0, MOST_CPUS)
    counts = [kind.count for kind in table.workers]
    if wanted is not None:
        counts = shared_out(wanted, counts)
    workers: list[Worker] = []
    host = 0
    for kind, count in zip(table.workers, counts, strict=True):
        for index in range(count):
            at = host + index // kind.per_host
            rack = at // table.hosts_per_rack if table.hosts_per_rack else 0
            device = len(workers) % table.devices if table.devices else -1
            workers.append(replace(_worker(kind, f"{kind.name}-{index}", gpu, at, rack), device=device))
        host += -(-count // kind.per_host)
    if not workers:
        raise ExperimentError(f"{where}: the fleet has no workers")
    prices = Prices(table.prices.cpu_hour, table.prices.slice_hour, table.prices.memory_gib_hour)
    keep_alive = optional_span(table.keep_alive, f"{where}: keep_alive") or 0
    store = store_of(table.store, where) if table.store is not None else None
    startup = optional_span(table.startup, f"{where}: startup") or 0
    fleet = Fleet(tuple(workers), links, prices, keep_alive, store=store, startup=startup)
    return check_prices(replace(fleet, shared_cpus=table.shared_cpus), where)


def store_of(table: StoreTable, where: str) -> Store:
    """Build the store between stages."""
    rate = size(table.rate, f"{where}, store: rate", least=1)
    if rate is None:
        raise ExperimentError(f"{where}, store: rate is missing: write bytes a second, like 1GB")
    return Store(rate, optional_span(table.latency, f"{where}, store: latency") or 0)


def with_memory(fleet: Fleet, table: ServingTable) -> Fleet:
    """Return a fleet with the GPU memory that an experiment gives every worker: its own size, so many times."""
    given = size(table.gpu_memory, "gpu_memory", least=1)
    if given is None and table.memory == 1:
        return fleet
    gpus = [
        replace(worker.gpu, memory_bytes=round((given or worker.gpu.memory_bytes) * table.memory))
        for worker in fleet.workers
    ]
    workers = tuple(replace(worker, gpu=gpu) for worker, gpu in zip(fleet.workers, gpus, strict=True))
    return replace(fleet, workers=workers)


def check_prices(fleet: Fleet, where: str) -> Fleet:
    """Check that all prices of a fleet are finite and at least 0, and return it."""
    prices = {f"{where}: {key}": getattr(fleet.prices, key) for key in ("cpu_hour", "slice_hour", "memory_gib_hour")}
    prices |= {f"{where}, worker {worker.name}: hour_usd": worker.hour_usd or 0.0 for worker in fleet.workers}
    for name, price in prices.items():
        if not 0 <= price < float("inf"):
            raise ExperimentError(f"{name} is {price:g}: must be a price, at least 0")
    return fleet


def _check_kind(kind: WorkersTable, where: str) -> None:
    at = f"{where}, workers {kind.name!r}"
    within(f"{at}: count", kind.count, 1, MOST_WORKERS)
    within(f"{at}: cpus", kind.cpus, 1, MOST_CPUS)
    within(f"{at}: per_host", kind.per_host, 1, MOST_WORKERS)
    if kind.slices is not None:
        within(f"{at}: slices", kind.slices, 1, MOST_SLICES)
    if kind.geometry not in (FREE, MIG, FIXED):
        raise ExperimentError(f"{at}: {unknown_name('geometry', kind.geometry, (FREE, MIG, FIXED))}")
    if kind.geometry == FIXED:
        within(f"{at}: slices", kind.slices or 1, 1, WHOLE)
    if kind.geometry == MIG and kind.slices not in (None, MIG_SLICES):
        raise ExperimentError(f"{at}: slices is {kind.slices}: a GPU with MIG has {MIG_SLICES}")
    if kind.hour_usd is not None and not 0 <= kind.hour_usd < float("inf"):
        raise ExperimentError(f"{at}: hour_usd is {kind.hour_usd:g}: must be a price, at least 0")
    size(kind.memory, f"{at}: memory", least=1)
    size(kind.host_memory, f"{at}: host_memory")


def _worker(kind: WorkersTable, name: str, gpu: str, host: int, rack: int) -> Worker:
    slices = kind.slices or (MIG_SLICES if kind.geometry == MIG else 1)
    device = Gpu(kind.gpu or gpu, size(kind.memory, "memory") or 0, slices, kind.geometry)
    memory = size(kind.host_memory, "host_memory")
    return Worker(name, device, kind.cpus, UNBOUNDED if memory is None else memory, host, rack, kind.hour_usd)


def shared_out(wanted: int, counts: list[int]) -> list[int]:
    """Divide so many workers in the proportions of ``counts``, by largest remainders."""
    total = sum(counts)
    if not total:
        return counts
    whole = [wanted * count // total for count in counts]
    by_rest = sorted(range(len(counts)), key=lambda index: (-(wanted * counts[index] % total), index))
    for index in by_rest[: wanted - sum(whole)]:
        whole[index] += 1
    return whole


def links_of(table: LinksTable, measured: int | None, write_back: bool, where: str) -> Links:
    """Build the links; ``measured`` is a profile's rate to the GPU, for a scenario that gives none."""
    defaults = Links()
    rates = {}
    for key in ("host_to_gpu", "disk_to_host", "within_host", "within_rack", "between_racks"):
        given = size(getattr(table, key), f"{where}: {key}", least=1)
        rates[key] = getattr(defaults, key) if given is None else given
    if measured and not table.host_to_gpu:
        rates["host_to_gpu"] = measured
    latency = optional_span(table.latency, f"{where}: latency")
    waits = defaults.latency if latency is None else latency
    return Links(**rates, latency=waits, write_back=write_back, shared=table.shared)

"""Build a scenario from its tables: a catalogue, a fleet, and the default workload."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from msgspec import Struct

from headway.errors import ExperimentError, InputError, ProfileError, unknown_name
from headway.fleet.model.catalogue import ANY_GPU, Catalogue, Configuration, Function, Model, Profile
from headway.fleet.model.fleet import Fleet
from headway.fleet.model.graph import Graph, Task
from headway.fleet.scenarios import generating
from headway.fleet.scenarios.fitting import check_memory, runnable
from headway.fleet.scenarios.tables import profile as serving_profile
from headway.fleet.scenarios.tables.classes import ClassTable, typed
from headway.fleet.scenarios.tables.profile import FunctionProfile, ServingProfile, size
from headway.fleet.scenarios.tables.scenario import (
    FunctionTable,
    GraphTable,
    ScenarioTable,
    TaskTable,
    WorkloadPart,
    chained,
    check_given,
    fleet_of,
    links_of,
    with_memory,
)
from headway.fleet.scenarios.tables.settings import (
    BY_RATE,
    CONTROLS,
    ServingExperiment,
    WorkloadTable,
    check_workload,
    parse_slo,
    split_arrivals,
)
from headway.fleet.scenarios.tables.tokens import Tokens, check_prefix
from headway.formats import toml
from headway.jobs.tables.settings import optional_span
from headway.units import REFERENCE_SPEED_PPM

LAW = "law"
PAPER = "paper"
"""The measured cells of each function, multiplied so that its least one takes the time that the scenario gives."""
SOME_GPU = "gpu"
"""The type of a GPU whose type is not given."""

StructT = TypeVar("StructT", bound=Struct)


GUESSED = "are a guess"
"""What a note says of times that nobody measured."""


@dataclass(frozen=True, slots=True)
class WorkloadDefaults:
    """The default workload of a scenario, with the chosen setting applied."""

    arrivals: str = "poisson"
    rate: float | None = None
    """Requests a second; None: the arrival process has its own rate."""
    requests: int = 1000
    slo: Mapping[str, str] = field(default_factory=dict)
    """By graph: a duration, a factor like ``1.2L``, or nothing."""
    mix: Mapping[str, float] = field(default_factory=dict)
    """Weights by graph; equal unless given."""
    tenants: int = 1
    classes: Mapping[str, ClassTable] = field(default_factory=dict)
    limits: tuple[tuple[int, ...], ...] = ()
    """By class and graph, or one row without classes: deadlines that hold whatever the workers are, before ``slo``."""
    prompt_tokens: Tokens = ""
    output_tokens: Tokens = ""
    prefixes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """By graph whose prompts share a prefix: its tokens, and the number of groups."""


@dataclass(frozen=True, slots=True)
class Built:
    """A scenario, ready to run."""

    catalogue: Catalogue
    fleet: Fleet
    interference: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """(function, neighbour) to its slow-down, in parts per million."""
    workload: WorkloadDefaults = WorkloadDefaults()
    central: bool | None = None
    """Whether control is central; None: the policy's default."""
    preloaded: bool = True
    notes: tuple[str, ...] = ()
    by_share: Mapping[tuple[int, int, int], int] = field(default_factory=dict)
    """(function, neighbour, its share of the SMs in ppm) to its slow-down, where a table has it by share."""

    @property
    def guesses(self) -> tuple[str, ...]:
        """Return the notes on times that nobody measured."""
        return tuple(note for note in self.notes if GUESSED in note)


class Builder:
    """Builds one scenario; errors name the table that is wrong."""

    def __init__(
        self, experiment: ServingExperiment, table: ScenarioTable, profiles: Sequence[ServingProfile], where: str
    ) -> None:
        self.experiment = experiment
        self.table = table
        self.where = where
        self.authors = experiment.serving.fidelity == "authors"
        self.functions = self._entries(table.functions, FunctionTable, "function")
        self.graphs = self._entries(table.graphs, GraphTable, "graph")
        self.profiles = profiles
        self.profile = experiment.serving.profile or table.profile
        if table.law is not None:
            serving_profile.check_law(table.law, where)
            types = [kind.gpu for kind in table.fleet.workers]
            for gpu in table.law.gpus:
                if gpu not in types and "" not in types:  # a worker without a type is of the profile's
                    raise ProfileError(f"{where}, law: {unknown_name('type of GPU', gpu, types)}")
        elif experiment.serving.profile == LAW:
            raise ProfileError(f"{where}: has no law; its functions take what it says")

    def _entries(self, tables: Mapping[str, Any], kind: type[StructT], what: str) -> dict[str, StructT]:
        return {name: toml.typed(entry, kind, f"{self.where}, {what} {name}") for name, entry in tables.items()}

    def build(self) -> Built:
        """Build the catalogue, the fleet and the default workload."""
        workload = self._workload()
        fleet = self._fleet()
        tasks = {name: self._tasks(name, graph) for name, graph in self.graphs.items()}
        if not tasks:
            raise ExperimentError(f"{self.where}: has no graphs")
        used = self._used(tasks)
        names = list(used)
        models, positions = self._models(used)
        functions = [self._function(name, *used[name], positions, fleet) for name in names]
        models = generating.with_caches(models, functions)
        check_memory(models, functions, fleet)
        functions = [runnable(function, models, fleet, self.where) for function in functions]
        graphs = [self._graph(name, tasks[name], names) for name in tasks]
        catalogue = Catalogue(tuple(models), tuple(functions), tuple(graphs))
        control = self.experiment.serving.control or self.table.fleet.control
        if control and control not in CONTROLS:
            raise ExperimentError(f"{self.where}: {unknown_name('control', control, CONTROLS)}")
        central = control == "central" if control else None
        interference, preloaded = self._interference(used), self.table.fleet.preloaded
        return Built(catalogue, fleet, interference, workload, central, preloaded, self._guesses(used))

    def _fleet(self) -> Fleet:
        write_back = self.table.fleet.links.write_back
        if self.authors and self.table.authors.write_back is not None:
            write_back = self.table.authors.write_back
        measured = [profile.host_to_gpu for profile in self.profiles if profile.host_to_gpu]
        links = links_of(self.table.fleet.links, min(measured, default=None), write_back, self.where)
        gpu = next((profile.gpu for profile in self.profiles if profile.gpu), SOME_GPU)
        fleet = fleet_of(self.table.fleet, self.experiment.serving.workers, gpu, links, self.where)
        return with_memory(fleet, self.experiment.serving)

    # --- graphs ---

    def _tasks(self, name: str, graph: GraphTable) -> list[TaskTable]:
        where = f"{self.where}, graph {name}"
        if bool(graph.tasks) == bool(graph.chain):
            raise ExperimentError(f"{where}: needs tasks or a chain, one of them")
        tasks = graph.tasks or chained(graph, self.functions)
        names = [task.name or task.function for task in tasks]
        for index, task in enumerate(tasks):
            if names[index] in names[:index]:
                raise ExperimentError(f"{where}: two tasks are called {names[index]!r}; give them names")
            if task.function not in self.functions:
                raise ExperimentError(f"{where}: {unknown_name('function', task.function, self.functions)}")
            for before in task.after:
                if before not in names:
                    raise ExperimentError(f"{where}, task {names[index]}: {unknown_name('task', before, names)}")
        return tasks

    def _graph(self, name: str, tasks: list[TaskTable], functions: list[str]) -> Graph:
        where = f"{self.where}, graph {name}"
        names = [task.name or task.function for task in tasks]
        graph_tasks = []
        for task_name, task in zip(names, tasks, strict=True):
            sizes = [self._size_of(task, key, f"{where}, task {task_name}: {key}") for key in ("input", "output")]
            graph_tasks.append(Task(task_name, functions.index(self._within(name, task.function)), *sizes))
        edges = [(names.index(before), index) for index, task in enumerate(tasks) for before in task.after]
        try:
            deadlines = generating.token_deadlines(self.graphs[name], where)
            return Graph(name, tuple(graph_tasks), tuple(edges), *deadlines)
        except ExperimentError as problem:
            raise ExperimentError(f"{self.where}, {problem}") from None

    def _size_of(self, task: TaskTable, key: str, where: str) -> int:
        """Return the input or output of a task: its own, else that of its function, else what was measured."""
        own = size(getattr(task, key), where)
        of_function = f"{self.where}, function {task.function}: {key}"
        if own is None:
            own = size(getattr(self.functions[task.function], key), of_function)
        if own is None:
            own = max((getattr(found, f"{key}_bytes") or 0 for _, found in self._measured(task.function)), default=0)
        return own

    # --- functions and models ---

    def _within(self, graph: str, name: str) -> str:
        """Return the name of a function or model, with its graph where each graph has its own copy."""
        return name if not self.authors or self.table.authors.share_models else f"{graph}/{name}"

    def _used(self, tasks: Mapping[str, list[TaskTable]]) -> dict[str, tuple[str, str]]:
        """Return the functions that graphs call, in the order of the file, each with its graph and name in the file."""
        calls = {(graph, task.function) for graph, listed in tasks.items() for task in listed}
        functions: dict[str, tuple[str, str]] = {}
        for graph in tasks:
            for name in self.functions:
                if (graph, name) in calls:
                    functions.setdefault(self._within(graph, name), (graph, name))
        return functions

    def _measured(self, name: str) -> list[tuple[ServingProfile, FunctionProfile]]:
        table = self.functions[name]
        own = table.slices == 0 or bool(table.guess)  # profiles are of GPUs: its time may be the scenario's
        for profile in self.profiles:
            if name not in profile.functions and not own:
                raise ProfileError(f"profile {profile.path}: has no function {name!r}, which {self.where} calls")
        return [(profile, profile.functions[name]) for profile in self.profiles if name in profile.functions]

    def _models_of(self, name: str) -> dict[str, int]:
        """Return the models of a function and their bytes; measured weights come before the scenario's."""
        where = f"{self.where}, function {name}"
        listed = self.functions[name].models
        for model in listed:
            if model not in self.table.models:
                raise ExperimentError(f"{where}: {unknown_name('model', model, self.table.models or ['none'])}")
        sizes = {model: self._weights(model) for model in listed}
        weights = max((found.weights_bytes or 0 for _, found in self._measured(name)), default=0)
        if not weights:
            return sizes
        if len(sizes) > 1:
            raise ProfileError(f"{where}: has {len(sizes)} models, so its measured weights belong to none of them")
        return {next(iter(sizes), name): weights}

    def _weights(self, model: str) -> int:
        """Return the bytes of a model: what the scenario says, else what was measured."""
        where = f"{self.where}, model {model}"
        given = size(self.table.models[model], where)
        measured = [profile.models[model].weights_bytes for profile in self.profiles if model in profile.models]
        if given is None and not measured:
            raise ExperimentError(
                f'{where}: its size is not known: write it, @hw.model(memory="1.7GB") in an app, or name a profile '
                "that has it; headway profile model app.py measures one"
            )
        return max(measured, default=0) if given is None else given

    def _guesses(self, used: Mapping[str, tuple[str, str]]) -> tuple[str, ...]:
        """Return a note on the functions whose times are a guess."""
        names = dict.fromkeys(name for _, name in used.values() if self.functions[name].guess)
        guessed = [name for name in names if not self._measured(name)]
        if not guessed:
            return ()
        those = f"task {guessed[0]}" if len(guessed) == 1 else f"tasks {', '.join(guessed)}"
        return (f"times of {those} {GUESSED}: {self.functions[guessed[0]].guess} measures them",)

    def _models(self, used: Mapping[str, tuple[str, str]]) -> tuple[list[Model], dict[str, int]]:
        sizes: dict[str, int] = {}
        for graph, name in used.values():
            for model, size_bytes in self._models_of(name).items():
                key = self._within(graph, model)
                sizes[key] = max(sizes.get(key, 0), size_bytes)
        return [Model(name, size_bytes) for name, size_bytes in sizes.items()], {
            name: at for at, name in enumerate(sizes)
        }

    def _function(self, called: str, graph: str, name: str, positions: Mapping[str, int], fleet: Fleet) -> Function:
        where = f"{self.where}, function {name}"
        table = self.functions[name]
        measured = [measured_function for _, measured_function in self._measured(name)]
        numbers = {
            "cold_start": optional_span(table.cold_start, f"{where}: cold_start"),
            "instance_bytes": size(table.instance_memory, f"{where}: instance_memory"),
            "activation_bytes": size(table.activation, f"{where}: activation"),
        }
        for key in numbers:
            values = [value for measured_function in measured if (value := getattr(measured_function, key)) is not None]
            if self.profile == PAPER and key == "cold_start" and numbers[key]:
                continue  # of the times, only the shape is the measured one's
            numbers[key] = max(values, default=numbers[key]) or 0
        models = tuple(positions[self._within(graph, model)] for model in self._models_of(name))
        times, spread = self._times(name, {worker.gpu.type for worker in fleet.workers}, where)
        idle = {each.gpu: more for each, _ in self._measured(name) if (more := each.after_idle)}
        chosen_spread = table.spread if table.spread is not None and not measured else spread
        profile = Profile(times, serving_profile.checked_spread(chosen_spread, where), idle)
        kind = generating.generation(table, where)
        return Function(called, models, profile, **{key: value or 0 for key, value in numbers.items()}, generate=kind)

    def _times(self, name: str, gpus: set[str], where: str) -> tuple[dict[str, Mapping[Configuration, int]], float]:
        """Return the cells by type of GPU, and the spread that belongs to them."""
        table = self.functions[name]
        if table.generate is not None and (kind := generating.generation(table, where)) is not None:
            return {ANY_GPU: generating.cells_of(table.generate, kind)}, 0.0
        if measured := self._measured(name):
            cells: dict[str, Mapping[Configuration, int]] = {
                profile.gpu: self._at_own_time(profile.served(each), name, where) for profile, each in measured
            }
            if missing := sorted(gpu for gpu in gpus if gpu not in cells and ANY_GPU not in cells):
                files = ", ".join(str(profile.path) for profile in self.profiles)
                raise ProfileError(f"{where}: no cells for GPU {missing[0]} (profile {files}: {', '.join(cells)})")
            return cells, max(profile.spread(each) for profile, each in measured)
        if bool(table.cells) == (table.ms is not None):
            raise ProfileError(f"{where}: needs ms or cells, one of them")
        check_given(table, where, law=self.table.law is not None)
        if table.ms is None:
            return self._own_cells(table, where)
        law = self.table.law
        if law is None:
            given = Configuration(1, table.cpus or 1, 1 if table.slices is None else table.slices)
            return {ANY_GPU: {given: serving_profile.time_of(table.ms, where)}}, 0.0
        if table.slices == 0:
            return {ANY_GPU: serving_profile.cpu_cells(table.ms, table.cpus, law, where)}, law.spread
        return {gpu: serving_profile.law_cells(table.ms, law, gpu, where) for gpu in sorted(gpus)}, law.spread

    def _at_own_time(self, cells: Mapping[Configuration, int], name: str, where: str) -> Mapping[Configuration, int]:
        """Return measured cells; with the profile ``paper`` as slow that the least takes the scenario's time."""
        if self.profile != PAPER:
            return cells
        if (ms := self.functions[name].ms) is None:
            raise ProfileError(f"{where}: profile {PAPER} needs ms, its time at the least configuration")
        wanted, least = serving_profile.time_of(ms, where), cells[min(cells)]
        return {cell: max(1, time * wanted // least) for cell, time in cells.items()}

    def _own_cells(self, table: FunctionTable, where: str) -> tuple[dict[str, Mapping[Configuration, int]], float]:
        by_gpu = table.cells if isinstance(table.cells, dict) else {ANY_GPU: table.cells}
        read = {gpu: serving_profile.cells_of(rows, where, sparse=table.sparse) for gpu, rows in by_gpu.items()}
        spreads = [spread for _, gpu_spreads in read.values() for spread in gpu_spreads]
        return {gpu: cells for gpu, (cells, _) in read.items()}, max(spreads, default=0.0)

    def _interference(self, used: Mapping[str, tuple[str, str]]) -> dict[tuple[int, int], int]:
        slowdowns: dict[tuple[int, int], int] = {}
        for row in self.table.interference:
            for name in (row.function, row.beside):
                if name not in self.functions:
                    raise ExperimentError(
                        f"{self.where}, interference: {unknown_name('function', name, self.functions)}"
                    )
            if not 1 <= row.slower < 1000:
                rule = "must be at least 1 and below 1000 (1.15: it takes 15 % longer)"
                raise ExperimentError(f"{self.where}, interference of {row.function}: slower is {row.slower:g}: {rule}")
            ppm = round(row.slower * REFERENCE_SPEED_PPM)
            slowdowns |= {
                (a, b): ppm
                for a, (_, name) in enumerate(used.values())
                for b, (_, other) in enumerate(used.values())
                if (name, other) == (row.function, row.beside)
            }
        return slowdowns

    # --- what arrives ---

    def _workload(self) -> WorkloadDefaults:
        parts = [self.table.workload]
        asked = self.experiment.serving.setting
        settings = self._entries(self.table.settings, WorkloadPart, "setting")
        for part in settings.values():
            self._check_part(part)
        if asked:
            if asked not in settings:
                raise ExperimentError(unknown_name("setting", asked, settings or ["none"]))
            parts.append(settings[asked])
        given: dict[str, Any] = {}
        for part in parts:
            self._check_part(part)
            if part.arrivals and split_arrivals(part.arrivals)[0] not in BY_RATE:
                given.pop("rate", None)  # they have their own rate
            given |= {key: value for key in part.__struct_fields__ if (value := getattr(part, key)) not in ("", None)}
        given["classes"] = typed(given.get("classes", {}), list(self.graphs), self.where)
        slo = parts[-1].slo if asked else ""
        own = {name: generating.slo_of(graph).latency for name, graph in self.graphs.items()}
        given["slo"] = {name: slo or own[name] or given.get("slo", "") for name in self.graphs}
        given["prefixes"] = {
            name: check_prefix(graph.prefix, f"{self.where}, graph {name}")
            for name, graph in self.graphs.items()
            if graph.prefix is not None
        }
        given.setdefault("mix", dict.fromkeys(self.graphs, 1.0))
        return WorkloadDefaults(**given)

    def _check_part(self, part: WorkloadPart) -> None:
        try:
            keys = ("rate", "requests", "slo", "mix", "tenants", "prompt_tokens", "output_tokens")
            check_workload(WorkloadTable(**{key: getattr(part, key) for key in keys}))
            parse_slo(part.slo)  # those of tokens belong to graphs
        except InputError as problem:
            raise ExperimentError(f"{self.where}, workload: {problem}") from None
        for name in part.mix or ():
            if name not in self.graphs:
                raise ExperimentError(f"{self.where}, mix: {unknown_name('graph', name, self.graphs)}")
        typed(part.classes or {}, list(self.graphs), self.where)

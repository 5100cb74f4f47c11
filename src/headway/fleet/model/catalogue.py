"""Models, the functions that use them, and the graphs that call the functions.

Models and functions are small integers everywhere else, so that a set of them is a bit mask.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from headway.errors import ExperimentError, ProfileError
from headway.fleet.model.generation import Generation
from headway.fleet.model.graph import Graph

ANY_GPU = ""
"""The type of GPU of a profile that does not say it."""


class Configuration(NamedTuple):
    """What a batch is given: requests at once, virtual CPUs, slices of the GPU."""

    batch: int
    cpus: int
    slices: int


@dataclass(frozen=True, slots=True)
class Model:
    """Weights that must sit in GPU memory while a task runs; read-only."""

    name: str
    size_bytes: int
    """What it takes in GPU memory, a cache of keys and values included."""
    cache_bytes: int = 0
    """GPU memory that is reserved beside the weights for keys and values; nothing of it is fetched."""

    @property
    def weights_bytes(self) -> int:
        """Return the bytes that are fetched."""
        return self.size_bytes - self.cache_bytes


@dataclass(frozen=True, slots=True)
class Profile:
    """How long a batch takes, by type of GPU and configuration."""

    times: Mapping[str, Mapping[Configuration, int]]
    spread: float = 0.0
    """Standard deviation of the logarithm of what a run takes, about its time here."""
    after_idle: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """By type of GPU: what a batch takes more on a worker that was idle, as (for how long at least, how much)."""

    def on(self, gpu: str) -> Mapping[Configuration, int]:
        """Return the cells for a type of GPU."""
        cells = self.times.get(gpu) or self.times.get(ANY_GPU)
        if cells is None:
            raise ProfileError(f"no profile for GPU {gpu!r} (there are: {', '.join(sorted(self.times)) or 'none'})")
        return cells


@dataclass(frozen=True, slots=True)
class Function:
    """A program that runs tasks: its models, its profile, and the cost of a process."""

    name: str
    models: tuple[int, ...]
    profile: Profile
    cold_start: int = 0
    """Start time of a process that can run it; 0: it needs no process of its own."""
    instance_bytes: int = 0
    """Host memory of an idle process."""
    activation_bytes: int = 0
    """GPU memory besides the weights, for each request of a batch."""
    generate: Generation | None = None
    """How it generates tokens; None: it does not."""
    mask: int = field(init=False)
    """Its models as bits."""
    on_cpus: bool = field(init=False)
    """Whether it has a configuration without slices: such a task takes CPUs alone."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "models", tuple(dict.fromkeys(self.models)))  # weights are there once
        object.__setattr__(self, "mask", sum(1 << model for model in set(self.models)))
        cells = [cell for cells in self.profile.times.values() for cell in cells]
        object.__setattr__(self, "on_cpus", any(not cell.slices for cell in cells))


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All models, functions and graphs of a scenario."""

    models: tuple[Model, ...]
    functions: tuple[Function, ...]
    graphs: tuple[Graph, ...]

    def __post_init__(self) -> None:
        for function in self.functions:
            for model in function.models:
                if not 0 <= model < len(self.models):
                    raise ExperimentError(f"function {function.name}: unknown model {model}")
        for graph in self.graphs:
            for task in graph.tasks:
                if not 0 <= task.function < len(self.functions):
                    raise ExperimentError(f"graph {graph.name}, task {task.name}: unknown function {task.function}")

    def size_of(self, mask: int) -> int:
        """Return the bytes of all the models in a mask."""
        return sum(self.models[model].size_bytes for model in models_in(mask))


@lru_cache(maxsize=1 << 14)  # policies ask for the same few over and over
def models_in(mask: int) -> Sequence[int]:
    """Return the positions of a mask's bits, lowest first."""
    positions = []
    while mask:
        low = mask & -mask
        positions.append(low.bit_length() - 1)
        mask ^= low
    return tuple(positions)

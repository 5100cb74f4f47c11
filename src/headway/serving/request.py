"""A request: one execution of a graph, from its arrival at a worker to the end of its last task."""

from typing import NamedTuple


class Request(NamedTuple):
    """What is known of a request when it arrives."""

    id: int
    graph: int
    arrival: int
    ingress: int
    """The worker that it reaches first."""
    deadline: int = 0
    """When it must be answered, as a time of the run; 0: no deadline."""
    tenant: int = 0
    class_id: int = 0
    """Its class, as a position in ``Groups.classes``."""
    priority: int = 0
    """Higher goes first, under policies that respect it."""
    prompt_tokens: int = 0
    """For its tasks that generate; 0 where none does."""
    output_tokens: int = 0
    """How many tokens each of these generates; policies go by what their function expects."""
    prefix_tokens: int = 0
    """How many tokens at the beginning of its prompt are the same for all requests of its group; 0: none."""
    prefix_group: int = 0


class Groups(NamedTuple):
    """Names of the classes and tenants of a workload, by their number."""

    classes: tuple[str, ...] = ()
    """Empty: requests have no classes."""
    tenants: tuple[str, ...] = ()
    """Empty: tenants have no names, only numbers."""


NO_GROUPS = Groups()

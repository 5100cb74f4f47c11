"""A request: one execution of a graph, from its arrival at a worker to the end of its last task."""

from typing import NamedTuple

BLOCK_TOKENS = 512
"""Tokens of a block of a prompt, in Mooncake's traces."""


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
    blocks: tuple[int, ...] = ()
    """The blocks of its prompt by content, as a trace has them: equal beginnings have equal ids. Where there are any,
    they say what is shared, and the two above do not count."""

    def block_tokens(self) -> list[tuple[int, int]]:
        """Return the keys of its blocks in a cache and the tokens of each; the last one may be short.

        Keys are below 0: groups have the others.
        """
        counts = [min(BLOCK_TOKENS, self.prompt_tokens - BLOCK_TOKENS * at) for at in range(len(self.blocks))]
        return [(-1 - block, tokens) for block, tokens in zip(self.blocks, counts, strict=True) if tokens > 0]


NUMBERS = tuple(name for name in Request._fields if name != "blocks")
"""The fields of a request that are whole numbers: all but the last."""


class Groups(NamedTuple):
    """Names of the classes and tenants of a workload, by their number."""

    classes: tuple[str, ...] = ()
    """Empty: requests have no classes."""
    tenants: tuple[str, ...] = ()
    """Empty: tenants have no names, only numbers."""


NO_GROUPS = Groups()

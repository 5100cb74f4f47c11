"""Random: any node that holds the job, each as likely as the others. The baseline that a placement has to beat.

The draw of a job depends on the seed, the job and how often it has been stopped, and on nothing that was drawn
before: asking twice, or for other jobs in between, changes nothing. A larger job takes nodes in a random order, a
share any GPU with room of a random node.
"""

from headway.jobs.model.resources import Placement
from headway.jobs.policies.parts import PlacementRule
from headway.jobs.policies.placements.pick import (
    holding,
    on_equal_nodes,
    on_node,
    one_node,
    over_nodes,
    share_nodes,
    share_on,
)
from headway.jobs.state.pool import Demand, Pool, members
from headway.streams import small_stream


class RandomFit(PlacementRule):
    """Any place, with equal chance."""

    name = "random"

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def place(self, pool: Pool, js: Demand) -> Placement | None:
        """Return a random placement; None where the job does not fit."""
        if js.gpu_milli != 1000:
            if not (nodes := share_nodes(pool, js)):
                return None
            draw = small_stream(self.seed, _name(js))
            node = draw.choice(list(members(nodes)))
            return ((node, 1 << draw.choice(share_on(pool, js, node))),)
        if js.nodes > 1:
            return on_equal_nodes(pool, js, self._shuffled(pool, js))
        if nodes := holding(pool, js):
            return on_node(pool, small_stream(self.seed, _name(js)).choice(list(members(nodes))), js.gpus)
        if one_node(pool, js) or js.gpus > pool.free_among(js.eligible):
            return None
        return over_nodes(pool, js, self._shuffled(pool, js))

    def _shuffled(self, pool: Pool, js: Demand) -> list[int]:
        order = list(members(js.eligible & pool.schedulable))
        small_stream(self.seed, _name(js)).shuffle(order)
        return order


def _name(js: Demand) -> str:
    return f"placement random {js.id} {js.attempt} {js.preemptions}"

"""HEFT: the plan of Compass without load, models and adjustment. A baseline of the Compass paper."""

from typing import Any, ClassVar

from headway.fleet.policies.compass.policy import Compass
from headway.fleet.policies.compass.worker import FIFO, LOOKAHEAD


class Heft(Compass):
    """Plans by decreasing rank, as if every worker were idle and held every model."""

    name = "heft"
    authors: ClassVar[dict[str, Any]] = {"evict": FIFO, "prefetch": 0, "ingress": False}

    def __init__(self, evict: str = LOOKAHEAD, prefetch: int = 3, ingress: bool = True) -> None:
        super().__init__(adjust=False, load=False, cache=False, evict=evict, prefetch=prefetch, ingress=ingress)

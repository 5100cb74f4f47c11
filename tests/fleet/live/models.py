"""A multi-model deployment of a user's own, with headway's router in front of it."""

from ray import serve
from ray.serve.config import RequestRouterConfig

from headway.ray import Router

SIZES = {"a": "40MB", "b": "40MB", "c": "40MB"}


class Models:
    """Says which replica answers, and which models it was asked for."""

    def __init__(self) -> None:
        self._id = serve.get_replica_context().replica_id.unique_id
        self._asked: set[str] = set()

    async def __call__(self, model: str) -> tuple[str, list[str]]:
        self._asked.add(model)
        return self._id, sorted(self._asked)


routed = serve.deployment(Models).options(
    num_replicas=3,
    ray_actor_options={"num_cpus": 0.1},
    request_router_config=RequestRouterConfig(
        request_router_class=Router, request_router_kwargs={"sizes": SIZES, "memory": "50MB", "load_calls": 100}
    ),
)

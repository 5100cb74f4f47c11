"""Headway's router in front of a multi-model deployment of your own on Ray Serve: calls go where their model is.

    pip install 'headway[ray]'
    python examples/ray/router.py

Six models of 40 MB, three replicas with room for two each. It prints how often a replica had to load a model, with
Serve's own router and with headway's.
"""

import random

import ray
from ray import serve
from ray.serve.config import RequestRouterConfig

from headway.ray import Router

SIZES = {f"model-{number}": "40MB" for number in range(6)}
ROOM = 2
ROUTED = RequestRouterConfig(
    request_router_class=Router,
    request_router_kwargs={"sizes": SIZES, "memory": "80MB"},  # of each replica
)


class Models:
    """Your own deployment: Serve loads a model when one is asked for, and drops the one that was used least lately."""

    def __init__(self):
        self._loads = 0

    @serve.multiplexed(max_num_models_per_replica=ROOM)
    async def model(self, name):
        """Load a model."""
        self._loads += 1
        return bytearray(1000)  # 40 MB of weights in earnest

    async def __call__(self):
        """Run the model of this call; return whether it had to be loaded."""
        before = self._loads
        await self.model(serve.get_multiplexed_model_id())
        return self._loads > before


def loads(handle, calls=300):
    """Return how many of some calls had to load their model."""
    draw = random.Random(1)
    handles = [handle.options(multiplexed_model_id=name) for name in SIZES]
    return sum(draw.choice(handles).remote().result() for _ in range(calls))


def main():
    """Deploy it twice, and compare."""
    ray.init(address="local", num_cpus=4, _node_ip_address="127.0.0.1", include_dashboard=False, log_to_driver=False)
    try:
        models = serve.deployment(Models).options(num_replicas=3, ray_actor_options={"num_cpus": 0.5})
        plain = serve.run(models.bind(), name="plain", route_prefix="/plain")
        print(f"Serve's router: {loads(plain)} loads in 300 calls")
        routed = models.options(request_router_config=ROUTED)
        other = serve.run(routed.bind(), name="routed", route_prefix="/routed")
        print(f"headway's router: {loads(other)} loads in 300 calls")
    finally:
        serve.shutdown()
        ray.shutdown()


if __name__ == "__main__":
    main()

"""The same pipelines as a plain application of Ray Serve: composition by handles, multiplexing, batching.

Tuned as Serve's guides say: the replica's loop is never blocked (weights are read in one thread, batches run in
another), each replica may have several requests at a time so that batches form, and calls pass no HTTP.
"""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

from ray import serve

from bench import serve_ray_models as models

BATCH_WAIT_S = 0.001


def application(replicas, resident, batches, ongoing):
    """Return the application: ``replicas`` with room for ``resident`` models each.

    ``batches``: of a replica at a time, so that one may wait for its model while another runs; ``ongoing``: requests.
    """

    @serve.deployment(num_replicas=replicas, max_ongoing_requests=ongoing, ray_actor_options={"num_cpus": 1})
    class Models:
        """Holds some of the models, and runs batches of one at a time."""

        def __init__(self):
            self._loader, self._runner = ThreadPoolExecutor(1), ThreadPoolExecutor(1)

        @serve.multiplexed(max_num_models_per_replica=resident)
        async def model(self, name):
            return await asyncio.get_running_loop().run_in_executor(self._loader, models.load, int(name))

        @serve.batch(max_batch_size=models.MAX_BATCH, batch_wait_timeout_s=BATCH_WAIT_S, max_concurrent_batches=batches)
        async def batch(self, values):
            weights = await self.model(serve.get_multiplexed_model_id())
            return await asyncio.get_running_loop().run_in_executor(self._runner, models.run, weights, values)

        async def __call__(self, value):
            return await self.batch(value)

    @serve.deployment(num_replicas=1, max_ongoing_requests=1000, ray_actor_options={"num_cpus": 0.5})
    class Pipeline:
        """Passes a value through the models of a pipeline."""

        def __init__(self, handle):
            self._models = [handle.options(multiplexed_model_id=str(number)) for number in range(models.MODELS)]

        async def __call__(self, graph, value):
            for number in models.PIPELINES[graph]:
                value = await self._models[number].remote(value)
            return value

    return Pipeline.bind(Models.bind())


def bare_call():
    """Return an application that measures calls between two deployments: seconds of each, one after the other."""

    @serve.deployment(ray_actor_options={"num_cpus": 0.5})
    class Callee:
        async def __call__(self, value):
            return value

    @serve.deployment(ray_actor_options={"num_cpus": 0.5})
    class Caller:
        def __init__(self, handle):
            self._handle = handle

        async def __call__(self, count):
            took = []
            for number in range(count):
                began = time.perf_counter()
                assert await self._handle.remote(number) == number
                took.append(time.perf_counter() - began)
            return took

    return Caller.bind(Callee.bind())

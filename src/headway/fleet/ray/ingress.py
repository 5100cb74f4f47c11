"""The ingress: the one replica that holds the server with its state, policy, scheduler and tape.

Serve's proxies bring it the requests of HTTP, for the same application that the local engine has. The socket of local
clients is opened on its machine, which is the one of ``headway serve start``.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from ray import serve
from ray.serve.handle import DeploymentHandle

from headway.fleet.live.doors.front import Front
from headway.fleet.live.doors.http import application
from headway.fleet.live.doors.serve import Doors, Say, serve as serve_until_end
from headway.fleet.live.server import Server
from headway.fleet.live.workers.process import Engine
from headway.fleet.ray.engine import ray_engine

WORKERS = "workers"
"""The name of the deployment of workers."""
_RUNNING = "RUNNING"
"""Of Serve's states of a replica."""
_log = logging.getLogger("ray.serve")


@dataclass(frozen=True)
class Plan:
    """What the ingress is to serve; it travels there."""

    open: Callable[[Engine, Say], AbstractContextManager[Server]]
    """Makes the server, whose run is kept when the context ends."""
    doors: Doors
    scaled: bool = False
    """Whether Serve chooses the number of workers."""
    about: Mapping[str, Any] = field(default_factory=dict)
    examples: Mapping[str, Any] = field(default_factory=dict)


class Ingress:
    """Holds the server."""

    async def __init__(self, workers: "DeploymentHandle[Any]", plan: Plan) -> None:  # type: ignore[misc]
        """Return when all workers are ready."""
        self._plan = plan
        self._app_name = serve.get_replica_context().app_name
        loop = asyncio.get_running_loop()
        opened: asyncio.Future[Front] = loop.create_future()
        self._running = loop.create_task(self._serve(workers, opened))
        await asyncio.wait((opened, self._running), return_when=asyncio.FIRST_COMPLETED)
        if self._running.done():
            self._running.result()
        self._front = opened.result()

    async def _serve(self, workers: "DeploymentHandle[Any]", opened: "asyncio.Future[Front]") -> None:
        plan = self._plan
        engine = ray_engine(workers, self._running_workers if plan.scaled else None)
        with plan.doors.place.held(), plan.open(engine, _log.info) as server:
            await serve_until_end(
                server,
                plan.doors,
                None,
                say=_log.info,
                about=plan.about,
                examples=plan.examples,
                on_open=opened.set_result,
            )
        await asyncio.to_thread(serve.delete, self._app_name, _blocking=False)

    def _running_workers(self) -> int:
        """Count the replicas of the workers that run."""
        app = serve.status().applications.get(self._app_name)
        found = app.deployments.get(WORKERS) if app is not None else None
        return sum(n for state, n in found.replica_states.items() if state == _RUNNING) if found is not None else 0

    async def __del__(self) -> None:
        """End in good order where Serve ends the replica: it was deleted, or another takes its place."""
        if not self._running.done():
            self._running.cancel()
            await asyncio.wait((self._running,))

    def __serve_build_asgi_app__(self) -> Any:
        """Return the application that Serve's proxies call."""
        doors = self._plan.doors
        return application(self._front, token=doors.token, most_body_bytes=doors.most_body_bytes)

    def check_health(self) -> None:
        """Raise where the server cannot go on: Serve starts another."""
        if self._front.server.failure:
            raise RuntimeError(self._front.server.failure)

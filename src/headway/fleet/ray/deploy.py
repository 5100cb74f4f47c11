"""Deploy a server on Ray Serve: join or start a cluster, run the application there, and wait for its end."""

import contextlib
import logging
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from time import monotonic, sleep
from types import FrameType
from typing import Any

import ray as ray_library
from ray import serve as ray_serve
from ray.serve import config as ray_config, context as ray_context
from ray.serve.deployment import Application

from headway.errors import RequestError, ServeError, unknown_name
from headway.fleet.live.client.client import Client
from headway.fleet.live.doors.place import Place
from headway.fleet.live.doors.serve import Say, check, url_of
from headway.fleet.ray.ingress import WORKERS, Ingress, Plan
from headway.fleet.ray.order_router import OrderRouter
from headway.fleet.ray.replica import WorkerReplica
from headway.fleet.ray.scaling import BUSY, wanted
from headway.runs.sweep.ray_pool import STORE_BYTES, check_answers

ray: Any = ray_library
serve: Any = ray_serve  # their types hold for some of these calls only
config: Any = ray_config
context: Any = ray_context
_STARTED_HERE = ("", "local")
_HERE = "127.0.0.1"
_MOST_ORDERS = 1000
"""Orders that a worker may have at a time; the policy gives it far fewer."""
_CHECK_S, _CHECK_WITHIN_S = 1.0, 30.0
_END_S = 10.0
_LOOK_S = 0.1


@dataclass(frozen=True)
class Cluster:
    """Where on Ray, and how."""

    address: str = ""
    """Of a cluster to join: ``auto``, or host:port; ``local`` or nothing: start one here."""
    workers: int = 2
    worker_options: Mapping[str, Any] = field(default_factory=dict)
    """Of each worker, as Ray has them: num_cpus, num_gpus, resources, label_selector, runtime_env."""
    scaling: Mapping[str, Any] = field(default_factory=dict)
    """What Serve's autoscaler is told, min_replicas and others; nothing: the number of workers is fixed."""


def serve_on_ray(plan: Plan, cluster: Cluster, say: Say) -> None:
    """Serve until a signal or a client ends it."""
    place, name = plan.doors.place, plan.doors.place.folder.name
    if place.runs:
        raise ServeError(f"{place.folder}: a server runs there already: give this one another --folder")
    with joined(cluster):
        port = plan.doors.port
        options = {"host": plan.doors.host, "port": port} if port is not None else {"location": "NoServer"}
        serve.start(http_options=options)
        try:
            plan = _at(plan, context._get_global_client().http_config)
            _deploy(application_of(plan, cluster), name, None if port is None else "/")
            say(f"serving on Ray as application {name}; folder {place.folder}")
            say(f"  HTTP at {plan.about['url']}" if plan.about.get("url") else "  without HTTP")
            say("  headway call, headway load and headway serve status find it; Ctrl-C drains and stops")
            ends = _Ends()
            with ends.on_signals():
                _wait(place, ends, say)
        finally:
            with contextlib.suppress(ValueError, RuntimeError):
                serve.delete(name)
    say("stopped")


@contextlib.contextmanager
def joined(cluster: Cluster) -> Iterator[None]:
    """Be connected to a cluster; one that is started here ends with the context."""
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    local = cluster.address in _STARTED_HERE
    if local:
        cpus = cluster.workers * max(1, int(cluster.worker_options.get("num_cpus", 1))) + 1
        ray.init(
            address="local",
            _node_ip_address=_HERE,
            include_dashboard=False,
            num_cpus=cpus,
            object_store_memory=STORE_BYTES,
            **quiet,
        )
    elif not ray.is_initialized():
        check_answers(os.environ.get("RAY_ADDRESS", "") if cluster.address == "auto" else cluster.address)
        here = {"_node_ip_address": _HERE} if cluster.address.split(":")[0] in (_HERE, "localhost") else {}
        try:
            ray.init(address=cluster.address, **here, **quiet)
        except (ConnectionError, ValueError, RuntimeError, OSError, SystemExit) as problem:  # Ray exits by itself
            reason = (str(problem).splitlines() or [type(problem).__name__])[0]
            raise ServeError(f"Ray cluster {cluster.address!r}: cannot be joined ({reason})") from None
    try:
        yield
    finally:
        if local:
            serve.shutdown()
        ray.shutdown()


def application_of(plan: Plan, cluster: Cluster) -> Application:
    """Return the application of Serve: the ingress on this machine, and the workers."""
    a_router: Any = OrderRouter
    router = config.RequestRouterConfig(request_router_class=a_router)
    workers = serve.deployment(WorkerReplica).options(
        name=WORKERS,
        **_number_of_workers(cluster),
        max_ongoing_requests=_MOST_ORDERS,
        ray_actor_options=dict(cluster.worker_options),
        request_router_config=router,
        health_check_period_s=_CHECK_S,
        health_check_timeout_s=_CHECK_WITHIN_S,
        graceful_shutdown_timeout_s=2.0,
        graceful_shutdown_wait_loop_s=0.1,
    )
    ingress = serve.deployment(serve.ingress()(Ingress)).options(
        name="ingress",
        num_replicas=1,
        max_ongoing_requests=100_000,
        ray_actor_options={"num_cpus": 1, "resources": {f"node:{ray.util.get_node_ip_address()}": 0.001}},
        health_check_period_s=_CHECK_S,
        health_check_timeout_s=_CHECK_WITHIN_S,
        graceful_shutdown_timeout_s=_END_S,
        graceful_shutdown_wait_loop_s=0.1,
    )
    found: Application = ingress.bind(workers.bind(), plan)
    return found


def _number_of_workers(cluster: Cluster) -> dict[str, Any]:
    """Return what Serve is told about the number of replicas: a number, or how its autoscaler chooses it."""
    if not cluster.scaling:
        return {"num_replicas": cluster.workers}
    known = sorted(set(config.AutoscalingConfig.model_fields) - {"max_replicas", "policy"})
    for key in cluster.scaling:
        if key not in known:
            raise ServeError(unknown_name("--scale", key, known))
    try:
        told = {"target_ongoing_requests": BUSY, **cluster.scaling, "max_replicas": cluster.workers}
        found = config.AutoscalingConfig(**told, policy=config.AutoscalingPolicy(policy_function=wanted))
    except ValueError as problem:
        said = [line.strip().partition(" [type=")[0] for line in str(problem).splitlines()]
        raise ServeError(f"--scale: Serve does not take that: {(said[1:2] or said)[0]}") from None
    return {"autoscaling_config": found}


def _at(plan: Plan, http: Any) -> Plan:
    """Return a plan with the address of Serve's proxies, which hold where Serve ran before; it may need a token."""
    if plan.doors.port is None or http.host is None:
        return plan
    doors = replace(plan.doors, host=http.host, port=http.port)
    check(doors, "Serve runs already, at")
    return replace(plan, doors=doors, about={**plan.about, "url": url_of(doors.host, doors.port)})


def _deploy(application: Application, name: str, route: str | None) -> None:
    """Run the application; without a route, no proxy leads to it."""
    try:
        serve.run(application, name=name, route_prefix=route)
    except RuntimeError as problem:
        lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
        said = [line for line in lines if line.startswith("headway.errors.")]
        reason = said[-1].partition(": ")[2] if said else lines[-1] if lines else "Serve does not say why"
        raise ServeError(f"Ray Serve does not run it: {reason}") from None


class _Ends:
    """How often the user asked for the end."""

    def __init__(self) -> None:
        self.asked = 0

    def ask(self, number: int, frame: FrameType | None) -> None:
        """Note a signal."""
        self.asked += 1

    @contextlib.contextmanager
    def on_signals(self) -> Iterator[None]:
        """Listen to Ctrl-C and SIGTERM."""
        before: dict[int, Any] = {}
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, self.ask)
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)


def _wait(place: Place, ends: _Ends, say: Callable[[str], None]) -> None:
    """Return when the server has ended; hand on the wish to end it. A server that Serve starts anew is waited for."""
    told, gone_at = 0, 0.0
    while True:
        if place.runs:
            gone_at = 0.0
        elif not gone_at:
            gone_at = monotonic()
        elif told or not _is_deployed(place.folder.name):
            return
        if ends.asked > told:
            told = ends.asked
            if told == 1:
                say("draining: requests that were accepted are answered, new ones are refused; once more ends at once")
            try:
                with Client(str(place.folder)) as client:
                    client.stop(drain=told == 1)
            except (ServeError, RequestError):  # it is gone, or cannot be asked: Serve ends it
                return
        sleep(_LOOK_S)


def _is_deployed(name: str) -> bool:
    """Return whether Serve has the application, and is not about to delete it."""
    found = serve.status().applications.get(name)
    return found is not None and found.status != "DELETING"

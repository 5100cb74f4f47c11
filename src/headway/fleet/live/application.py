"""Serve the application of an experiment: workers, doors and, where it is to be kept, a run folder."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.errors import ServeError
from headway.fleet.experiment.scene import FleetScene
from headway.fleet.live.doors.serve import Doors, Say, check, opened, serve, url_of
from headway.fleet.live.doors.values import plain
from headway.fleet.live.options import LOCAL, RAY, Options
from headway.fleet.live.scene import live_scene, served
from headway.fleet.live.server import Server
from headway.fleet.live.workers.process import Engine
from headway.fleet.live.workers.shares import cpus_for, environments
from headway.fleet.scenarios.app import App, read_app
from headway.fleet.scenarios.tables.settings import ServingExperiment
from headway.program.pipeline import Graph
from headway.runs.blame import own_code

if TYPE_CHECKING:
    from headway.fleet.ray.deploy import Cluster

APP_SUFFIX = ".py"


def app_path(text: str) -> Path:
    """Return the path of an application; raise ServeError where it is no Python file."""
    path = Path(text).expanduser()
    if path.suffix != APP_SUFFIX:
        raise ServeError(f"app {text}: a Python file with graphs, like app.py (docs/guides/serving.md)")
    if not path.is_file():
        raise ServeError(f"app {text}: there is no such file")
    return path.resolve()


def serve_app(
    experiment: ServingExperiment,
    options: Options,
    doors: Doors,
    out: Path | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Path | None:
    """Serve until a signal or a client ends it; return the folder of the run, if one was asked for with ``out``."""
    if out is not None and (kept := free_folder(out)) != out:
        say(f"{out} holds a run: this one is kept in {kept}")
        out = kept
    with own_code():
        app = read_app(options.app)
        scene = live_scene(experiment, LOCAL, options.context_bytes, options.devices)
    for note in scene.built.notes:
        say(note)
    about = _about(app, options, out)
    with opened(doors) as listener, shared(scene, options) as ready, served(scene, ready, out, say) as server:
        asyncio.run(serve(server, doors, listener, say=say, about=about, examples=examples_of(app)))
    return out


def free_folder(out: Path) -> Path:
    """Return a folder for a run: the one that was asked for, or one beside it where an earlier server left its run."""
    beside = (out.with_name(f"{out.name}-{number}") for number in count(2))
    taken = out.is_dir() and any(out.iterdir())
    return next(path for path in beside if not path.exists()) if taken else out


@contextmanager
def shared(scene: FleetScene, options: Options) -> Iterator[Options]:
    """Yield the options of a server whose workers have the shares of their devices that the scene says."""
    workers, devices = scene.built.fleet.workers, options.devices
    cpus = [cpus_for(workers, index, devices[index % len(devices)]) for index in range(len(workers))]
    with environments(workers, devices) as found:
        yield replace(options, cpus=tuple(cpus), environments=found)


def serve_app_on_ray(
    experiment: ServingExperiment,
    options: Options,
    doors: Doors,
    cluster: "Cluster",
    out: Path | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> None:
    """Serve on a Ray cluster until a signal or a client ends it; the run is kept on this machine."""
    from headway.fleet.ray.deploy import serve_on_ray
    from headway.fleet.ray.ingress import Plan

    check(doors)
    if slices := experiment.serving.slices:
        raise ServeError(f"--slices {slices}: Ray does not start workers with shares of a GPU: leave it out")
    with own_code():
        app, scene = read_app(options.app), live_scene(experiment, RAY, options.context_bytes)
    about = _about(app, options, out)
    with opened(doors) as listener:  # tried before a cluster is started for it
        if listener is not None:
            doors = replace(doors, port=listener.getsockname()[1])
            about["url"] = url_of(doors.host, doors.port)
    if cluster.scaling:
        least = cluster.scaling.get("min_replicas", 1)
        if not isinstance(least, int) or least < 1:
            raise ServeError(f"--scale min_replicas={least}: a whole number from 1 on")
        options = replace(options, least_workers=least)
    opening = partial(served_on_ray, experiment, options, None if out is None else out.absolute())
    plan = Plan(opening, doors, bool(cluster.scaling), about, examples_of(app))
    serve_on_ray(plan, replace(cluster, workers=len(scene.built.fleet.workers)), say)


@contextmanager
def served_on_ray(
    experiment: ServingExperiment, options: Options, out: Path | None, engine: Engine, say: Say
) -> Iterator[Server]:
    """Yield a server in its replica; one that takes the place of another keeps its run beside the first."""
    kept = None if out is None else free_folder(out)
    with served(live_scene(experiment, RAY, options.context_bytes), options, kept, say, engine) as server:
        yield server


def _about(app: App, options: Options, out: Path | None) -> dict[str, Any]:
    """Return what a status says of a server besides its counts."""
    return {
        "app": str(options.app),
        "out": "" if out is None else str(out),
        "slo_ns": {graph.name: graph.slo for graph in app.graphs if graph.slo},
    }


def examples_of(app: App) -> dict[str, Any]:
    """Return by graph an input that its first task has an example of, where it can be sent by a client."""
    found = {}
    for graph in app.graphs:
        value = _example(graph)
        if value is not None:
            found[graph.name] = value
    return found


def _example(graph: Graph) -> Any:
    behind = {after for _, after in graph.edges}
    for position, task in enumerate(graph.tasks):
        if position not in behind and task.example is not None:
            try:
                with own_code():
                    return plain(task.example(1)[0])
            except ServeError:  # no JSON: it is good for measuring alone
                return None
    return None

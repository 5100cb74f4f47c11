"""Serve the application of an experiment: workers, doors and, where it is to be kept, a run folder."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headway.errors import ServeError
from headway.experiment.blame import own_code
from headway.experiment.fleet.live import live_scene, served
from headway.formats.serving.settings import ServingExperiment
from headway.live.serving.options import Options
from headway.live.serving.serve import Doors, opened, serve
from headway.live.serving.values import plain
from headway.program.pipeline import Graph
from headway.scenarios.app import App, read_app

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
) -> None:
    """Serve until a signal or a client ends it; what was done is kept in the folder ``out``, if that is given."""
    with own_code():
        app, scene = read_app(options.app), live_scene(experiment, options.context_bytes)
    about = {
        "app": str(options.app),
        "out": "" if out is None else str(out),
        "slo_ns": {graph.name: graph.slo for graph in app.graphs if graph.slo},
    }
    with opened(doors) as listener, served(scene, options, out, say) as server:
        asyncio.run(serve(server, doors, listener, say=say, about=about, examples=examples_of(app)))


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

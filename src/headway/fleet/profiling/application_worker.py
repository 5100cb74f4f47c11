"""Worker process of ``fleet.profiling.application``: reads an application, pushes its examples through its graphs, and
times tasks.

Built models stay in host memory; on the device are those of the task that runs.
"""

import pickle
import time
from pathlib import Path
from typing import Any

from headway.errors import ProfileError
from headway.fleet.model.fleet import cpus_of
from headway.fleet.profiling.device import Device, first_line, serve, weights_bytes
from headway.fleet.scenarios.app import App, batches_of, read_app
from headway.program.pipeline import Graph, Task


class Tasks(Device):
    """The tasks of one application on one device; times them."""

    def __init__(self, device: str) -> None:
        super().__init__(device, time.monotonic_ns())
        self._app: App
        self._models: dict[str, Any] = {}
        self._there: set[str] = set()
        """Models on the device."""
        self._results: dict[tuple[str, int], list[Any]] = {}
        """By graph and task: the results for all examples of the graph."""

    # --- what can be asked for ----------------------------------------------------------------------------------

    def read(self, path: str) -> dict[str, Any]:
        """Read an application; return its tasks, each with what is to be measured of it, and its models."""
        self._app = read_app(Path(path))
        return {
            "tasks": [
                {
                    "name": task.name,
                    "batches": batches_of(task),
                    "cpus": task.cpus,
                    "slices": task.slices,
                    "models": [model.name for model in task.models],
                    "needs": [each.name for each in self._entries(task) if each.example is None],
                }
                for task in self._app.tasks
            ],
            "models": {model.name: model.memory_bytes for model in self._app.models},
        }

    def model(self, name: str) -> dict[str, Any]:
        """Build a model; return its bytes and how long its weights take to the device, where they can be counted."""
        begin = time.monotonic_ns()
        built = self._built(name)
        build_ns = time.monotonic_ns() - begin
        if not self._is_module(built):
            return {"build_ns": build_ns, "weights_bytes": 0}
        self._leave(set())
        loads = self.timed_loads(built)
        self.empty()
        return {"build_ns": build_ns, "weights_bytes": weights_bytes(built), **loads}

    def task(self, name: str, batch: int, cpus: int, share: int, runs: int, least_s: float) -> dict[str, Any]:
        """Time a task on a batch of its graph's examples; a share of CPUs bounds those that it is given."""
        called = next(task for task in self._app.tasks if task.name == name)
        graph, at = self._place(called)
        lists = self._lists(graph, at)
        models = self._loaded(called)
        given = [each[:batch] for each in lists]
        results: list[Any] = []

        def once() -> None:
            results[:] = self._called(called, models, given)

        self.hold(cpus if self.is_cuda else min(cpus, len(cpus_of(share, self.all_cpus))))
        measured = self.timed_with_peak(once, runs, least_s)
        self.hold_these(self.all_cpus)
        inputs = given[0] if not graph.predecessors(at) else []
        return {**measured, "input_bytes": self._bytes(inputs), "output_bytes": self._bytes(results)}

    # --- examples, pushed through a graph -------------------------------------------------------------------------

    def _place(self, task: Task) -> tuple[Graph, int]:
        """Return the first graph that a task is in, and its place there."""
        return next((graph, graph.tasks.index(task)) for graph in self._app.graphs if task in graph.tasks)

    def _entries(self, task: Task) -> list[Task]:
        """Return the tasks at the beginning of a graph whose examples lead to a task."""
        graph, at = self._place(task)
        above, entries = [at], []
        while above:
            before = graph.predecessors(place := above.pop())
            above.extend(before)
            if not before:
                entries.append(graph.tasks[place])
        return entries

    def _lists(self, graph: Graph, at: int) -> list[list[Any]]:
        """Return the inputs of a task for all examples of its graph: as many as its largest batch."""
        if before := graph.predecessors(at):
            return [self._result(graph, place) for place in before]
        task, count = graph.tasks[at], max(task.max_batch for task in graph.tasks)
        assert task.example is not None
        given: Any = task.example(count)
        if not isinstance(given, list) or len(given) != count:
            said = f"{len(given)} inputs" if isinstance(given, list) else f"a {type(given).__name__}"
            raise ProfileError(f"task {task.name}: its example gave {said} for {count}: it must give a list of so many")
        return [list(given)]

    def _result(self, graph: Graph, at: int) -> list[Any]:
        """Return the results of a task for all examples of its graph, batch after batch."""
        if (graph.name, at) not in self._results:
            task, lists = graph.tasks[at], self._lists(graph, at)
            models, found = self._loaded(task), []
            self.hold(task.cpus)
            for start in range(0, len(lists[0]), task.max_batch):
                found += self._called(task, models, [each[start : start + task.max_batch] for each in lists])
            self._results[graph.name, at] = self.moved(found)
            self.synchronise()
        return self._results[graph.name, at]

    def _called(self, task: Task, models: list[Any], lists: list[list[Any]]) -> list[Any]:
        try:
            results: Any = task.run(*models, *lists)
            self.synchronise()
        except Exception as problem:
            raise ProfileError(f"task {task.name}: {type(problem).__name__}: {first_line(problem)}") from problem
        if not isinstance(results, list) or len(results) != len(lists[0]):
            said = f"{len(results)} results" if isinstance(results, list) else f"a {type(results).__name__}"
            raise ProfileError(
                f"task {task.name}: gave {said} for {len(lists[0])} inputs: it must give a list, one each"
            )
        return results

    def _bytes(self, items: list[Any]) -> int:
        """Return the bytes of an item as it travels, in the mean."""
        return -(-sum(len(pickle.dumps(self.moved(each), 5)) for each in items) // len(items)) if items else 0

    # --- models -----------------------------------------------------------------------------------------------------

    def _built(self, name: str) -> Any:
        if name not in self._models:
            model = next(model for model in self._app.models if model.name == name)
            try:
                self._models[name] = model.build()
            except Exception as problem:
                raise ProfileError(f"model {name}: {type(problem).__name__}: {first_line(problem)}") from problem
        return self._models[name]

    def _loaded(self, task: Task) -> list[Any]:
        """Return the models of a task, on the device; all others leave it."""
        wanted = [model.name for model in task.models]
        self._leave(set(wanted))
        for name in wanted:
            if self._is_module(built := self._built(name)):
                built.to(self.device)
                self._there.add(name)
        self.synchronise()
        return [self._models[name] for name in wanted]

    def _leave(self, wanted: set[str]) -> None:
        for name in self._there - wanted:
            self._models[name].to("cpu")
            self._there.discard(name)
        self.empty()

    def _is_module(self, built: Any) -> bool:
        return self.torch is not None and isinstance(built, self.torch.nn.Module)


if __name__ == "__main__":
    serve(Tasks)

"""Say why a request was late or dropped, and what late requests of a run have in common; for a terminal and as JSON."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from headway.fleet.ask.breakdown import CAUSES, CHANGES, Breakdown, Parts, TaskParts
from headway.fleet.show.history.room import overlapping
from headway.show.formatting import clipped, listed, milliseconds
from headway.show.terminal import framed
from headway.units import MILLISECOND, counted, format_size, to_seconds

Line = str | Table
_MOST_HOLDERS = 3
_HEADS = {
    "queue": "no room",
    "decision": "not taken up",
    "controller": "for a decision",
    "inputs": "inputs",
    "process": "process",
    "weights": "weights",
    "engine": "in line",
    "run": "run alone",
    "neighbours": "neighbours",
    "lost": "lost",
}


# --- one request ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RequestExplanation:
    """Where the time of one request went, what it waited for, and what would have saved it."""

    breakdown: Breakdown
    parts: Parts
    drop_reason: str = ""

    def lines(self) -> Iterator[Line]:
        """Yield the explanation for a terminal."""
        parts, request = self.parts, self.parts.request
        graph = clipped(self.breakdown.catalogue.graphs[request.graph].name)
        within = (
            f", to be answered within {milliseconds(request.deadline - request.arrival)}" if request.deadline else ""
        )
        yield f"request {request.id}: {graph}, arrived at {to_seconds(request.arrival):.3f} s{within}"
        yield self._outcome()
        if parts.chain and parts.time:
            yield ""
            yield self._tasks()
            yield from self._held_by()
        yield from self._changes()

    def _outcome(self) -> str:
        parts, request = self.parts, self.parts.request
        over = parts.end - request.deadline
        away = f", {milliseconds(over)} late" if over > 0 else f", {milliseconds(-over)} before its deadline"
        margin = away if request.deadline else ""
        if parts.outcome == "answered":
            least = self.breakdown.latency.critical_path(self.breakdown.catalogue.graphs[request.graph])
            slower = f"{parts.time / max(least, 1):.2f} times its critical path"
            return f"answered after {milliseconds(parts.time)}{margin}: {slower}"
        if parts.outcome == "dropped":
            return f"dropped after {milliseconds(parts.time)}{margin}: {self.drop_reason}"
        return f"not answered when the run ended, {milliseconds(parts.time)} after it arrived{margin}"

    def _tasks(self) -> Table:
        """Return the critical path: a line a task, a column a cause."""
        sums = self.parts.sums()
        shown = [cause for cause, time in sums.items() if time]
        made = framed(["critical path, ms"], ["worker", *(_HEADS[cause] for cause in shown), "all"])
        for task in self.parts.chain:
            own = task.sums()
            cells = [f"{own[cause] / MILLISECOND:,.1f}" for cause in shown]
            made.add_row(self._task(task), self._worker(task.worker), *cells, f"{sum(own.values()) / MILLISECOND:,.1f}")
        total = [f"{sums[cause] / MILLISECOND:,.1f}" for cause in shown]
        made.add_row("all", "", *total, f"{self.parts.time / MILLISECOND:,.1f}", style="bold")
        return made

    def _task(self, task: TaskParts) -> str:
        graph = self.breakdown.catalogue.graphs[self.parts.request.graph]
        return clipped(graph.tasks[task.attempt.task].name)

    def _worker(self, worker: int) -> str:
        return "–" if worker < 0 else clipped(self.breakdown.fleet.workers[worker].name)

    def _held_by(self) -> Iterator[str]:
        """Yield what held the resources that it waited for."""
        told = [line for task in self.parts.chain for line in self._waited_for(task)]
        if told:
            yield ""
            yield "what it waited for"
            yield from (f"  {line}" for line in told)

    def _waited_for(self, task: TaskParts) -> Iterator[str]:
        name, catalogue, own = self._task(task), self.breakdown.catalogue, task.sums()
        waits = [piece for piece in task.pieces if piece.cause in ("queue", "decision") and piece.worker >= 0]
        for worker in dict.fromkeys(piece.worker for piece in waits):
            here = [piece for piece in waits if piece.worker == worker]
            holders = overlapping(self.breakdown.history, worker, here[0].since, here[-1].until)
            names = [f"{clipped(catalogue.functions[each].name)} for {milliseconds(time)}" for each, time in holders]
            more = [f"{len(names) - _MOST_HOLDERS} more functions"] if len(names) > _MOST_HOLDERS else []
            ran = f" ran {listed([*names[:_MOST_HOLDERS], *more])}" if names else " ran nothing"
            waited = milliseconds(sum(piece.length for piece in here))
            yield f"{name} waited {waited} for {self._worker(worker)}, which{ran}"
        if own["controller"]:
            yield f"{name} waited {milliseconds(own['controller'])} for a decision"
        run = task.attempt.batch_run
        if own["process"] and run is not None:
            yield f"{name} started a process of {clipped(catalogue.functions[run.function].name)}"
        if own["weights"] and run is not None:
            models = [f"{clipped(m.name)} ({format_size(m.size_bytes)})" for m in self._models(run.loads)]
            evicted = [clipped(catalogue.models[model].name) for model in run.evicted]
            room = f", evicting {listed(evicted)}" if evicted else ""
            yield f"{name} fetched {listed(models)}{room}" if models else f"{name} waited for weights on their way"
        if own["neighbours"] and run is not None:
            yield f"{name} ran beside {listed([clipped(catalogue.functions[each].name) for each in run.beside])}"

    def _models(self, loads: Sequence[tuple[int, int]]) -> list[Any]:
        return [self.breakdown.catalogue.models[model] for model, _ in loads]

    def _changes(self) -> Iterator[str]:
        """Yield which single change would have saved a late request, all else equal."""
        parts = self.parts
        if not parts.late or not parts.chain:
            return
        yield ""
        if not parts.hopeless:
            yield f"it could still have been in time then: it needed {milliseconds(parts.needed)} in all at least"
            return
        least = "at least " if parts.outcome != "answered" else ""
        for cause in parts.saviours:
            took = f"{least}{milliseconds(parts.without[cause])}"
            yield f"{CHANGES[cause]} would have saved it: {took}, all else the same"
        if not parts.saviours:
            best = min(CHANGES, key=lambda cause: parts.without[cause])
            most = f"{CHANGES[best]}: {least}{milliseconds(parts.without[best])}"
            yield f"no single change would have saved it; the most is {most}"

    def record(self) -> dict[str, Any]:
        """Return the explanation as JSON, for a program."""
        parts, request = self.parts, self.parts.request
        graph = self.breakdown.catalogue.graphs[request.graph]
        return {
            "request": request.id,
            "graph": graph.name,
            "arrival_s": to_seconds(request.arrival),
            "deadline_s": to_seconds(request.deadline) if request.deadline else None,
            "outcome": parts.outcome,
            "late": parts.late,
            "drop_reason": self.drop_reason or None,
            "time_s": to_seconds(parts.time),
            "parts_ns": parts.sums(),
            "main_cause": parts.main,
            "critical_path": [
                {
                    "task": graph.tasks[task.attempt.task].name,
                    "worker": self.breakdown.fleet.workers[task.worker].name if task.worker >= 0 else None,
                    "parts_ns": task.sums(),
                }
                for task in parts.chain
            ],
            "without_s": {cause: to_seconds(time) for cause, time in parts.without.items()},
            "saved_by": parts.saviours,
        }


# --- all late requests ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LateExplanation:
    """The causes over all late requests of a run; over all requests where none has a deadline."""

    requests: int
    """Measured."""
    late: Sequence[Parts]
    dropped: int
    """Of these."""
    by_deadline: bool
    """Whether any request has one."""
    late_warmup: int = 0
    """Late ones in the warm-up, which is not measured."""

    def rows(self) -> list[dict[str, Any]]:
        """Return a row a cause: its share of the time, of how many it is the main one, how many its absence saves."""
        sums = {cause: sum(parts.sums()[cause] for parts in self.late) for cause in CAUSES}
        whole = sum(sums.values())
        main = Counter(parts.main for parts in self.late)
        saved = Counter(cause for parts in self.late for cause in parts.saviours)
        return [
            {
                "cause": cause,
                "mean_s": to_seconds(time) / max(1, len(self.late)),
                "share": time / whole if whole else 0.0,
                "main_cause_of": main[cause],
                "saved_without": saved[cause] if cause in CHANGES and self.by_deadline else None,
            }
            for cause, time in sums.items()
        ]

    def record(self) -> dict[str, Any]:
        """Return it as JSON, for a program."""
        return {
            "requests": self.requests,
            "late": len(self.late) if self.by_deadline else None,
            "dropped": self.dropped,
            "late_warmup": self.late_warmup if self.by_deadline else None,
            "not_saved": self._not_saved() if self.by_deadline else None,
            "causes": self.rows(),
        }

    def _not_saved(self) -> int:
        return sum(not parts.saviours for parts in self.late)

    def lines(self) -> Iterator[Line]:
        """Yield it for a terminal."""
        if not self.by_deadline:
            yield f"no request has a deadline: where the time of all {self.requests:,} measured requests went"
        else:
            dropped = f", {self.dropped:,} of them dropped" if self.dropped else ""
            early = f"; {self.late_warmup:,} more in the warm-up, which is not measured" if self.late_warmup else ""
            verb = "was" if len(self.late) == 1 else "were"
            yield f"{len(self.late):,} of {counted(self.requests, 'measured request')} {verb} late{dropped}{early}"
        if not self.late:
            return
        rows = [row for row in self.rows() if row["mean_s"] or row["main_cause_of"] or row["saved_without"]]
        yield ""
        heads = ["mean", "share", "main cause of", *(["in time without it"] if self.by_deadline else [])]
        made = framed(["cause"], heads)
        for row, share in zip(rows, tenths([row["share"] for row in rows]), strict=True):
            saved = "–" if row["saved_without"] is None else f"{row['saved_without']:,}"
            cells = [milliseconds(round(row["mean_s"] * 1e9)), f"{share / 10:.1f} %", f"{row['main_cause_of']:,}"]
            made.add_row(CAUSES[row["cause"]], *cells, *([saved] if self.by_deadline else []))
        yield made
        if self.by_deadline:
            yield ""
            late = f"{self._not_saved():,} of {len(self.late):,}"
            yield f"{late} would have been late whichever one cause had been absent"


def tenths(shares: Sequence[float]) -> list[int]:
    """Return shares in tenths of a percent that add up to 1000, each within one of its own value."""
    if not sum(shares):
        return [0] * len(shares)
    exact = [1000 * share / sum(shares) for share in shares]
    whole = [int(each) for each in exact]
    most: Callable[[int], float] = lambda index: exact[index] - whole[index]  # noqa: E731
    for index in sorted(range(len(exact)), key=most, reverse=True)[: 1000 - sum(whole)]:
        whole[index] += 1
    return whole

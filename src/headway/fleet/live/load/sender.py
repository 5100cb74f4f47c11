"""Send requests to a server at given times, whatever it answers (open loop), and measure what comes back.

Latency counts from the moment at which a request was due, so that a generator or a server that falls behind is seen in
the numbers and not left out of them.
"""

import asyncio
import selectors
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np
import numpy.typing as npt

from headway.errors import HeadwayError, ServeError
from headway.fleet.live.client.client import AsyncClient, submission
from headway.fleet.live.doors.front import Reply
from headway.fleet.live.doors.values import from_json
from headway.fleet.live.request_counts import INVALID, OUTCOMES
from headway.units import MILLISECOND, SECOND

IntArray = npt.NDArray[np.int64]
Tell = Callable[[str, float], None]
LOST = "lost"
"""The connection ended, or nothing was heard."""
UNANSWERED = "unanswered"
"""Still in flight when the measurement was stopped."""
LAST_S = 30.0
"""Requests without a deadline are waited for so long after the last was sent."""
_AT_ONCE = 16
"""Requests sent before answers are looked at, where the generator is behind."""
_TOLD_EVERY = SECOND // 5
_LONGEST_REASON = 200


@dataclass(frozen=True, slots=True)
class Plan:
    """What is sent, and when."""

    times: IntArray
    """Nanoseconds since the beginning, in order."""
    graphs: Sequence[str]
    """By request."""
    inputs: Mapping[str, Sequence[Any]]
    """By graph: its inputs, taken in turn."""
    deadlines: Mapping[str, int]
    """By graph: nanoseconds; 0: none."""


@dataclass(slots=True)
class Measured:
    """What came back."""

    plan: Plan
    sent: int = 0
    lag: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    """By request: how much later than due it was sent."""
    latency: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    """By request: from its due time to its answer; −1: none."""
    outcome: list[str] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    """Why requests came to nothing, and how many."""
    span: int = 0
    """From the beginning to the last answer."""
    stopped: bool = False

    def row(self, graph: str = "") -> dict[str, Any]:
        """Return the numbers of all requests, or of those for one graph; times in seconds."""
        chosen = np.array([not graph or each == graph for each in self.plan.graphs[: self.sent]], dtype=bool)
        outcomes = Counter(each for each, counts in zip(self.outcome[: self.sent], chosen, strict=True) if counts)
        answered = self.latency[: self.sent][chosen & (self.latency[: self.sent] >= 0)] / SECOND
        due = np.array([self.plan.deadlines.get(each, 0) for each in self.plan.graphs[: self.sent]], dtype=np.int64)
        with_deadline = chosen & (due > 0)
        in_time = with_deadline & (self.latency[: self.sent] >= 0) & (self.latency[: self.sent] <= due)
        span_s, sent = self.span / SECOND, int(chosen.sum())
        percentiles = {f"latency_p{percent}_s": _percentile(answered, percent) for percent in (50, 90, 99)}
        return {
            "requests": sent,
            **{name: outcomes.get(name, 0) for name in (*OUTCOMES.values(), INVALID, LOST, UNANSWERED)},
            "latency_mean_s": _or_none(answered, np.mean),
            **percentiles,
            "latency_max_s": _or_none(answered, np.max),
            "slo_hit_rate": float(in_time.sum() / with_deadline.sum()) if with_deadline.any() else None,
            "answers_per_s": len(answered) / span_s if span_s else 0.0,
        }

    def summary(self) -> dict[str, Any]:
        """Return all numbers: of all requests, by graph, why some failed, and how far the generator lagged."""
        names = sorted(set(self.plan.graphs))
        lag = self.lag[: self.sent] / SECOND
        return {
            **self.row(),
            "span_s": self.span / SECOND,
            "lag_p50_s": _or_none(lag, np.median),
            "lag_p99_s": _percentile(lag, 99),
            "stopped": self.stopped,
            "errors": dict(self.reasons.most_common()),
            "graphs": {name: self.row(name) for name in names} if len(names) > 1 else {},
        }


def _percentile(values: Any, percent: int) -> float | None:
    return float(np.percentile(values, percent)) if len(values) else None


def _or_none(values: Any, function: Callable[[Any], Any]) -> float | None:
    return float(function(values)) if len(values) else None


def read_inputs(path: str) -> list[Any]:
    """Return the inputs in a file: FILE.jsonl one a line, FILE.json one, any other its bytes."""
    file = Path(path).expanduser()
    try:
        data = file.read_bytes()
    except OSError as problem:
        raise ServeError(f"--input {path}: {problem.strerror}") from None
    try:
        if file.suffix == ".jsonl":
            lines = [from_json(line) for line in data.splitlines() if line.strip()]
            if not lines:
                raise ServeError("it is empty")
            return lines
        return [from_json(data) if file.suffix == ".json" else data]
    except ServeError as problem:
        raise ServeError(f"--input {path}: {problem}") from None


def event_loop() -> asyncio.AbstractEventLoop:
    """Return a loop whose timers are exact to microseconds: that of epoll rounds them up to milliseconds."""
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


async def run_load(client: AsyncClient, plan: Plan, tell: Tell = lambda what, share: None) -> Measured:
    """Send what a plan says and return what was measured; being cancelled (Ctrl-C) ends it early."""
    generator = _Generator(client, plan, tell)
    try:
        await generator.send()
        await generator.wait()
    except asyncio.CancelledError:
        generator.measured.stopped = True
    generator.ended = True
    return generator.measured


class _Generator:
    """Requests on their way."""

    def __init__(self, client: AsyncClient, plan: Plan, tell: Tell) -> None:
        count = len(plan.times)
        self._client, self._plan, self._tell = client, plan, tell
        self.measured = Measured(plan)
        self.measured.lag = np.zeros(count, np.int64)
        self.measured.latency = np.full(count, -1, np.int64)
        self.measured.outcome = [UNANSWERED] * count
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._told = 0
        self.ended = False
        """What comes now is not measured any more."""

    async def send(self) -> None:
        """Send every request when it is due."""
        questions = {
            name: [submission(name, value, self._plan.deadlines.get(name, 0) / SECOND or None) for value in values]
            for name, values in self._plan.inputs.items()
        }
        await self._client.open()
        turns: Counter[str] = Counter()
        self._began = perf_counter_ns()
        for index, (time, graph) in enumerate(zip(self._plan.times.tolist(), self._plan.graphs, strict=True)):
            due = self._began + time
            if (early := due - perf_counter_ns()) > 0:
                await asyncio.sleep(early / SECOND)
            elif index % _AT_ONCE == 0:
                await asyncio.sleep(0)
            now = perf_counter_ns()
            self.measured.lag[index] = now - due
            self._in_flight += 1
            question = questions[graph][turns[graph] % len(questions[graph])]
            turns[graph] += 1
            future = self._client.ask(question)
            future.add_done_callback(partial(self._on_answer, index, due))
            self.measured.sent = index + 1
            self._report(now)

    async def wait(self) -> None:
        """Wait for the answers that are still to come."""
        longest = max(self._plan.deadlines.values(), default=0) / SECOND or LAST_S
        while self._in_flight:
            self._idle.clear()
            try:
                async with asyncio.timeout(longest + 1):
                    await self._idle.wait()
            except TimeoutError:
                return

    def _on_answer(self, index: int, due: int, done: "asyncio.Future[Reply]") -> None:
        now, measured = perf_counter_ns(), self.measured
        problem = None if done.cancelled() else done.exception()
        if self.ended:
            return
        self._in_flight -= 1
        measured.span = now - self._began
        if not self._in_flight:
            self._idle.set()
        if done.cancelled() or problem is not None:
            measured.outcome[index] = LOST
            measured.reasons[_short(str(problem) if isinstance(problem, HeadwayError) else repr(problem))] += 1
            return
        reply = done.result()
        measured.outcome[index] = OUTCOMES.get(reply.status, INVALID)
        if reply.status == 200:
            measured.latency[index] = now - due
        else:
            measured.reasons[_short(reply.reason)] += 1

    def _report(self, now: int) -> None:
        if now - self._told > _TOLD_EVERY:
            self._told = now
            measured, count = self.measured, len(self._plan.times)
            lag = int(measured.lag[measured.sent - 1]) // MILLISECOND
            behind = f", {lag:,} ms behind" if lag > 10 else ""
            self._tell(f"{measured.sent:,} sent, {self._in_flight:,} in flight{behind}", measured.sent / count)


def _short(reason: str) -> str:
    return reason if len(reason) <= _LONGEST_REASON else f"{reason[: _LONGEST_REASON - 1]}…"

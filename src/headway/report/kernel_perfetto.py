"""Kernel traces as a timeline that Perfetto (ui.perfetto.dev) and chrome://tracing open.

A process is a client, a program that shares the GPU. Its threads: what it launched, with an arrow from each launch to
its kernel; what ran on the GPU, as many threads as ran at once; when it waited for the GPU; and when a launch of it was
held back, with the reason. Two clients of one run lie on one axis. Lines are made one at a time, and nothing but numpy
is needed, so that a GPU machine can write them.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from headway.formats.kernel_trace import KernelTrace
from headway.kernels.reflex import Reason

KINDS = {1: "kernel", 2: "graph", 3: "copy"}
_LAUNCH_NS = 1_000
"""How long a launch is drawn, unless the next one comes sooner."""
_LAUNCHES, _WAITS, _GATED, _FIRST_GPU = 1, 2, 3, 4
"""Threads of a client, from its number on."""
_THREADS = 1_000
"""Numbers that a client has for its threads."""


@dataclass(frozen=True, slots=True)
class Gated:
    """A stretch in which a launch was held back, in the trace's clock."""

    begin_ns: int
    end_ns: int
    reason: int = 0


@dataclass(frozen=True, slots=True)
class Client:
    """One program of a run. ``since_ns`` is when its trace begins, on the axis that all clients share."""

    name: str
    trace: KernelTrace
    since_ns: int = 0
    gated: Sequence[Gated] = ()


def trace_events(clients: Sequence[Client], title: str = "") -> Iterator[str]:
    """The file, piece by piece."""
    parts = chain.from_iterable(_client(number, client) for number, client in enumerate(clients, start=1))
    yield f'{{"displayTimeUnit":"ns","otherData":{{"run":{json.dumps(title)}}},"traceEvents":[\n'
    for made, event in enumerate(parts):
        yield f",\n{event}" if made else event
    yield "\n]}\n"


def _client(pid: int, client: Client) -> Iterator[str]:
    trace = client.trace
    spans = list(zip(trace.start_ns.tolist(), trace.end_ns.tolist(), strict=True))
    lanes = _lanes(spans)
    yield _named("process_name", pid, 0, client.name)
    yield _named("thread_name", pid, pid * _THREADS + _LAUNCHES, "launches")
    for lane in range(max(lanes, default=0) + 1):
        name = "GPU" if lane == 0 else f"GPU, {lane + 1}"
        yield _named("thread_name", pid, pid * _THREADS + _FIRST_GPU + lane, name)
    yield from _kernels(pid, client, spans, lanes)
    yield from _waits(pid, client)
    yield from _gated(pid, client)


def _kernels(pid: int, client: Client, spans: Sequence[tuple[int, int]], lanes: Sequence[int]) -> Iterator[str]:
    """Each launch, its kernel, and the arrow between them."""
    trace, zero = client.trace, client.since_ns
    launches = trace.launch_ns.tolist()
    rows = zip(launches, [str(name) for name in trace.kernel], trace.kind.tolist(), trace.blocks.tolist(), strict=True)
    cpu = pid * _THREADS + _LAUNCHES
    for index, (launch, name, kind, blocks) in enumerate(rows):
        following = launches[index + 1] if index + 1 < len(launches) else launch + _LAUNCH_NS
        drawn = max(1, min(_LAUNCH_NS, following - launch))
        gpu = pid * _THREADS + _FIRST_GPU + lanes[index]
        start, end = spans[index]
        what = KINDS.get(kind, "kernel")
        arrow = f'"cat":"launch","id":{pid * 10**9 + index},"name":"launch","pid":{pid}'
        yield _slice(name, "launch", zero + launch, drawn, pid, cpu, {"launch": index})
        yield f'{{"ph":"s",{arrow},"tid":{cpu},"ts":{microseconds(zero + launch)}}}'
        args = {
            "launch": index,
            "blocks": blocks,
            "per_sm": int(trace.per_sm[index]),
            "queued_us": (start - launch) / 1e3,
        }
        yield _slice(name, what, zero + start, max(0, end - start), pid, gpu, args)
        yield f'{{"ph":"f","bp":"e",{arrow},"tid":{gpu},"ts":{microseconds(zero + start)}}}'


def _waits(pid: int, client: Client) -> Iterator[str]:
    """From the launch that a wait followed to the wait's end; where several threads wait, the last of them."""
    trace, zero, tid = client.trace, client.since_ns, pid * _THREADS + _WAITS
    waited = [(int(trace.launch_ns[at]), int(trace.wait_ns[at])) for at in trace.wait_ns.nonzero()[0]]
    if waited:
        yield _named("thread_name", pid, tid, "waits for the GPU")
    until = -1
    for begin, end in waited:
        since = max(begin, until)
        if end > since:
            yield _slice("wait", "wait", zero + since, end - since, pid, tid, {})
            until = end


def _gated(pid: int, client: Client) -> Iterator[str]:
    tid, until = pid * _THREADS + _GATED, -1
    if client.gated:
        yield _named("thread_name", pid, tid, "held back")
    for each in sorted(client.gated, key=lambda gated: gated.begin_ns):
        since = max(each.begin_ns, until)
        if each.end_ns > since:
            reason = reason_name(each.reason)
            yield _slice(reason, "gate", client.since_ns + since, each.end_ns - since, pid, tid, {"reason": reason})
            until = each.end_ns


def reason_name(number: int) -> str:
    """Why a launch was held back, in a word."""
    try:
        return Reason(number).name.lower()
    except ValueError:
        return f"reason {number}"


def _lanes(spans: Sequence[tuple[int, int]]) -> list[int]:
    """A lane for each span, so that none lies on another; as few as it can be done with."""
    free: list[int] = []
    placed = [0] * len(spans)
    for index in sorted(range(len(spans)), key=lambda each: spans[each]):
        begin, end = spans[index]
        lane = next((number for number, until in enumerate(free) if until <= begin), len(free))
        free[lane : lane + 1] = [end]
        placed[index] = lane
    return placed


def microseconds(time: int) -> str:
    """Nanoseconds as a JSON number of microseconds, exactly."""
    sign, size = ("-", -time) if time < 0 else ("", time)
    whole, rest = divmod(size, 1000)
    return f"{sign}{whole}.{rest:03d}" if rest else f"{sign}{whole}"


def _named(what: str, pid: int, tid: int, name: str) -> str:
    return f'{{"ph":"M","name":"{what}","pid":{pid},"tid":{tid},"ts":0,"args":{{"name":{json.dumps(name)}}}}}'


def _slice(name: str, category: str, start: int, took: int, pid: int, tid: int, args: dict[str, object]) -> str:
    span = f'"pid":{pid},"tid":{tid},"ts":{microseconds(start)},"dur":{microseconds(took)}'
    return f'{{"ph":"X","cat":"{category}","name":{json.dumps(name)},{span},"args":{json.dumps(args)}}}'

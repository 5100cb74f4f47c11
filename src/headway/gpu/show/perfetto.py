"""Write kernel traces as a timeline that Perfetto (ui.perfetto.dev) and chrome://tracing open.

A process is a client, a program that shares the GPU. Its threads: what it launched, with an arrow from each launch to
its kernel; what ran on the GPU, as many threads as ran at once; when it waited for the GPU; and when a launch of it was
held back, with the reason. Two clients of one run lie on one axis. Lines are made one at a time, and nothing but numpy
is needed, so that a GPU machine can write them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from headway.gpu.model.reflex import Reason
from headway.gpu.programs.trace import KernelTrace
from headway.show.trace_events import Lanes, microseconds, named, span, whole_file

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
    """Return the file, piece by piece."""
    parts = chain.from_iterable(_client(number, client) for number, client in enumerate(clients, start=1))
    return whole_file(parts, title, "ns")


def _client(pid: int, client: Client) -> Iterator[str]:
    trace = client.trace
    spans = list(zip(trace.start_ns.tolist(), trace.end_ns.tolist(), strict=True))
    drawn = Lanes()
    placed = {at: drawn.place(*spans[at]) for at in sorted(range(len(spans)), key=spans.__getitem__)}
    yield named("process_name", pid, 0, client.name)
    yield named("thread_name", pid, pid * _THREADS + _LAUNCHES, "launches")
    for lane in range(max(1, len(drawn.ends))):
        name = "GPU" if lane == 0 else f"GPU, {lane + 1}"
        yield named("thread_name", pid, pid * _THREADS + _FIRST_GPU + lane, name)
    yield from _kernels(pid, client, spans, placed)
    # from the launch that a wait followed to the wait's end; where several threads wait, the last of them
    waits = [(int(trace.launch_ns[at]), int(trace.wait_ns[at]), "wait") for at in trace.wait_ns.nonzero()[0]]
    yield from _apart(pid, client, _WAITS, "waits for the GPU", waits)
    held = sorted(client.gated, key=lambda gated: gated.begin_ns)
    gates = [(gated.begin_ns, gated.end_ns, reason_name(gated.reason)) for gated in held]
    yield from _apart(pid, client, _GATED, "held back", gates)


def _kernels(pid: int, client: Client, spans: Sequence[tuple[int, int]], lanes: Mapping[int, int]) -> Iterator[str]:
    """Yield each launch, its kernel, and the arrow between them."""
    trace, zero = client.trace, client.since_ns
    launches = trace.launch_ns.tolist()
    rows = zip(launches, [str(name) for name in trace.kernel], trace.kind.tolist(), trace.blocks.tolist(), strict=True)
    cpu = pid * _THREADS + _LAUNCHES
    for index, (launch, name, kind, blocks) in enumerate(rows):
        following = launches[index + 1] if index + 1 < len(launches) else launch + _LAUNCH_NS
        drawn = max(1, min(_LAUNCH_NS, following - launch))
        gpu = pid * _THREADS + _FIRST_GPU + lanes[index]
        start, end = spans[index]
        arrow = f'"cat":"launch","id":{pid * 10**9 + index},"name":"launch","pid":{pid}'
        yield span(name, "launch", zero + launch, zero + launch + drawn, pid, cpu, {"launch": index})
        yield f'{{"ph":"s",{arrow},"tid":{cpu},"ts":{microseconds(zero + launch)}}}'
        args = {
            "launch": index,
            "blocks": blocks,
            "per_sm": int(trace.per_sm[index]),
            "queued_us": (start - launch) / 1e3,
        }
        yield span(name, KINDS.get(kind, "kernel"), zero + start, zero + max(start, end), pid, gpu, args)
        yield f'{{"ph":"f","bp":"e",{arrow},"tid":{gpu},"ts":{microseconds(zero + start)}}}'


def _apart(pid: int, client: Client, thread: int, title: str, spans: Sequence[tuple[int, int, str]]) -> Iterator[str]:
    """Yield slices (begin, end, name) on a thread of their own, none from before the last one has ended."""
    tid, zero, until = pid * _THREADS + thread, client.since_ns, -1
    if spans:
        yield named("thread_name", pid, tid, title)
    for begin, end, name in spans:
        since = max(begin, until)
        if end > since:
            category, args = ("gate", {"reason": name}) if thread == _GATED else (name, {})
            yield span(name, category, zero + since, zero + end, pid, tid, args)
            until = end


def reason_name(number: int) -> str:
    """Return why a launch was held back, in a word."""
    try:
        return Reason(number).name.lower()
    except ValueError:
        return f"reason {number}"

"""What running jobs hold, node by node and until when, kept from one plan to the next.

A plan of reservations begins with what becomes free as running jobs end. Only the nodes on which a job has started or
stopped since the last plan are looked at again. An end that is already past counts as just after now.
"""

from bisect import bisect_left, bisect_right

from headway.jobs.model.resources import Placement
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.pool import host_share, members
from headway.jobs.state.state import TrainingState

NEVER = 1 << 62


class Held:
    """One timeline a node: times, and from each time on the GPUs, CPUs and memory that are free."""

    def __init__(self, state: TrainingState) -> None:
        nodes = state.cluster.nodes
        self.hosted = any(node.cpu_milli is not None or node.memory_bytes is not None for node in nodes)
        self.times: list[list[int]] = [[] for _ in nodes]
        """Each begins with -1: what is free now is free since ever. The lists are replaced, never changed."""
        self.gpus: list[list[int]] = [[] for _ in nodes]
        self.cpus: list[list[int]] = [[] for _ in nodes]
        self.memory: list[list[int]] = [[] for _ in nodes]
        self.shared: dict[tuple[int, int], int] = {}
        """When the last share of a GPU ends, by node and GPU."""
        self._jobs: dict[int, Placement] = {}
        """Where the jobs run that it knows of."""
        self._lease = 0
        """The last one that it knows of."""
        self._changes = -1
        self._changed = set(range(len(nodes)))
        """Nodes to look at the next time, whatever happens."""
        self._firsts: list[dict[int, int]] = [{} for _ in nodes]
        self.known: list[dict[tuple[int, int, int], int]] = [{} for _ in nodes]
        """What ``enough`` has found, by node and amounts."""
        self._orders: dict[tuple[int, int, int, int], list[tuple[int, int]]] = {}

    def follow(self, now: int, state: TrainingState) -> int:
        """Take note of what has started and stopped since the last time; return the nodes that are others now."""
        ends = state.ends.of_rate(0)
        if state.changes == self._changes and not self._changed and not (ends and ends[0][0] <= now):
            return 0
        self._changes = state.changes
        running, changed = state.running, self._changed
        for job in self._jobs.keys() - running.keys():
            changed.update([node for node, _ in self._jobs.pop(job)])
        for js in reversed(running.values()):  # the last to start come last
            if js.lease <= self._lease:
                break
            changed.update([node for node, _ in (*self._jobs.get(js.id, ()), *js.placement)])
            self._jobs[js.id] = js.placement
        self._lease = state.lease
        late: set[int] = set()
        for end, job in ends:
            if end > now:
                break
            late.update([node for node, _ in state.running[job].placement])
        changed |= late
        for node in changed:
            self._look_at(node, now, state)
        self._changed = late  # these are clipped to the next instant each time
        return sum([1 << node for node in changed])

    def hold(self, node: int, now: int, state: TrainingState) -> None:
        """Take note that a job has started on a node, before all others that have are looked at."""
        self._look_at(node, now, state)
        self._changed.add(node)

    def _look_at(self, node: int, now: int, state: TrainingState) -> None:
        """Make the timeline of one node anew."""
        pool = state.pool
        released: dict[int, list[int]] = {}
        shared = self.shared
        for gpu in [gpu for gpu in shared if gpu[0] == node]:
            del shared[gpu]
        for js in state.on_node[node].values():
            end = max(js.expected_end(), now + 1)
            placement = js.placement
            count = placement[0][1] if len(placement) == 1 else next(mask for place, mask in placement if place == node)
            gpus = count.bit_count()
            cpu_milli, memory_bytes = host_share(js, gpus)
            if js.gpu_milli < 1000:
                gpu, gpus = (node, count.bit_length() - 1), 0
                shared[gpu] = max(end, shared.get(gpu, 0))
            amounts = released.get(end)
            if amounts is None:
                released[end] = [gpus, cpu_milli, memory_bytes]
                continue
            amounts[0] += gpus
            amounts[1] += cpu_milli
            amounts[2] += memory_bytes
        for (place, _), end in shared.items():
            if place == node:
                released[end][0] += 1
        times = sorted(released)
        free = [(pool.free_count[node], pool.cpu_free[node], pool.memory_free[node])]
        for time in times:
            before, given = free[-1], released[time]
            free.append((before[0] + given[0], before[1] + given[1], before[2] + given[2]))
        self.times[node] = [-1, *times]
        self.gpus[node], self.cpus[node], self.memory[node] = map(list, zip(*free, strict=True))
        self._firsts[node], self.known[node] = {}, {}
        if self._orders:
            self._orders = {key: order for key, order in self._orders.items() if not key[0] >> node & 1}

    def first(self, node: int, need: int) -> int:
        """Return from when on a node has so many GPUs if nothing else starts: -1 for at once."""
        found = self._firsts[node].get(need)
        if found is None:
            pairs = zip(self.times[node], self.gpus[node], strict=True)
            found = self._firsts[node][need] = next((time for time, free in pairs if free >= need), NEVER)
        return found

    def enough(self, node: int, need: int, cpu_milli: int, memory_bytes: int) -> int:
        """Return from when on a node has these amounts if nothing else starts: -1 for at once."""
        amounts = need, cpu_milli, memory_bytes
        found = self.known[node].get(amounts)
        if found is None:
            found = self.first(node, need)
            if self.hosted and found < NEVER:
                cpus, memory = self.cpus[node], self.memory[node]
                indices = range(bisect_left(self.times[node], found), len(cpus))
                first = next((at for at in indices if cpus[at] >= cpu_milli and memory[at] >= memory_bytes), None)
                found = NEVER if first is None else self.times[node][first]
            self.known[node][amounts] = found
        return found

    def in_order(self, nodes: int, need: int, cpu_milli: int, memory_bytes: int) -> list[tuple[int, int]]:
        """Return (what ``enough`` returns, node) of these nodes, the first one first."""
        key = nodes, need, cpu_milli, memory_bytes
        order = self._orders.get(key)
        if order is None:
            found = [(self.enough(node, need, cpu_milli, memory_bytes), node) for node in members(nodes)]
            order = self._orders[key] = sorted(found)
        return order

    def room(self, js: JobState, node: int, time: int) -> int:
        """Return how many of a job's GPUs a node can give from a time on."""
        index = bisect_right(self.times[node], time) - 1
        room = self.gpus[node][index]
        if self.hosted and js.cpu_milli:
            room = min(room, self.cpus[node][index] * js.gpus // js.cpu_milli)
        if self.hosted and js.memory_bytes:
            room = min(room, self.memory[node][index] * js.gpus // js.memory_bytes)
        return room

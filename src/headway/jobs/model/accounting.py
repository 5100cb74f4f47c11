"""Plain accounting for the audit: who holds what of each GPU, CPU and byte, one entry a device; what each job has got.

It shares no code with ``pool`` and ``state``, which are fast and therefore complicated: where both give the same
result, it is likely to be right.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping

from headway.jobs.model.cluster import Cluster
from headway.jobs.model.job import Job
from headway.jobs.model.resources import Grant, Placement
from headway.units import counted


class Life:
    """What has become of a job so far."""

    __slots__ = (
        *("attempt", "base", "changed", "debt", "done", "every", "grant", "job", "lease", "placement", "saved"),
        *("since", "speed", "writing"),
    )

    def __init__(self, job: Job) -> None:
        self.job = job
        self.every = job.checkpoint_every if job.checkpoint else 0
        """Work between periodic checkpoints that take time; 0: none do."""
        self.lease = 0
        """Of the present run; 0 while it waits."""
        self.placement: Placement = ()
        self.grant = self.asked
        """What it holds besides GPUs while it runs: what it asked for, or what it was given."""
        self.base = 0
        self.changed = -1
        """When it last started or moved, or what it holds was changed."""
        self.since = 0
        """When it last started or moved."""
        self.speed = 0
        self.done = 0
        self.saved = 0
        """Work that the checkpoint of its last preemption or move holds."""
        self.writing = 0
        """When the periodic checkpoint that was being written at the last entry is whole."""
        self.debt = 0
        self.attempt = 0

    @property
    def asked(self) -> Grant:
        """Return what it asked for besides GPUs."""
        return Grant(self.job.cpu_milli, self.job.memory_bytes)

    def done_at(self, now: int) -> int:
        """Work delivered by now: whole nanoseconds of each stretch at one speed."""
        return self._after(self._progress(now - self.base)) if self.lease and now > self.base else self.done

    def settle(self, now: int, pause: int = 0) -> None:
        """Enter what was delivered by now. It makes progress again when a checkpoint under way is written, and after
        a pause."""
        if self.lease and now > self.base:
            spent = self._progress(now - self.base)
            self.writing = self.base + self._taken(spent + 1) - 1 if self._begins_write(spent) else 0
            self.done, self.base = self._after(spent), max(now, self.writing)
        self.base = max(self.base, now) + pause

    def lost_to_failure(self, now: int) -> int:
        """Work since the last checkpoint that was whole when its node failed now; what was delivered is entered."""
        every = self.job.checkpoint_every
        if not every:
            return 0
        whole = self.done // every * every
        return self.done - max(self.saved, whole - every if self.writing > now else whole)

    def _after(self, spent: int) -> int:
        """Work delivered after so much time with progress."""
        return self.done + spent * self.speed // 1_000_000

    def _begins_write(self, spent: int) -> bool:
        """Return whether a periodic checkpoint falls due at the end of so much time with progress."""
        return bool(self.every and spent) and self._after(spent) // self.every > self._after(spent - 1) // self.every

    def _taken(self, spent: int) -> int:
        """Time that so much time with progress takes: all checkpoints that fell due before its end were written."""
        if not spent:
            return 0
        return spent + (self._after(spent - 1) // self.every - self.done // self.every) * self.job.checkpoint

    def _progress(self, elapsed: int) -> int:
        """Return the time with progress: the most that takes no longer than has gone by."""
        if not self.every:
            return elapsed
        return bisect_right(range(elapsed + 1), elapsed, key=self._taken) - 1


class Books:
    """What is held where, entry by entry."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.gpu_milli: dict[tuple[int, int], int] = defaultdict(int)
        """Thousandths held of each (node, GPU)."""
        self.host = [[0, 0, 0] for _ in cluster.nodes]
        """CPUs in thousandths, bytes of memory and bytes a second of storage that are held on each node."""
        self.on_node: list[set[int]] = [set() for _ in cluster.nodes]
        self.tenant_milli: dict[str, int] = defaultdict(int)
        self.closed: set[int] = set()
        """Nodes that are down or drained."""
        self._tenants = {tenant.name: tenant for tenant in cluster.tenants}
        self._partitions = {partition.name: frozenset(partition.nodes) for partition in cluster.partitions}

    def _existing(self, life: Life) -> list[tuple[int, int]]:
        """Return the parts of a job's placement that are on nodes of the cluster."""
        return [part for part in life.placement if 0 <= part[0] < len(self.cluster.nodes)]

    def take(self, life: Life) -> Iterator[tuple[str, str]]:
        """Enter a start; yields (rule, text) for each thing that is now held twice."""
        job = life.job
        self.tenant_milli[job.tenant] += job.gpus * job.gpu_milli
        for node, mask in self._existing(life):
            machine = self.cluster.nodes[node]
            self.on_node[node].add(job.id)
            for gpu in gpus_in(mask):
                self.gpu_milli[node, gpu] += job.gpu_milli
                if gpu >= machine.gpus:
                    yield "gpu", f"node {machine.name} has no GPU {gpu}, only {machine.gpus}"
                elif self.gpu_milli[node, gpu] > 1000:
                    yield "gpu", f"GPU {gpu} of node {machine.name} is held {self.gpu_milli[node, gpu]} thousandths"
        yield from self._host(life, +1)

    def give(self, life: Life) -> None:
        """Enter that a run ended."""
        job = life.job
        self.tenant_milli[job.tenant] -= job.gpus * job.gpu_milli
        for node, mask in self._existing(life):
            self.on_node[node].discard(job.id)
            for gpu in gpus_in(mask):
                self.gpu_milli[node, gpu] -= job.gpu_milli
        for _ in self._host(life, -1):
            """Less is held: nothing can be wrong with that."""

    def beside(self, life: Life, lives: Mapping[int, Life]) -> tuple[int, list[str]]:
        """Return what others hold of the GPU that a job shares, in thousandths, and what each of them trains."""
        node, mask = life.placement[0]
        others = [lives[job] for job in sorted(self.on_node[node]) if job != life.job.id and job in lives]
        models = [other.job.model for other in others if other.placement == life.placement]
        return self.gpu_milli[node, mask.bit_length() - 1] - life.job.gpu_milli, models

    def regrant(self, life: Life, grant: Grant) -> Iterator[tuple[str, str]]:
        """Enter that a running job holds something else besides its GPUs."""
        for _ in self._host(life, -1):
            """Less is held: nothing can be wrong with that."""
        life.grant = grant
        yield from self._host(life, +1)

    def _host(self, life: Life, sign: int) -> Iterator[tuple[str, str]]:
        for node, mask in self._existing(life) if any(life.grant) else ():
            machine = self.cluster.nodes[node]
            has = (machine.cpu_milli, machine.memory_bytes, machine.storage_bytes_per_second)
            for index, what in enumerate(("CPU thousandths", "bytes", "bytes a second of storage")):
                held = self.host[node][index]
                held += sign * _part(life.grant[index], mask.bit_count(), life.job.gpus)
                self.host[node][index] = held
                capacity = has[index]
                if sign > 0 and capacity is not None and held > capacity:
                    yield "host", f"node {machine.name} has {capacity} {what}, {held} are held"

    def wrong_place(self, job: Job, placement: Placement) -> Iterator[tuple[str, str]]:
        """(rule, text) for each reason why a job has no business there, whatever is free."""
        allowed = self._partitions.get(job.partition, frozenset()) if job.partition else None
        for node, _ in placement:
            if not 0 <= node < len(self.cluster.nodes):
                yield "place", f"node {node} does not exist"
                continue
            machine = self.cluster.nodes[node]
            if node in self.closed:
                yield "place", f"node {machine.name} is down or drained"
            if allowed is not None and node not in allowed:
                yield "place", f"node {machine.name} is not in partition {job.partition}"
            if job.gpu_types and machine.gpu_type not in job.gpu_types:
                yield "place", f"node {machine.name} has {machine.gpu_type}, the job wants {' or '.join(job.gpu_types)}"
        counts = [mask.bit_count() for _, mask in placement]
        if sum(counts) != job.gpus:
            yield "shape", f"wants {counted(job.gpus, 'GPU')} and got {sum(counts)}"
        if job.nodes and (len(counts) != job.nodes or len(set(counts)) > 1):
            yield "shape", f"wants {job.nodes} equal nodes and got {counts}"

    def over_quota(self, job: Job) -> str | None:
        """Return why the job's tenant may not hold what it holds now that this job has started; None when it may."""
        tenant = self._tenants.get(job.tenant)
        if tenant is None:
            return None
        held = self.tenant_milli[job.tenant]
        holds = f"tenant {tenant.name} holds {held / 1000:g} GPUs"
        if tenant.limit_gpus is not None and held > tenant.limit_gpus * 1000:
            return f"{holds}, its limit is {tenant.limit_gpus}"
        if tenant.guaranteed_gpus is None or held <= tenant.guaranteed_gpus * 1000:
            return None
        if not tenant.borrow:
            return f"{holds}, its quota is {tenant.guaranteed_gpus} and it may not borrow"
        if not job.preemptible:
            return f"{holds}, its quota is {tenant.guaranteed_gpus}, and job {job.id} borrows but is not preemptible"
        return None


def gpus_in(mask: int) -> Iterator[int]:
    """Return the GPUs of a mask, lowest first."""
    return (gpu for gpu in range(mask.bit_length()) if mask >> gpu & 1)


def _part(amount: int, gpus: int, of: int) -> int:
    """Return what of an amount goes with so many of a job's GPUs, rounded up."""
    return (amount * gpus + of - 1) // of if of else amount

"""Feasibility, in one place: why a start or a move cannot be, as a line that names thing, value and rule."""

from typing import TYPE_CHECKING

from headway.jobs.model.resources import Grant, Placement
from headway.jobs.rules.limits.text import told
from headway.jobs.state.jobstate import JobState, Status
from headway.jobs.state.pool import Demand, host_share, storage_share
from headway.jobs.state.tentative_demand import TentativeDemand
from headway.units import WHOLE_GPU_MILLI, counted

if TYPE_CHECKING:
    from headway.jobs.state.state import TrainingState


def start_refusal(state: "TrainingState", job: int, placement: Placement, grant: Grant | None = None) -> str | None:
    """Return why a waiting job cannot start here now; None when it can."""
    js = state.jobs.get(job)
    if js is None:
        return f"StartJob(job={job}): no such job is alive"
    if job in state.running:
        return f"StartJob(job={job}): runs already"
    if state.preempting is not None and js.status is Status.DELAYED:
        return f"StartJob(job={job}): was requeued and may not start before {js.aged_from} ns"
    if (
        grant is None and len(placement) == 1 and not state.quotas and js.limits is None
    ):  # the common case, in one expression
        ((node, mask),) = placement
        pool = state.pool
        if (
            0 <= node < len(pool.indexed)
            and js.eligible & pool.indexed[node]
            and mask & pool.free_mask[node] == mask
            and mask.bit_count() == js.gpus
            and js.gpu_milli == WHOLE_GPU_MILLI
            and not (js.cpu_milli or js.memory_bytes or js.storage)
            and js.nodes <= 1
        ):
            return None
    refusal = placement_refusal(state, js if grant is None else TentativeDemand(js, grant), placement)
    if refusal is None and state.quotas:
        refusal = quota_refusal(js)
    if refusal is None and js.limits is not None:
        refusal = limit_refusal(state, js)
    return None if refusal is None else f"StartJob(job={job}): {refusal}"


def move_refusal(state: "TrainingState", job: int, placement: Placement, grant: Grant | None = None) -> str | None:
    """Return why a running job cannot move here now; None when it can. Its own GPUs count as free."""
    js = state.running.get(job)
    if js is None:
        return f"MigrateJob(job={job}): does not run"
    if not js.job.preemptible:
        return f"MigrateJob(job={job}): is not preemptible"
    if placement == js.placement:
        return f"MigrateJob(job={job}): is there already"
    with state.draft() as draft:
        draft.release(js)
        refusal = placement_refusal(state, js if grant is None else TentativeDemand(js, grant), placement)
    return None if refusal is None else f"MigrateJob(job={job}): {refusal}"


def grant_refusal(state: "TrainingState", job: int, grant: Grant) -> str | None:
    """Return why a running job cannot hold this where it is; None when it can. What it holds now counts as free."""
    js = state.running.get(job)
    if js is None:
        return f"ReallocateJob(job={job}): does not run"
    if grant == js.grant:
        return f"ReallocateJob(job={job}): holds that already"
    pool, tentative = state.pool, TentativeDemand(js, grant)
    pool.give(js, js.placement)
    refusal = _host_refusal(state, tentative, js.placement)
    pool.take(js, js.placement)
    return None if refusal is None else f"ReallocateJob(job={job}): {refusal}"


def quota_refusal(js: JobState) -> str | None:
    """Return why the job's tenant may not hold this much more; None when it may."""
    account = js.account
    wanted = account.held + js.width
    if wanted <= account.guaranteed:
        return None
    holds = f"tenant {account.name} holds {account.held / 1000:g} GPUs and {js.width / 1000:g} more"
    if not account.borrow and wanted > account.guaranteed:
        return f"{holds} would exceed its quota of {account.guaranteed / 1000:g}"
    if wanted > account.limit:
        return f"{holds} would exceed its limit of {account.limit / 1000:g}"
    if not js.job.preemptible:
        return f"{holds} would be borrowed, which only preemptible jobs may"
    return None


def limit_refusal(state: "TrainingState", js: JobState) -> str | None:
    """Return the limit that the job would exceed, and who holds how much under it; None when it may start."""
    if js.limits is None or state.limits is None:
        return None
    counter = state.limits.refusing(js)
    return None if counter is None else told(counter, state.limits.now, js.limits.amount(counter))


def placement_refusal(state: "TrainingState", js: JobState | TentativeDemand, placement: Placement) -> str | None:
    """Return why these GPUs cannot be given to this job; None when they can."""
    pool = state.pool
    allowed = js.eligible & pool.schedulable
    total = 0
    seen = 0
    for node, mask in placement:
        bit = 1 << node
        if not allowed & bit:
            return _not_allowed(state, js, node)
        if seen & bit:
            return f"names node {state.cluster.nodes[node].name} twice"
        seen |= bit
        if not mask and js.gpus:
            return f"names node {state.cluster.nodes[node].name}, but no GPU of it"
        if js.gpu_milli == WHOLE_GPU_MILLI:
            if mask & ~pool.free_mask[node]:
                has = f"{pool.free_count[node]} free (mask {pool.free_mask[node]:#x})"
                name = state.cluster.nodes[node].name
                return f"wants {counted(mask.bit_count(), 'GPU')} (mask {mask:#x}), node {name} has {has}"
        elif (refusal := _share_refusal(state, js, node, mask)) is not None:
            return refusal
        total += mask.bit_count()
    if total != js.gpus:
        return f"wants {counted(js.gpus, 'GPU')}, the placement has {total}"
    if not placement:
        return "the placement names no node"
    if js.nodes and (len(placement) != js.nodes or any(m.bit_count() * js.nodes != js.gpus for _, m in placement)):
        return f"wants {counted(js.gpus // js.nodes, 'GPU')} on each of {js.nodes} nodes"
    if js.cpu_milli or js.memory_bytes or js.storage:
        return _host_refusal(state, js, placement)
    return None


def _share_refusal(state: "TrainingState", js: Demand, node: int, mask: int) -> str | None:
    gpu = mask.bit_length() - 1
    name = state.cluster.nodes[node].name
    if mask.bit_count() != 1:
        return f"a share needs exactly one GPU, the placement has {mask.bit_count()} on node {name}"
    free = 1000 if state.pool.free_mask[node] & mask else state.pool.shares[node].get(gpu, 0)
    if free < js.gpu_milli:
        return f"wants {js.gpu_milli} thousandths, GPU {gpu} of node {name} has {free} free"
    return None


def _host_refusal(state: "TrainingState", js: Demand, placement: Placement) -> str | None:
    if min(js.cpu_milli, js.memory_bytes, js.storage) < 0:
        return f"{js.cpu_milli} CPU thousandths, {js.memory_bytes} bytes, {js.storage} B/s: none may be negative"
    for node, mask in placement:
        cpu_milli, memory_bytes = host_share(js, mask.bit_count())
        name = state.cluster.nodes[node].name
        if cpu_milli > state.pool.cpu_free[node]:
            return f"wants {cpu_milli / 1000:g} CPUs, node {name} has {state.pool.cpu_free[node] / 1000:g} free"
        if memory_bytes > state.pool.memory_free[node]:
            return f"wants {memory_bytes} bytes of memory, node {name} has {state.pool.memory_free[node]} free"
        if js.storage and (rate := storage_share(js, mask.bit_count())) > state.pool.storage_free[node]:
            return f"wants {rate} B/s of storage, node {name} has {state.pool.storage_free[node]} free"
    return None


def _not_allowed(state: "TrainingState", js: JobState | TentativeDemand, node: int) -> str:
    if not 0 <= node < len(state.cluster.nodes):
        return f"node {node} does not exist"
    name = state.cluster.nodes[node].name
    if js.eligible >> node & 1:
        return f"node {name} is down or drained"
    if state.reserved is not None and state.eligible(js.job.partition, js.job.gpu_types) >> node & 1:
        return f"node {name} is reserved for others before it would end, or not in its own reservation now"
    job = js.job
    return (
        f"node {name} is not in partition {job.partition or 'any'} with GPU types {', '.join(job.gpu_types) or 'any'}"
    )

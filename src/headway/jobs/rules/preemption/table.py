"""Read and write tiers and preemption as they stand in an experiment: times as people write them."""

from msgspec import Struct, field

from headway.errors import ExperimentError, unknown_name
from headway.jobs.model.cluster import Partition, Qos
from headway.jobs.rules.preemption.preemption import AGAIN_AFTER, Mode, Preemption
from headway.units import exact_duration, parse_duration


class QosTable(Struct, kw_only=True, omit_defaults=True):
    """A quality of service, which jobs name; whom its jobs preempt, and what becomes of its own."""

    name: str
    priority: int = 0
    preempts: list[str] = field(default_factory=list)
    preempt_mode: str = ""
    """requeue, cancel or off; empty: as ``cluster.preemption`` has it."""
    grace: str = ""
    exempt: str = ""
    usage_factor: float = 1.0


class PreemptionTable(Struct, kw_only=True, omit_defaults=True):
    """Whether jobs are preempted by rule of the cluster, and how where a QOS or a partition says nothing else."""

    by: str = ""
    """qos or partition; empty: nobody is."""
    mode: str = "requeue"
    exempt: str = ""
    again_after: str = exact_duration(AGAIN_AFTER)
    youngest_first: bool = False


def mode_of(text: str, what: str) -> Mode | None:
    """Return the mode that a text names; None for none."""
    if text and text not in list(Mode):
        raise ExperimentError(unknown_name(f"{what}: preempt_mode", text, list(Mode)))
    return Mode(text) if text else None


def qos_from_table(table: QosTable) -> Qos:
    """Return the QOS that a table describes."""
    what = f"qos {table.name}"
    if not 0 <= table.priority <= 2**32:
        raise ExperimentError(f"{what}: priority {table.priority} must lie in 0 to {2**32:,}")
    if not 0 <= table.usage_factor <= 1000:
        raise ExperimentError(f"{what}: usage_factor {table.usage_factor} must lie in 0 to 1000")
    return Qos(
        table.name,
        table.priority,
        tuple(table.preempts),
        mode_of(table.preempt_mode, what),
        span(table.grace, f"{what}: grace"),
        span(table.exempt, f"{what}: exempt") if table.exempt else None,
        table.usage_factor,
    )


def table_from_qos(qos: Qos) -> QosTable:
    """Return a table that ``qos_from_table`` reads back."""
    return QosTable(
        name=qos.name,
        priority=qos.priority,
        preempts=list(qos.preempts),
        preempt_mode=str(qos.preempt_mode or ""),
        grace=written(qos.grace),
        exempt="" if qos.exempt is None else exact_duration(qos.exempt),
        usage_factor=qos.usage_factor,
    )


def preemption_from_table(table: PreemptionTable, qos: list[QosTable]) -> Preemption | None:
    """Return the rules that a table describes; a QOS may name only QOSs that are described."""
    known = {each.name for each in qos}
    for each in qos:
        for name in each.preempts:
            if name not in known:
                raise ExperimentError(unknown_name(f"qos {each.name}: preempts", name, known))
    if not table.by:
        return None
    return Preemption(
        table.by,
        mode_of(table.mode, "preemption") or Mode.REQUEUE,
        span(table.exempt, "preemption: exempt"),
        span(table.again_after, "preemption: again_after"),
        table.youngest_first,
    )


def table_from_preemption(rules: Preemption | None) -> PreemptionTable:
    """Return a table that ``preemption_from_table`` reads back."""
    if rules is None:
        return PreemptionTable()
    return PreemptionTable(
        by=rules.by,
        mode=str(rules.mode),
        exempt=written(rules.exempt),
        again_after=exact_duration(rules.again_after),
        youngest_first=rules.youngest_first,
    )


def span(text: str, what: str) -> int:
    """Return a time; 0 where none is given."""
    return parse_duration(text, what=what) if text else 0


def written(length: int) -> str:
    """Return a time as text that is read back exactly; empty for none."""
    return exact_duration(length) if length else ""


def partition_fields(partition: Partition) -> dict[str, str]:
    """Return mode and grace of a partition as an experiment writes them."""
    return {"preempt_mode": str(partition.preempt_mode or ""), "grace": written(partition.grace)}

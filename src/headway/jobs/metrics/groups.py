"""Make the tables of tenants, partitions, QOS, users and GPU types, and compute Jain's index of fairness."""

import numpy as np
import polars as pl

from headway.jobs.metrics.jobs import gpu_seconds, job_table
from headway.jobs.metrics.ledger import Ledger
from headway.jobs.metrics.sizes import NOTHING, gpu_type_of
from headway.statistics.series import FloatArray

GROUPS = {
    "tenant": "tenants",
    "partition": "partitions",
    "qos": "qos",
    "user": "users",
    "gpu_type": "gpu_types",
}
"""What jobs are told apart by in results, and the key of the list of their members."""
TITLES = {"qos": "QOS", "gpu_type": "GPU type"}
"""What is written for a group where its name is not a word."""


def by_tenant(ledger: Ledger, table: pl.DataFrame | None = None) -> pl.DataFrame:
    """Return one row a tenant that has submitted a job, by name; ``table`` spares making the job table again."""
    weights = {tenant.name: tenant.weight for tenant in ledger.cluster.tenants}
    grouped = _grouped(job_table(ledger) if table is None else table, "tenant")
    weight = pl.Series("weight", [weights.get(name, 1) for name in grouped["tenant"].to_list()], dtype=pl.Int64)
    return grouped.insert_column(1, weight)


def by_group(ledger: Ledger, group: str, table: pl.DataFrame | None = None) -> pl.DataFrame:
    """Return one row a member of one of ``GROUPS``, by name.

    Jobs that name none stand under a dash; without a partition under an empty name.
    """
    jobs = job_table(ledger) if table is None else table
    if group == "tenant":
        return by_tenant(ledger, jobs)
    return _grouped(jobs.drop(group, strict=False).with_columns(_labels(ledger, group, jobs["id"])), group)


def _labels(ledger: Ledger, group: str, ids: pl.Series) -> pl.Series:
    if group == "gpu_type":
        names = [gpu_type_of(ledger.jobs[number]) for number in ids.to_list()]
    else:
        nothing = "" if group == "partition" else NOTHING
        names = [getattr(ledger.jobs[number], group) or nothing for number in ids.to_list()]
    return pl.Series(group, names, dtype=pl.String)


def _grouped(table: pl.DataFrame, key: str) -> pl.DataFrame:
    completed = pl.col("end_s").is_not_null() & pl.col("first_start_s").is_not_null()
    wait = pl.col("wait_s").filter(completed)
    return (
        table.group_by(key)
        .agg(
            jobs=pl.len().cast(pl.Int64),
            finished=(pl.col("outcome") == "finished").sum().cast(pl.Int64),
            jct_mean_s=pl.col("jct_s").filter(completed).mean(),
            wait_mean_s=wait.mean(),
            wait_p99_s=wait.quantile(0.99, interpolation="linear"),
            ftf_mean=pl.col("ftf").mean(),
            gpu_hours=pl.col("gpu_s").sum() / 3600,
            lost_gpu_hours=pl.col("lost_gpu_s").sum() / 3600,
            preemptions=pl.col("preemptions").sum(),
            migrations=pl.col("migrations").sum(),
        )
        .with_columns(share=_share())
        .sort(key)
    )


def _share() -> pl.Expr:
    total = pl.col("gpu_hours").sum()
    return pl.when(total > 0).then(pl.col("gpu_hours") / total).otherwise(0.0)


def jain(values: FloatArray) -> float | None:
    """Return Jain's index: 1 when all are equal, 1/n when one has everything; None without values, 1 when all are 0."""
    if not len(values):
        return None
    largest = float(values.max())
    if largest <= 0:
        return 1.0
    scaled = values / largest
    return float(scaled.sum()) ** 2 / (len(scaled) * float((scaled * scaled).sum()))


def tenant_fairness(ledger: Ledger, chosen: slice = slice(None)) -> float | None:
    """Return Jain's index of GPU time over weight, over tenants that submitted one of these jobs."""
    weights = {tenant.name: tenant.weight for tenant in ledger.cluster.tenants}
    names, codes = ledger.codes("tenant")
    codes = codes[chosen]
    received = np.bincount(codes, weights=gpu_seconds(ledger, ledger.held)[chosen], minlength=len(names))
    present = np.bincount(codes[ledger.arrived[chosen]], minlength=len(names)) > 0
    return jain((received / np.array([max(1, weights.get(name, 1)) for name in names], dtype=np.float64))[present])

"""Every part of every policy once over a public trace, audited and repeated: the long check that tests are too short
for.

``.venv/bin/python bench/sweep.py philly.csv.gz philly-csv`` runs each order, backfill, placement and migration (the
other parts at their defaults) to the end on 80 nodes x 8, audits the tape, runs it again and compares digests, and
prints a line a policy in Markdown. It fails if a job did not finish, the audit found something, or a digest differed.
"""

import argparse
import sys

import msgspec

from headway.jobs.audit.audit import audit
from headway.jobs.experiment.scene import prepare
from headway.jobs.metrics.summary import summarise
from headway.jobs.policies.registry import BACKFILLS, MIGRATIONS, ORDERS, PLACEMENTS
from headway.jobs.tables.settings import Experiment
from headway.runs.play import play


def specs() -> list[str]:
    """The policies of the sweep."""
    others = [*BACKFILLS, *PLACEMENTS, *MIGRATIONS]
    return [*ORDERS, *(f"fifo+{part}" for part in others if part not in ("none", "best-fit"))]


def check(tables: dict[str, dict[str, object]]) -> tuple[str, bool]:
    """One policy: a line of the table, and whether all was well."""
    scene = prepare(msgspec.convert(tables, Experiment))
    first, second = play(scene), play(scene)
    found = audit(
        scene.cluster,
        scene.jobs,
        first.tape,
        policy=scene.policy(),
        speed=scene.speed(),
        costs=scene.costs(),
        complete=True,
    )
    numbers = summarise(first.tape, scene.jobs, scene.cluster)
    same = first.tape.digest == second.tape.digest
    cells = [
        first.policy,
        f"{numbers.finished:,} of {len(scene.jobs):,}",
        f"{(numbers.jct_s.mean or 0) / 3600:.3f}",
        f"{numbers.wait_s.mean or 0:,.0f}",
        f"{100 * numbers.fragmentation_mean:.1f}",
        f"{numbers.preemptions:,}",
        f"{numbers.migrations:,}",
        f"{numbers.node_failures:,}",
        "clean" if not found else f"{len(found)} findings: {found[0]}",
        f"{first.tape.digest[:12]}{'' if same else ' DIFFERS'}",
    ]
    return f"| {' | '.join(cells)} |", same and not found and numbers.finished == len(scene.jobs)


def main() -> int:
    """Run the sweep, or the policies named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("trace")
    parser.add_argument("format")
    parser.add_argument("policies", nargs="*", help="instead of every part once")
    parser.add_argument("--nodes", type=int, default=80)
    parser.add_argument("--failures", help="mean time between failures of a node, e.g. 30d")
    parser.add_argument("--tenancy", default="pool")
    given = parser.parse_args()
    print("| policy | finished | JCT mean h | wait mean s | fragm. % | preempt. | moves | failures | audit | digest |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    well = True
    for spec in given.policies or specs():
        tables: dict[str, dict[str, object]] = {
            "trace": {"path": given.trace, "format": given.format, "skip_infeasible": given.tenancy != "pool"},
            "cluster": {"nodes": given.nodes, "gpus_per_node": 8, "tenancy": given.tenancy},
            "policy": {"name": spec},
            "failures": {"mtbf": given.failures} if given.failures else {},
        }
        line, good = check(tables)
        print(line, flush=True)
        well = well and good
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())

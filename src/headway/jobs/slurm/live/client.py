"""What headway asks of a Slurm, and has it do: looks at all jobs and nodes, and changes of single jobs."""

import secrets
from collections.abc import Mapping, Sequence

from headway.errors import SlurmError
from headway.jobs.slurm.live import rows
from headway.jobs.slurm.live.commands import Slurm
from headway.jobs.slurm.live.rows import JobRow, NodeRow
from headway.jobs.slurm.output.conf import settings


class SlurmClient:
    """Asks and changes jobs, one command each."""

    def __init__(self, slurm: Slurm | None = None) -> None:
        self._slurm = slurm or Slurm()

    # --- looking ----------------------------------------------------------------------------------------------

    def jobs(self) -> list[JobRow]:
        """Return all jobs that Slurm knows, of all users and partitions; those that ended for a while too.

        Fields end with a mark that is drawn anew each time: whatever a user writes into a name or a comment, it is
        read as that.
        """
        mark = f"|{secrets.token_hex(6)}|"
        wanted = ",".join(f"{field}:{mark}" for field in rows.FIELDS)
        printed = self._slurm.run("squeue", "--all", "--noheader", "--states=all", "--array-unique", "-O", wanted)
        return list(rows.jobs(printed.strip("\n"), mark))

    def nodes(self) -> list[NodeRow]:
        """Return all nodes with what is held of them."""
        return rows.nodes(self.nodes_text())

    def nodes_text(self) -> str:
        """Return what ``scontrol show node`` prints, for the parsers of files."""
        return self._slurm.run("scontrol", "show", "node", "-o")

    def partitions_text(self) -> str:
        """Return what ``scontrol show partition`` prints, for the parsers of files."""
        return self._slurm.run("scontrol", "show", "partition", "-o")

    def config(self) -> Mapping[str, str]:
        """Return the settings of the controller, by their names in lower case."""
        return settings(self.config_text())

    def config_text(self) -> str:
        """Return what ``scontrol show config`` prints, for the parsers of files."""
        return self._slurm.run("scontrol", "show", "config")

    def reservations_text(self) -> str:
        """Return what ``scontrol show reservation`` prints, for the parsers of files."""
        return self._slurm.run("scontrol", "show", "reservation", "-o")

    def rules_text(self, *what: str) -> str:
        """Return what ``sacctmgr show`` prints of some kind of rule, for the parsers of files."""
        return self._slurm.run("sacctmgr", "show", *what, "-P")

    def accounting(self, *options: str) -> str:
        """Return what ``sacct`` prints with some options, for the parsers of files."""
        return self._slurm.run("sacct", *options)

    # --- changing ---------------------------------------------------------------------------------------------

    def submit(self, options: Sequence[str], script: str) -> int:
        """Submit a batch script; return the number of the job."""
        printed = self._slurm.run("sbatch", "--parsable", *options, stdin=script).strip()
        number = printed.partition(";")[0]
        if not number.isdecimal():
            raise SlurmError(f"sbatch printed {printed[:80]!r}, which is no number of a job")
        return int(number)

    def update(self, job: int, values: Mapping[str, str]) -> None:
        """Set fields of a job."""
        self._slurm.run("scontrol", "update", f"JobId={job}", *(f"{key}={value}" for key, value in values.items()))

    def hold(self, job: int) -> None:
        """Keep a job that waits from starting."""
        self._slurm.run("scontrol", "hold", str(job))

    def release(self, job: int) -> None:
        """Let a job start that was held."""
        self._slurm.run("scontrol", "release", str(job))

    def requeue_held(self, job: int) -> None:
        """Put a job that runs, or has ended, back into the queue, held.

        Slurm lets it wait for its credential to expire, two minutes usually, unless its StartTime is set to now.
        """
        self._slurm.run("scontrol", "requeuehold", str(job))

    def signal(self, job: int, name: str, *, batch: bool) -> None:
        """Send a signal to the batch script alone, or to all processes of a job."""
        self._slurm.run("scancel", f"--signal={name}", "--batch" if batch else "--full", str(job))

    def cancel(self, job: int) -> None:
        """End a job for good."""
        self._slurm.run("scancel", str(job))

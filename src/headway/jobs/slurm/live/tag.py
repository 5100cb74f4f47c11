"""How jobs of Slurm are marked as headway's: in their comments.

``headway`` alone is a job that nobody has taken up. ``headway:QUEUE:JOB:LEASE`` is a job of a queue, with the last
lease that it was released for; what stands there is set together with the nodes, so that a queue that was killed knows
which of its orders Slurm has.
"""

from dataclasses import dataclass

FREE = "headway"
REFUSED, GIVEN_BACK = "headway-not-taken", "headway-given-back"
LOCK = "headway-lock"


@dataclass(frozen=True, slots=True)
class Tag:
    """Whose a job is."""

    queue: str
    job: int
    lease: int = 0
    """0: it was never released."""

    def __str__(self) -> str:
        return f"{FREE}:{self.queue}:{self.job}:{self.lease}"


def tag_of(comment: str) -> Tag | None:
    """Return the tag in a comment; None where no queue has taken the job."""
    kind, *rest = comment.split(":")
    if kind != FREE or len(rest) != 3 or not rest[0] or not (rest[1].isdecimal() and rest[2].isdecimal()):
        return None
    return Tag(rest[0], int(rest[1]), int(rest[2]))


def is_free(comment: str) -> bool:
    """Return whether a user has marked a job for headway, and nobody has taken it up."""
    return comment.strip() == FREE


@dataclass(frozen=True, slots=True)
class LockTag:
    """Who drives the jobs of a Slurm, in the comment of the job that says so."""

    queue: str
    where: str
    """Machine and process."""
    beat_s: int
    """When it was last there, in seconds since 1970."""

    def __str__(self) -> str:
        return f"{LOCK}:{self.queue}:{self.where}:{self.beat_s}"


def lock_of(comment: str) -> LockTag | None:
    """Return what the comment of a lock says; None where it is none."""
    parts = comment.split(":")
    if len(parts) != 4 or parts[0] != LOCK or not parts[3].isdecimal():
        return None
    return LockTag(parts[1], parts[2], int(parts[3]))

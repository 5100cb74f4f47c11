"""Give jobs back to Slurm, in the order in which the queue would have started them.

A requeue resets a job's submit time in Slurm, and with it its age there. What that costs is made up for by its nice
value: jobs of the front are raised where this user may do so; else those behind them are lowered, as every user may.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from headway.errors import SlurmError
from headway.jobs.slurm.live.board import Board
from headway.jobs.slurm.live.rows import JobRow
from headway.jobs.slurm.live.tag import GIVEN_BACK

GAP = 2
"""Between priorities: Slurm shows one of 0 as 1."""
_MOST_NICE = 2**31 - 3


@dataclass(slots=True)
class GivenBack:
    """A job that is Slurm's again."""

    job: int
    number: int
    """Slurm's."""
    lost_s: float = 0.0
    """Age that it lost in Slurm."""
    nice: int = 0
    problem: str = ""
    """Why it is still held; empty: it is not."""


def give_back(
    board: Board,
    started: Collection[int],
    waiting: Sequence[int],
    submitted_s: Sequence[float],
    mark: Callable[[int], None] = lambda job: None,
) -> list[GivenBack]:
    """Release jobs in their order, without nodes of their own, and take the tag off all; return those that wait.

    ``started``: those that the queue has started, which need not have begun. ``mark`` is called before each change.
    """
    board.look(now=True)
    early = [job for job in started if (found := board.of(job)) is not None and found[0].waits]
    given = []
    for job in (*early, *waiting):
        if board.of(job) is not None:
            mark(job)
            given.append(_released(board, job, submitted_s[job]))
    kept = {each.job for each in given}
    for job, (row, _) in board.own().items():
        if job not in kept and row.runs:
            mark(job)
            board.client.update(row.id, {"Comment": GIVEN_BACK})
    _keep_order(board, [each for each in given if not each.problem])
    return given


def _released(board: Board, job: int, submitted_s: float) -> GivenBack:
    found = board.of(job)
    assert found is not None
    row = found[0]
    given = GivenBack(job, row.id, max(0.0, round((row.submit_s or 0.0) - submitted_s)))
    try:
        if row.ended:
            board.client.requeue_held(row.id)
        board.client.update(row.id, {"StartTime": "now", "ReqNodeList": "", "Comment": GIVEN_BACK})
        board.client.release(row.id)
    except SlurmError as problem:
        given.problem = str(problem)
    return given


def _keep_order(board: Board, given: Sequence[GivenBack]) -> None:
    """Set nice values so that priorities fall along the list: by raising, where that is refused by lowering."""
    board.look(now=True)
    rows: list[tuple[GivenBack, JobRow]] = []
    for each in given:
        row = board.numbered(each.number)
        if row is not None and row.waits and row.priority:
            rows.append((each, row))
    natural = [row.priority for _, row in rows]
    for wanted in (raised(natural), lowered(natural)):
        try:
            for (each, row), before, after in zip(rows, natural, wanted, strict=True):
                each.nice = max(-_MOST_NICE, min(_MOST_NICE, before - after))
                if each.nice:
                    board.client.update(row.id, {"Nice": str(each.nice)})
        except SlurmError:
            continue
        return


def raised(priorities: Sequence[int]) -> list[int]:
    """Return priorities that fall along the list, none below what it was."""
    wanted: list[int] = []
    for priority in reversed(priorities):
        wanted.append(max(priority, wanted[-1] + GAP) if wanted else priority)
    return wanted[::-1]


def lowered(priorities: Sequence[int]) -> list[int]:
    """Return priorities that fall along the list, none above what it was."""
    wanted: list[int] = []
    for priority in priorities:
        wanted.append(min(priority, wanted[-1] - GAP) if wanted else priority)
    return wanted

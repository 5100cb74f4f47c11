"""Periodic checkpoints: after every ``every`` of work a job stands still for ``write`` on the GPUs that it holds.

The interval is work, as in frameworks that save every so many steps and as in Young's and Daly's formulas, where it is
useful computation: a slower job writes as often for the same steps. Checkpoints are due at multiples of the interval,
counted from the job's first work; a checkpoint at the very end is not written. Times count from where the job began to
make progress at its present speed; everything is integers and in closed form, so that a long job costs no more.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from headway.jobs.model.job import Job
from headway.units import REFERENCE_SPEED_PPM

MOST_WRITES = 1000
"""More writes of one stretch are merged into this many; their total time is exact."""


def useful(elapsed: int, done: int, speed: int, every: int, write: int) -> tuple[int, int]:
    """Return (time with progress, end of the write that began last; 0 when none began), within ``elapsed``."""
    ahead = every - done % every
    over = elapsed * speed - ahead * REFERENCE_SPEED_PPM
    if over < 0:
        return elapsed, 0
    before = over // (every * REFERENCE_SPEED_PPM + write * speed)  # writes that had ended when the last one began
    progress = -(-(ahead + before * every) * REFERENCE_SPEED_PPM // speed)
    written = ((done + progress * speed // REFERENCE_SPEED_PPM) // every - done // every) * write
    return max(progress, elapsed - written), progress + written


def duration(work: int, done: int, speed: int, every: int, write: int) -> int:
    """Return how long so much more work takes, checkpoint writes included."""
    progress = -(-work * REFERENCE_SPEED_PPM // speed)
    last = done + (progress - 1) * speed // REFERENCE_SPEED_PPM  # a nanosecond before it is done
    return progress + (last // every - done // every) * write


@dataclass(slots=True)
class Stretch:
    """A job with periodic checkpoints, running at one speed; used where a tape is read."""

    job: Job
    done: int = 0
    """Work delivered up to ``base``."""
    base: int = 0
    """The time from which it makes progress."""
    speed: int = 0

    def writes(self, until: int) -> Iterator[tuple[int, int]]:
        """Yield (begin, end) of each checkpoint write; the last one ends at ``until`` at the latest."""
        job, left = self.job, self.job.ends_after - self.done
        if until <= self.base or left <= 0:
            return
        every, write, speed = job.checkpoint_every, job.checkpoint, self.speed
        elapsed = min(until - self.base, duration(left, self.done, speed, every, write))
        ahead = every - self.done % every
        over = elapsed * speed - ahead * REFERENCE_SPEED_PPM
        begun = over // (every * REFERENCE_SPEED_PPM + write * speed) + 1 if over >= 0 else 0
        together = max(1, -(-begun // MOST_WRITES))
        for before in range(0, begun, together):
            last = min(before + together, begun)
            end = -(-(ahead + (last - 1) * every) * REFERENCE_SPEED_PPM // speed) + last * write
            begin = end - (last - before) * write
            if begin < min(end, elapsed):
                yield self.base + begin, self.base + min(end, elapsed)

    def settle(self, now: int) -> int:
        """Count the work done by now; return how long a write that is under way still takes."""
        if now <= self.base:
            return 0
        job = self.job
        spent, end = useful(now - self.base, self.done, self.speed, job.checkpoint_every, job.checkpoint)
        self.done += spent * self.speed // REFERENCE_SPEED_PPM
        self.base = max(now, self.base + end)
        return self.base - now

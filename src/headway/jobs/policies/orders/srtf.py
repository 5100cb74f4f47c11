"""Shortest remaining time first (Schrage 1968): preempts what would take longer for what would take less.

On one GPU with exact estimates it minimises the mean completion time; the tests prove it against brute force. What
remains is work left by the estimate, of running and waiting jobs alike: were a running job ranked by the time that it
takes where it is, two jobs on a slow GPU would each come before the other and swap for ever. While a job loads its
checkpoint it counts as making progress, so that what it loads is no reason to stop it again.

A job that does not fit is skipped, as in the code of Tiresias ("shortest") and Helios; ``none`` makes it block, as
Blox does. With ``gpu_time`` what remains counts times GPUs (Tiresias' "shortest-gpu", SRSF). Of equal jobs one that
runs keeps its GPUs; among waiting ones the first submitted comes first.
"""

from headway.jobs.policies.parts import Order
from headway.jobs.state.jobstate import JobState
from headway.jobs.state.queue import Key
from headway.units import REFERENCE_SPEED_PPM


class Srtf(Order):
    """By remaining time, with preemption."""

    name = "srtf"
    preempts = True
    backfill = "fit"
    starves = True

    def __init__(self, gpu_time: bool = False) -> None:
        self.gpu_time = gpu_time

    def key(self, now: int, js: JobState) -> Key:
        """Work left by the estimate, in millionths of a nanosecond."""
        left = js.remaining(now) * REFERENCE_SPEED_PPM
        return left * (js.width or 1) if self.gpu_time else left

    def rank(self, now: int, js: JobState) -> tuple[int, Key]:
        """Work left shrinks at the job's speed; never above the key that it would wait with."""
        speed = js.speed
        left = js.remaining(now) * REFERENCE_SPEED_PPM + now * speed
        if self.gpu_time:
            weight = js.width or 1
            return -speed * weight, left * weight
        return -speed, left

"""A job as Synergy's tune sees it while nodes are divided (Mohan et al., OSDI 2022): where it is, what it holds, what
it would like and what it is due."""

from dataclasses import dataclass

from headway.training.actions import Grant, Placement
from headway.training.jobstate import JobState


@dataclass(slots=True)
class Held:
    """A job on its nodes, with what it holds, would like and is due."""

    js: JobState
    placement: Placement
    full: Grant
    due: Grant
    grant: Grant

    @property
    def order(self) -> tuple[int, int, int, int]:
        """Larger demands first: GPUs, CPUs, memory."""
        return -self.js.gpus, -self.full.cpu_milli, -self.full.memory_bytes, self.js.id

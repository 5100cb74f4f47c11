"""What a serving tape says: latency, slow-down, deadlines, cache hits, memory, cost; one flat summary.

Everything is a pure function of a tape, its workload, its catalogue and its fleet. ``Ledger(catalogue, fleet,
requests, tape)`` takes the tape apart once; ``summarise`` takes the four things themselves.
"""

from headway.metrics.serving.cost import Costs, costs
from headway.metrics.serving.ledger import Ledger
from headway.metrics.serving.little import little
from headway.metrics.serving.summary import critical_paths, messages, summarise

__all__ = ["Costs", "Ledger", "costs", "critical_paths", "little", "messages", "summarise"]

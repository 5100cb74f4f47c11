"""Plans of Aquatope as the text of an option, so that a search before the run need not be repeated.

``0@206ms:1/2/1+1/1/3;1@none:1/1/1`` is a plan for graph 0 and requests with 206 ms until their deadline, whose two
tasks get batch/CPUs/slices of 1/2/1 and 1/1/3, and one for graph 1 and requests without a deadline.
"""

import re
from collections.abc import Mapping, Sequence

from headway.errors import ExperimentError
from headway.fleet.model.catalogue import Configuration
from headway.fleet.policies.central.fronts import NEVER
from headway.units import exact_duration, parse_duration

Plans = Mapping[tuple[int, int], Sequence[Configuration]]
"""By graph and target: the configuration of each task."""
_NO_DEADLINE = "none"
_PLAN = re.compile(r"(\d+)@(\w+):(\d+/\d+/\d+(?:\+\d+/\d+/\d+)*)", re.ASCII)


def written(plans: Plans) -> str:
    """Return plans as text."""
    return ";".join(
        f"{graph}@{exact_duration(target) if target < NEVER else _NO_DEADLINE}:"
        + "+".join("/".join(map(str, size)) for size in sizes)
        for (graph, target), sizes in plans.items()
    )


def parsed(text: str) -> Plans:
    """Return the plans of a text."""
    plans = {}
    for part in text.split(";") if text else ():
        if (matched := _PLAN.fullmatch(part.strip())) is None:
            rule = "write graph@target:batch/cpus/slices+..., or leave plans out, and they are searched"
            raise ExperimentError(f"policy aquatope: option plans: {part.strip()[:60]!r} is not understood; {rule}")
        graph, until, sizes = matched.groups()
        what = f"policy aquatope: option plans: target of graph {graph}"
        target = NEVER if until == _NO_DEADLINE else parse_duration(until, what=what)
        plans[int(graph), target] = [Configuration(*map(int, size.split("/"))) for size in sizes.split("+")]
    return plans

"""Measure on this machine once what several runs share: how long a policy's decisions take.

Runs that ask for a measurement and agree in all that it depends on get the same numbers, those of the first of them.
"""

from collections.abc import MutableMapping
from typing import Any

from headway.runs.blame import own_code
from headway.runs.domain import with_table
from headway.runs.identity import digest
from headway.runs.registry import domain_of

Known = MutableMapping[str, str]
"""What was measured, by the digest of what it depends on: settings, the contents of files, and the code."""


def with_measured(experiment: Any, known: Known) -> Any:
    """Return an experiment with numbers for what is to be measured; what is new is measured, and added to ``known``."""
    domain = domain_of(experiment)
    if (about := domain.to_measure(experiment)) is None:
        return experiment
    table, _, name = domain.measured_key.partition(".")
    if (key := digest(about)) not in known:
        with own_code():
            known[key] = str(getattr(getattr(domain.prepare(experiment).experiment, table), name))
    return with_table(experiment, table, **{name: known[key]})

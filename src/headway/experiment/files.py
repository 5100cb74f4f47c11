"""Read experiment files: one experiment, or one for each of its variants, of whatever scale the file names."""

import json
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from headway.errors import ExperimentError
from headway.experiment import common_flags
from headway.experiment.domain import Domain
from headway.experiment.given import put_settings
from headway.experiment.registry import DOMAINS, domain, domain_of
from headway.formats import toml

Named = tuple[str, Any]
"""What a run is called, '' for its policy; and its experiment."""


def read(path: str | PathLike[str], overrides: Any = (), **settings: Any) -> list[Named]:
    """Return the experiments of a TOML file by name, with some settings changed that every scale has."""
    document = toml.read(Path(path))
    put_settings(document, common_flags.ALL, {**settings, "set": overrides})
    return list(variants(document, str(path)))


def scale_of(document: toml.Document, where: str) -> Domain:
    """Return the scale that a document names."""
    if "scale" not in document:
        raise ExperimentError(f'{where}: does not say what is scheduled: add scale = "jobs" ({", ".join(DOMAINS)})')
    return domain(str(document["scale"]))


def typed(document: toml.Document, where: str) -> Any:
    """Return a document as the tables of its scale."""
    return toml.typed(document, scale_of(document, where).tables, where)


def variants(document: toml.Document, where: str) -> Iterator[Named]:
    """Read a document as experiments: itself, or itself with the keys that each variant sets."""
    whole = typed(document, where)
    if not whole.variants:
        yield "", whole
    for variant in whole.variants:
        changed = copied(document)
        del changed["variants"]
        for key, value in toml.leaves(variant.set):
            toml.put(changed, key, value)
        yield variant.name, typed(changed, f"{where}, variant {variant.name!r}")


def under_each(document: toml.Document, policies: Sequence[str], where: str = "settings") -> list[Named]:
    """Return the same experiment under each policy; none of headway's own may come twice, however it is written."""
    experiments = []
    known: dict[str, str] = {}
    for policy in policies:
        changed = copied(document)
        toml.put(changed, "policy.name", policy)
        experiment = typed(changed, where)
        if ":" not in policy:
            same = known.setdefault(domain_of(experiment).policy_name(experiment), policy)
            if same is not policy:
                raise ExperimentError(f"policies: {policy} is the same as {same}; name each once")
        experiments.append(("", experiment))
    return experiments


def copied(document: toml.Document) -> toml.Document:
    """Return a copy that shares nothing with the original."""
    copy: toml.Document = json.loads(json.dumps(document))
    return copy

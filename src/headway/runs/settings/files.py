"""Read experiment files: one experiment, or one for each of its variants, of whatever scale the file names."""

import json
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from headway.core.tape import SCHEMA_VERSION
from headway.errors import ExperimentError, TapeError
from headway.formats import toml
from headway.plugins import SITE
from headway.runs.domain import Domain
from headway.runs.registry import DOMAINS, domain, domain_of
from headway.runs.settings import common_flags
from headway.runs.settings.python_input import put_settings

Named = tuple[str, Any]
"""What a run is called, '' for its policy; and its experiment."""


def read(path: str | PathLike[str], overrides: Any = (), **settings: Any) -> list[Named]:
    """Return the experiments of a TOML file by name, with some settings changed that every scale has."""
    document = toml.read(Path(path))
    if "version" in document:
        _again(document, Path(path))
    put_settings(document, common_flags.ALL, {**settings, "set": overrides})
    return list(variants(document, str(path)))


def check_version(document: toml.Document, where: str) -> None:
    """Take the version of a run folder out of its experiment; one that this headway does not read is refused."""
    version = document.pop("version", None)
    if version != SCHEMA_VERSION:
        said = "no version" if version is None else f"version {version!r}"
        raise TapeError(
            f"{where}: has {said}, and this headway reads version {SCHEMA_VERSION}: run the experiment again"
        )


def _again(document: toml.Document, path: Path) -> None:
    """Make the experiment of a run folder one to run again: with the files beside it, into no folder unless told."""
    check_version(document, str(path))
    keys = scale_of(document, str(path)).file_keys
    for key, value in list(toml.leaves(document)):
        if key in keys and isinstance(value, str) and value and (path.parent / value).is_file():
            toml.put(document, key, str((path.parent / value).resolve()))
    toml.put(document, "run.out", "")


def scale_of(document: toml.Document, where: str) -> Domain:
    """Return the scale that a document names."""
    if "scale" not in document:
        if "graphs" in document and "functions" in document:
            raise ExperimentError(f"{where}: is a scenario, not an experiment: headway fleet simulate {where}")
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
        for first, value in variant.set.items():  # a name with dots is a key that is written in one
            for key, leaf in toml.leaves(value, f"{first}.") if isinstance(value, dict) else ((first, value),):
                toml.put(changed, key, leaf)
        yield variant.name, typed(changed, f"{where}, variant {variant.name!r}")


def for_each_policy(document: toml.Document, policies: Sequence[str], where: str = "settings") -> list[Named]:
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
        experiments.append((called(policy), experiment))
    return experiments


def called(policy: str) -> str:
    """Return what a run is called whose policy is read from a site's settings: as it was asked for, and not in full."""
    if not policy.startswith(SITE):
        return ""
    named = policy.removeprefix(SITE)
    path = named.partition("+")[0].partition("(")[0]  # options may hold slashes
    return f"{SITE}{Path(path).name}{named[len(path) :]}"


def labelled(experiments: Sequence[Named], labels: Sequence[str]) -> list[Named]:
    """Return runs under other names, in their order; those beyond the last name keep theirs."""
    if len(labels) > len(experiments):
        runs = "is 1 run" if len(experiments) == 1 else f"are {len(experiments)} runs"
        raise ExperimentError(f"--label {labels[len(experiments)]}: there {runs} to name")
    for index, label in enumerate(labels):
        if not label.strip() or label in labels[:index]:
            raise ExperimentError(f"--label {label!r}: give each run a name of its own")
    return [(label, each) for label, (_, each) in zip(labels, experiments, strict=False)] + list(
        experiments[len(labels) :]
    )


def copied(document: toml.Document) -> toml.Document:
    """Return a copy that shares nothing with the original."""
    copy: toml.Document = json.loads(json.dumps(document))
    return copy

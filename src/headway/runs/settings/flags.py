"""Describe the settings of an experiment once, for the command line and for Python.

``Flag("preemption_cost", "costs.preemption", …)`` is ``--preemption-cost 30s`` in a shell, ``preemption_cost="30s"`` in
Python and ``costs.preemption`` in an experiment file. Whatever has no flag is set by its key: ``--set KEY=VALUE``.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headway.errors import ExperimentError, unknown_name

if TYPE_CHECKING:
    from headway.formats import toml


@dataclass(frozen=True, slots=True)
class Flag:
    """One setting: its name, its key in an experiment file, and what to say about it."""

    name: str
    key: str
    help: str
    kind: Any = str
    panel: str = ""
    """Of the help; empty for the flags that matter most."""
    metavar: str = ""
    spelled: str = ""
    """On the command line, where that is not its name with dashes."""
    several: bool = False
    """Whether a text holds several values with commas between them."""
    needs: tuple[str, ...] = ()
    """Of a table that is written as text, ``mtbf=30d,repair=4h``: one of these keys must be there."""
    beside: tuple[str, ...] = ()
    """And these may be."""
    least: float | None = None
    most: float | None = None
    choices: Callable[[Any], Mapping[str, list[Any]]] | None = None
    """Of keys that the value itself names: reads it into values to choose from, by key. A sweep takes several."""

    @property
    def option(self) -> str:
        """Return it as it is written in a shell."""
        return self.spelled or f"--{self.name.replace('_', '-')}"


def document_of(flags: Iterable[Flag], given: Mapping[str, Any]) -> "toml.Document":
    """Return the tables that some settings stand for; None means: not given."""
    from headway.formats import toml  # where it is needed: the flags themselves need no msgspec

    document: toml.Document = {}
    known = {flag.name: flag for flag in flags}
    for name, value in given.items():
        if name not in known:
            raise ExperimentError(unknown_name("setting", name, known))
        flag = known[name]
        if value is None:
            continue
        if isinstance(value, str) and not value.strip():
            raise ExperimentError(f"{flag.option} is empty: give it a value, or leave it out")
        if flag.choices is not None:
            for key, each in one_of_each(flag.option, flag.choices(value)).items():
                toml.put(document, key, each)
            continue
        if flag.several and isinstance(value, str):
            value = split_policies(value, "a,b", flag.name)
        if flag.needs and isinstance(value, str):
            value = split_pairs(value, flag.name)
            _check_keys(flag, value)
        put(document, flag.key, [value] if flag.kind is list and isinstance(value, str) else value)
    return document


def one_of_each(option: str, found: Mapping[str, list[Any]]) -> dict[str, Any]:
    """Return the value of each key that a flag names; several are for those who try several."""
    for key, values in found.items():
        if len(values) > 1:
            raise ExperimentError(f"{option}: {key} has {len(values)} values; sweep and jobs tune take several")
    return {key: values[0] for key, values in found.items()}


def _check_keys(flag: Flag, given: Mapping[str, Any]) -> None:
    """Refuse a table without what it needs, or with something else."""
    known = (*flag.needs, *flag.beside)
    for name in given:
        if name not in known:
            raise ExperimentError(f"{flag.name}: {unknown_name('key', name, known)}, e.g. mtbf=30d,repair=4h")
    if not any(name in given for name in flag.needs):
        raise ExperimentError(f"{flag.name} needs {' or '.join(flag.needs)}, e.g. mtbf=30d,repair=4h")


def split_policies(text: str, example: str = "fifo,srtf+easy", what: str = "policies") -> list[str]:
    """Return policies, or other values, between commas, none twice; commas inside brackets belong to options."""
    names = [spec.strip() for spec in re.split(r",(?![^()]*\))", text)]
    if not all(names):
        raise ExperimentError(f"{what} {text!r} is not understood: write it like {example}")
    for index, spec in enumerate(names):
        if spec in names[:index]:
            raise ExperimentError(f"{what} {text!r}: {spec} is named twice; name each once")
    return names


def split_values(text: str, what: str = "values") -> list[Any]:
    """Return values between commas, each as TOML, or plain text where it is none."""
    from headway.formats import toml

    return [toml.value_of(piece) for piece in split_policies(text, "0.8,1.0", what)]


def put(document: "toml.Document", key: str, value: Any) -> None:
    """Set one key, or the keys of a table that is written as text: ``mtbf=30d,repair=4h``."""
    from headway.formats import toml

    if key.endswith(".*"):
        table = key.removesuffix(".*")
        pairs = value if isinstance(value, Mapping) else split_pairs(str(value), table)
        for name, each in pairs.items():
            toml.put(document, f"{table}.{name}", each)
    else:
        toml.put(document, key, value)


def split_pairs(text: str, table: str) -> dict[str, str]:
    """Read ``mtbf=30d,repair=4h`` as the keys of a table; the table's own types say which keys there are."""
    given: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not name or not equals or not value:
            wrong = f"{name} has no value" if name and equals else f"{part.strip()!r} is not understood"
            raise ExperimentError(f"{table} {text!r}: {wrong}: write it like mtbf=30d,repair=4h")
        if name in given:
            raise ExperimentError(f"{table} {text!r}: {name} is given twice")
        given[name] = value
    return given

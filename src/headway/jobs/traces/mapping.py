"""Parse the mapping of a generic table: which column is which field of a job, in what unit, and what its values mean.

``submit=queued:ms,start=began,end=ended:blank=edge,gpus=1,memory=ram:gib,outcome=status:done=completed,gone=cancelled``

A part is ``field=column``, with ``:`` and what there is to say about its cells after it, or ``field=value`` for the
same value in every row: a number as it stands, text in single quotes. A name that is a column of the file is that
column, whatever else it could be. Parts after an outcome that say what a word means belong to it.
"""

import csv
import dataclasses
import re
from collections.abc import Collection, Mapping
from pathlib import Path

from headway.errors import ExperimentError, TraceError, unknown_name
from headway.jobs.model.job import Outcome
from headway.units import DAY, HOUR, MICROSECOND, MILLISECOND, MINUTE, SECOND

EXAMPLE = "submit=timestamp,work=duration,gpus=num_gpus"
TIME_UNITS = {
    "ns": 1, "us": MICROSECOND, "ms": MILLISECOND, "s": SECOND, "min": MINUTE, "h": HOUR, "d": DAY,
}  # fmt: skip
SIZE_UNITS = {
    "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
GPU_UNITS = {"gpus": 1000, "percent": 10, "milli": 1}
CPU_UNITS = {"cpus": 1000, "percent": 10, "milli": 1}
_WORDS = {
    Outcome.FINISHES: "finishes finish finished completed complete completes success succeed succeeds succeeded "
    "successful pass passed done ok okay 0 0.0 0:0",
    Outcome.FAILS: "fails failed fail failure error errored timeout timed_out deadline node_fail boot_fail "
    "out_of_memory oom oom_killed oomkilled crash crashed",
    Outcome.CANCELLED: "cancelled canceled cancel killed kill stopped aborted abort terminated revoked preempted "
    "evicted deleted interrupted",
}
STATES = {word: int(outcome) for outcome, words in _WORDS.items() for word in words.split()}
"""The words for outcomes that need no explanation, as ``plain`` writes them."""
_MEANINGS = {word: STATES[word] for word in ("completed", "finishes", "failed", "fails", "cancelled", "canceled")}
FLAGS = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}
EDGE = "blank=edge"

_FIELDS = {
    "moment": "submit start end",
    "span": "work estimate checkpoint restore checkpoint_every outcome_after patience",
    "gpus": "gpus",
    "whole": "gpu_milli nodes retries",
    "any whole": "priority",
    "cpus": "cpus",
    "size": "memory",
    "share": "communication",
    "flag": "preemptible",
    "state": "outcome",
    "text": "name tenant user partition qos model gpu_types reservation",
}
KINDS = {field: kind for kind, fields in _FIELDS.items() for field in fields.split()}
"""What may be mapped, and how its cells are read."""
_UNITS = {"moment": TIME_UNITS, "span": TIME_UNITS, "size": SIZE_UNITS, "gpus": GPU_UNITS, "cpus": CPU_UNITS}
_ALIASES = {"memory_bytes": "memory"}
_WITH_EDGE = ("start", "end")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_CONSTANT = re.compile(rf"(?P<number>{_NUMBER.pattern})(?::(?P<unit>.*))?|'(?P<text>[^']*)'(?::(?P<said>.*))?")


@dataclasses.dataclass(frozen=True, slots=True)
class Mapped:
    """One field, where it is read from, and what was said about the cells there."""

    field: str
    column: str
    unit: int = 0
    """Of numbers; 0: what is usual."""
    constant: str | None = None
    """The same cell in every row. ``column`` is then none of the file."""
    words: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """What the map says that words mean, for an outcome."""
    edge: bool = False
    """A blank cell is the edge of the record: the job had begun before it, or went on after it."""

    @property
    def kind(self) -> str:
        """Return how its cells are read."""
        return KINDS[self.field]


def plain(word: str) -> str:
    """Write a word in lower case, with one ``_`` for blanks, dashes and underlines."""
    return re.sub(r"[\s_-]+", "_", word.strip().lower())


def mapping(text: str, columns: Collection[str], path: Path) -> dict[str, Mapped]:
    """Read a map against the columns of a file, by field; a part with a comma in a name stands in double quotes."""
    fields: dict[str, Mapped] = {}
    for part in _parts(text):
        target, equals, source = (piece.strip() for piece in part.partition("="))
        if not equals or not target or not source:
            raise ExperimentError(f"map {part!r} is not understood: write field=column, e.g. {EXAMPLE}")
        each = _mapped(target, source, columns, path)
        if each.field in fields:
            raise ExperimentError(f"map: field {each.field!r} is given twice")
        fields[each.field] = each
    return _complete(fields)


def _parts(text: str) -> list[str]:
    """Return the parts of a map; those that go on with the words of an outcome are put together again."""
    try:
        pieces = next(csv.reader([text], skipinitialspace=True), [])
    except csv.Error as problem:
        raise ExperimentError(f"map {text[:60]!r} is not understood: {problem}") from None
    parts: list[str] = []
    for piece in pieces:
        if parts and _is_word(piece) and re.match(r"\s*outcome\s*=[^=]*:", parts[-1]):
            parts[-1] += f",{piece}"
        else:
            parts.append(piece)
    return parts


def _is_word(piece: str) -> bool:
    """Return whether this says what a word means, and maps no field."""
    word, _, meaning = (part.strip() for part in piece.rpartition("="))
    return plain(meaning) in _MEANINGS and word.partition(":")[0].strip() not in KINDS


def _mapped(target: str, source: str, columns: Collection[str], path: Path) -> Mapped:
    name, colon, unit = (piece.strip() for piece in target.partition(":"))
    name = _ALIASES.get(name, name)
    if name not in KINDS:
        raise ExperimentError(f"map: {unknown_name('field', name, KINDS)}")
    column, constant, said = _source(name, source, columns, path)
    if KINDS[name] == "state":
        words = _meanings(said, source) if said else {}
        return Mapped(name, column, _unit(name, [unit] if colon else []), constant, words)
    notes = [*([unit] if colon else []), *(note.replace(" ", "") for note in said.split(":") if said)]
    edge = name in _WITH_EDGE and EDGE in notes
    return Mapped(name, column, _unit(name, [note for note in notes if note != EDGE or not edge]), constant, edge=edge)


def _source(name: str, text: str, columns: Collection[str], path: Path) -> tuple[str, str | None, str]:
    """Return a column, or a constant in place of one, and what is said about it."""
    colons = [at for at, letter in enumerate(text) if letter == ":"]
    for at in (len(text), *reversed(colons)):
        if (column := text[:at].strip()) in columns:
            return column, None, text[at + 1 :].strip()
    kind, match = KINDS[name], _CONSTANT.fullmatch(text)
    if match and match["text"] is not None:
        return f"\x00{name}", match["text"], (match["said"] or "").strip()
    if match and kind not in ("text", "state"):
        return f"\x00{name}", match["number"], (match["unit"] or "").strip()
    if kind == "flag" and text.lower() in FLAGS:
        return f"\x00{name}", text, ""
    shown = text[: colons[0]].strip() if colons else text
    hint = f"; one for all rows is quoted: {name}='{shown}'" if kind == "text" else ""
    raise TraceError(f"trace {path}: map: {unknown_name('column', shown, columns)}{hint}")


def _unit(name: str, units_given: list[str]) -> int:
    units = _UNITS.get(KINDS[name])
    if not units_given:
        return 0
    if units is None:
        raise ExperimentError(f"map: field {name!r} takes no unit ({units_given[0]!r})")
    if len(units_given) > 1:
        raise ExperimentError(f"map: field {name!r} is given two units, {units_given[0]!r} and {units_given[1]!r}")
    if units_given[0].lower() not in units:
        valid = [*units, EDGE] if name in _WITH_EDGE else units
        raise ExperimentError(f"map: {unknown_name(f'unit of {name}', units_given[0], valid)}")
    return units[units_given[0].lower()]


def _meanings(said: str, source: str) -> dict[str, int]:
    """Parse ``done=completed,killed=cancelled`` into outcomes by word."""
    meanings: dict[str, int] = {}
    for part in said.split(","):
        word, equals, meaning = (piece.strip() for piece in part.rpartition("="))
        if not equals or not word:
            raise ExperimentError(
                f"map {source!r}: {part!r} is not understood: write word=completed, failed or cancelled"
            )
        if plain(meaning) not in _MEANINGS:
            raise ExperimentError(
                f"map {source!r}: {meaning!r} is no outcome: write {word}=completed, failed or cancelled"
            )
        if plain(word) in meanings:
            raise ExperimentError(f"map {source!r}: the word {word!r} is given twice")
        meanings[plain(word)] = _MEANINGS[plain(meaning)]
    return meanings


def _complete(fields: dict[str, Mapped]) -> dict[str, Mapped]:
    work, edges = "work" in fields, {"start", "end"} & set(fields)
    rules = (
        ("submit" not in fields, f"field 'submit' is missing, e.g. {EXAMPLE}"),
        (work and edges, "give work, or start and end, not both"),
        (not work and len(edges) < 2, "field 'work' is missing (or start and end, whose difference it is)"),
        ("gpus" not in fields and "cpus" not in fields, "field 'gpus' is missing (or cpus, for jobs without GPUs)"),
    )
    for broken, rule in rules:
        if broken:
            raise ExperimentError(f"map: {rule}")
    return fields

"""TOML in and out: keys and values are checked by name, and what is written reads back equal."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from headway.errors import ExperimentError
from headway.formats import toml
from headway.jobs.tables.settings import Experiment


@pytest.mark.parametrize(
    ("document", "line"),
    [
        ({"polcy": {}}, "unknown table or key 'polcy'; did you mean 'policy'?"),
        ({"policy": {"nme": 1}}, "unknown key of [policy] 'nme'; did you mean 'name'?"),
        ({"cluster": {"tenants": [{"name": "a", "wieght": 2}]}}, "did you mean 'weight'?"),
        ({"trace": {"synthetic": {"jbs": 2}}}, "unknown key of [trace.synthetic] 'jbs'; did you mean 'jobs'?"),
        ({"cluster": {"nodes": "many"}}, "cluster.nodes is 'many': expected a whole number, got text"),
        ({"cluster": 3}, "cluster is 3: expected a table, got a whole number"),
        ({"cluster": {"levels": [{"bandwidth": "1GB/s"}]}}, "cluster.levels[0]: key 'name' is missing"),
    ],
)
def test_a_wrong_key_is_one_line_that_names_it(document: dict[str, Any], line: str) -> None:
    with pytest.raises(ExperimentError) as caught:
        toml.typed(document, Experiment, "e.toml")
    assert line in str(caught.value)
    assert str(caught.value).startswith("e.toml: ")


def test_a_name_with_dots_stands_in_quotes() -> None:
    document: dict[str, Any] = {}
    toml.put(document, 'cluster.rules."qos a.b".MaxTRESPU', 1)
    toml.put(document, "cluster.nodes", 2)
    assert document == {"cluster": {"rules": {"qos a.b": {"MaxTRESPU": 1}}, "nodes": 2}}
    again: dict[str, Any] = {}
    for key, value in toml.leaves(document):
        toml.put(again, key, value)
    assert again == document


def test_override_takes_toml_or_plain_text() -> None:
    document: toml.Document = {"policy": {"name": "fifo"}}
    for text in ("policy.name=srtf", "a.b.c=3", "x=[1, 2]", "y=true", "z=1.5", 'q="quoted"'):
        toml.override(document, text)
    assert document == {
        "policy": {"name": "srtf"}, "a": {"b": {"c": 3}}, "x": [1, 2], "y": True, "z": 1.5, "q": "quoted",
    }  # fmt: skip
    for wrong in ("nothing", "=3", "policy.name.deeper=3"):
        with pytest.raises(ExperimentError):
            toml.override(document, wrong)


_LEAVES = st.one_of(st.text(), st.integers(-(2**60), 2**60), st.booleans(), st.floats(allow_nan=False))
_TABLES = st.recursive(
    st.dictionaries(st.text(max_size=8), _LEAVES, max_size=4),
    lambda inner: st.dictionaries(
        st.text(max_size=8), inner | _LEAVES | st.lists(inner | _LEAVES, max_size=3), max_size=4
    ),
    max_leaves=12,
)


def test_values_that_no_key_can_have_are_text_and_what_toml_cannot_hold_is_too(tmp_path: Path) -> None:
    document: dict[str, Any] = {}
    digits, deep = "9" * 5000, "[" * 2000
    for text in ("a=1979-05-27", "b=07:32:00", "c=[1979-05-27T07:32:00]", f"d={digits}", f"e={deep}"):
        toml.override(document, text)
    assert document == {"a": "1979-05-27", "b": "07:32:00", "c": ["1979-05-27T07:32:00"], "d": digits, "e": deep}
    path = tmp_path / "mine.toml"
    path.write_text("[policy]\nname = 1979-05-27\n")
    assert toml.read(path) == {"policy": {"name": "1979-05-27"}}
    path.write_text(f"a = {deep}")
    with pytest.raises(ExperimentError, match="cannot be read \\(tables or lists are nested too deep\\)"):
        toml.read(path)


def test_text_with_a_nul_is_refused_wherever_it_stands() -> None:
    with pytest.raises(ExperimentError, match=r"test: run.out is 'a\\x00b': must not hold the character NUL"):
        toml.typed({"run": {"out": "a\0b"}}, Experiment, "test")


@settings(max_examples=40)
@given(document=_TABLES)
def test_what_is_written_as_toml_reads_back_equal(document: dict[str, Any]) -> None:
    assert tomllib.loads(toml.write(document)) == document

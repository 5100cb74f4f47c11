"""What travels to a server and back: JSON and bytes; arrays as lists; nothing else."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from headway.errors import ServeError
from headway.fleet.live.doors.values import MOST_ELEMENTS, from_json, plain, to_json

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=20,
)


def _is_bytes_form(value: Any) -> bool:
    """Whether a value holds the object that stands for bytes."""
    if isinstance(value, dict):
        return set(value) == {"base64"} or any(map(_is_bytes_form, value.values()))
    return isinstance(value, list) and any(map(_is_bytes_form, value))


@given(PLAIN.filter(lambda value: not _is_bytes_form(value)))
def test_a_value_comes_back_from_json_as_it_was(value: Any) -> None:
    assert plain(value) == value
    assert from_json(to_json(plain(value))) == value


@dataclass
class Point:
    x: int
    at: Any


def test_arrays_tuples_and_dataclasses_become_lists_and_dicts() -> None:
    value = {"a": np.arange(4).reshape(2, 2), 1: (np.float32(0.5), bytearray(b"x")), "p": Point(3, np.ones(2))}
    assert plain(value) == {"a": [[0, 1], [2, 3]], "1": [0.5, b"x"], "p": {"x": 3, "at": [1.0, 1.0]}}


def test_a_tensor_becomes_a_list() -> None:
    torch = pytest.importorskip("torch")
    assert plain([torch.tensor([1, 2])]) == [[1, 2]]


def test_bytes_are_an_object_with_one_key() -> None:
    assert to_json([b"\x00\xff"]) == b'[{"base64":"AP8="}]'
    assert from_json(b'{"\\u0062ase64": "AP8="}') == b"\x00\xff"
    assert from_json(b'{"base64": "AP8=", "more": 1}') == {"base64": "AP8=", "more": 1}


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (np.zeros(MOST_ELEMENTS + 1), "1,000,001 elements is too large"),
        (object(), "a object does not travel"),
        ({(1, 2): 3}, "a dict with a tuple as a key"),
        ([open], "does not travel"),
    ],
)
def test_what_does_not_travel_is_named(value: Any, line: str) -> None:
    with pytest.raises(ServeError, match=line):
        plain(value)


def test_a_value_that_holds_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(ServeError, match="nested too deeply"):
        plain(value)


@pytest.mark.parametrize("text", [b"", b"{", b"NaN", b'"\xff"', b"[" * 100_000, b'{"base64": "*"}', b"1 2"])
def test_what_is_not_json_is_one_line(text: bytes) -> None:
    with pytest.raises(ServeError) as refused:
        from_json(text)
    assert "\n" not in str(refused.value)

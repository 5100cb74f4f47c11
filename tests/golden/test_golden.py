"""Decisions change only on purpose: see ``regenerate.py`` for what to do when they should."""

import json

import pytest

from tests.golden.regenerate import DIGESTS, digest_of, names

HINT = "other decisions than before; if that is meant: python -m tests.golden.regenerate, and say why in the commit"


@pytest.mark.parametrize("name", names())
def test_a_golden_tape_is_the_same(name: str) -> None:
    assert digest_of(name) == json.loads(DIGESTS.read_text())[name], f"{name}: {HINT}"


def test_the_file_holds_nothing_else() -> None:
    assert sorted(json.loads(DIGESTS.read_text())) == sorted(names())

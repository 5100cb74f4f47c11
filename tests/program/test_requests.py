"""Marked requests: outside of a shared run they do nothing, and cost next to nothing."""

import ctypes

import pytest

import headway
from headway.program import requests


def test_outside_of_a_shared_run_a_mark_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "_marks", False)
    with headway.request(), headway.request() as inner:
        assert inner is not None
    assert requests._marks is None, "looked for once, and not there"
    with pytest.raises(ZeroDivisionError), headway.request():
        _ = 1 // 0


def test_in_a_shared_run_it_begins_and_ends_also_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    class Process:
        def headway_request_begin(self) -> None:
            said.append("begin")

        def headway_request_end(self) -> None:
            said.append("end")

    monkeypatch.setattr(requests, "_marks", False)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Process())
    with headway.request():
        said.append("work")
    with pytest.raises(ValueError, match="broken"), headway.request():
        raise ValueError("broken")
    assert said == ["begin", "work", "end", "begin", "end"]

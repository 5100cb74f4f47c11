"""What is sent to a server under test: its graphs, inputs and deadlines, from the command line or a trace."""

from pathlib import Path
from typing import Any

import pytest

from headway.errors import InputError
from headway.fleet.live.load.plan import plan_of
from headway.fleet.live.load.sender import Plan
from headway.units import SECOND

SAMPLES = Path(__file__).resolve().parents[3] / "samples"
STATUS = {
    "graphs": ["answer", "summary"],
    "examples": {"answer": "why?"},
    "slo_ns": {"answer": 600_000_000},
}


def planned(*graphs: str, notes: list[str] | None = None, status: Any = STATUS, **changes: Any) -> Plan:
    settings = {"arrivals": "uniform", "rate": 10.0, "duration": 2 * SECOND, "seed": 0, **changes}
    return plan_of(status, graphs, notes=[] if notes is None else notes, **settings)


def test_graphs_are_drawn_evenly_and_the_same_for_a_seed() -> None:
    plan = planned(rate=1000.0)
    assert len(plan.times) == len(plan.graphs) == 2000
    assert 0.4 < plan.graphs.count("answer") / 2000 < 0.6
    assert planned(rate=1000.0).graphs == plan.graphs != planned(rate=1000.0, seed=1).graphs
    assert set(planned("summary").graphs) == {"summary"}


def test_inputs_are_those_of_a_file_for_the_graph_or_for_all_else_the_example(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text('"one"')
    (tmp_path / "two.jsonl").write_text("1\n2\n")
    notes: list[str] = []
    assert planned(notes=notes).inputs == {"answer": ["why?"], "summary": [None]}
    assert notes == ["graph summary: the application has no example and --input is not given: its input is null"]
    for_all, for_one = str(tmp_path / "one.json"), f"summary={tmp_path / 'two.jsonl'}"
    assert planned(inputs=[for_all, for_one]).inputs == {"answer": ["one"], "summary": [1, 2]}


def test_deadlines_are_those_of_the_graphs_or_one_for_all() -> None:
    assert planned().deadlines == {"answer": 600_000_000, "summary": 0}
    assert planned(deadline=5).deadlines == {"answer": 5, "summary": 5}


def test_a_trace_names_its_graphs_unless_others_are_asked_for() -> None:
    trace = {"arrivals": str(SAMPLES / "requests.csv"), "rate": None, "duration": 60 * SECOND}
    assert planned(**trace).graphs[:3] == ["answer", "answer", "summary"]
    assert set(planned("summary", **trace).graphs) == {"summary"}
    with pytest.raises(InputError, match=r"requests.csv: unknown graph 'summary' \(valid: answer\)"):
        planned(status={"graphs": ["answer"]}, **trace)


@pytest.mark.parametrize(
    ("graphs", "changes", "line"),
    [
        (["nope"], {}, "unknown graph 'nope'"),
        ([], {"duration": 0}, "--duration: longer than nothing"),
        ([], {"arrivals": "poisson", "rate": 0.0001}, "no request arrives within --duration"),
    ],
)
def test_what_cannot_be_sent_is_one_line(graphs: list[str], changes: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError, match=line):
        planned(*graphs, **changes)

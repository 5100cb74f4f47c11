"""What a map can say about columns: units, constants, the words of outcomes, blanks at the edge of the record."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from headway.errors import InputError
from headway.jobs.model.job import Job, Outcome
from headway.jobs.traces import load
from headway.jobs.traces.mapping import STATES
from headway.units import HOUR, MINUTE, SECOND
from tests.jobs.traces.files import refusal, written

SMALL = "submit=t,work=d,gpus=g"
EDGES = "submit=t,start=s:blank=edge,end=e:blank=edge,gpus=1"


def jobs(path: Path, columns: str) -> tuple[Job, ...]:
    """All jobs of a table, none dropped."""
    trace = load(path, columns=columns)
    assert trace.dropped == ()
    return trace.jobs


def outcomes(folder: Path, words: list[str], columns: str) -> list[Outcome]:
    """What a column of words means."""
    rows = "".join(f"{at},60,1,{word}\n" for at, word in enumerate(words))
    return [job.outcome for job in jobs(written(folder, f"t,d,g,status\n{rows}"), f"{SMALL},{columns}")]


# --- words of outcomes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (Outcome.FINISHES, "SUCCEED Succeeded SUCCESS ok OK 0 0:0 Done COMPLETED Finish pass"),
        (Outcome.FAILS, "FAILED Failure ERROR TIMEOUT timed-out NODE_FAIL OOM OOMKilled crashed"),
        (Outcome.CANCELLED, "CANCELLED Canceled KILLED aborted PREEMPTED Evicted deleted"),
    ],
)
def test_common_words_are_known_whatever_their_case(tmp_path: Path, outcome: Outcome, words: str) -> None:
    found = outcomes(tmp_path, words.split(), "outcome=status")
    assert found == [outcome] * len(found)
    assert outcomes(tmp_path, ["Out Of Memory", "timed out"], "outcome=status") == [Outcome.FAILS] * 2


def test_a_map_says_what_words_mean(tmp_path: Path) -> None:
    words = ["fine", "GONE", "1", "done", "killed"]
    expected = [Outcome.FINISHES, Outcome.CANCELLED, Outcome.FAILS, Outcome.FAILS, Outcome.CANCELLED]
    said = "outcome=status:fine=completed,gone=cancelled,1=failed,done=fails"
    assert outcomes(tmp_path, words, said) == expected, "what the map says comes before what is usual"
    assert outcomes(tmp_path, words, f"{said},name=t") == expected, "other fields may follow"
    assert outcomes(tmp_path, words, f'"{said}",user=t') == expected


def test_a_word_that_is_the_name_of_a_field_stands_in_quotes(tmp_path: Path) -> None:
    assert outcomes(tmp_path, ["end"], '"outcome=status:ok=completed,end=cancelled"') == [Outcome.CANCELLED]
    path = written(tmp_path, "t,d,g,status\n0,60,1,end\n")
    assert "unknown column 'cancelled'" in refusal(path, columns=f"{SMALL},outcome=status:ok=completed,user=cancelled")


def test_unknown_words_are_named_with_the_way_to_explain_them(tmp_path: Path) -> None:
    rows = "".join(f"{at},60,1,{'ABC'[at % 2]}\n" for at in range(10))
    line = refusal(written(tmp_path, f"t,d,g,status\n{rows}5,60,1,done\n"), columns=f"{SMALL},outcome=status")
    assert (
        "one rule drops 10 of 11 rows, more than a tenth, e.g. line 2: status 'A' is no outcome that is known" in line
    )
    assert "(such are: A, B): say what each means, e.g. outcome=status:A=completed" in line


# --- units and constants ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ("submit=t,work=n:ms,gpus=g", {"work": 2 * SECOND}),
        ("submit=t,work=n:MIN,gpus=g", {"work": 2000 * MINUTE}),
        ("submit=t,work:ms=n,gpus=g", {"work": 2 * SECOND}),
        ("submit=t,work=d,gpus=n:milli", {"gpus": 2, "gpu_milli": 1000}),
        ("submit=t,work=d,gpus=n:percent", {"gpus": 20}),
        ("submit=t,work=d,gpus=g,cpus=n:milli", {"cpu_milli": 2000}),
        ("submit=t,work=d,gpus=g,cpus=n", {"cpu_milli": 2_000_000}),
        ("submit=t,work=d,gpus=g,memory=n:mib", {"memory_bytes": 2000 * 2**20}),
        ("submit=t,work=d,gpus=g,memory=n:gib", {"memory_bytes": 2000 * 2**30}),
        ("submit=t,work=d,gpus=g,memory_bytes=n:GB", {"memory_bytes": 2000 * 10**9}),
        ("submit=t,work=d,gpus=8", {"gpus": 8}),
        ("submit=t,work=d,gpus=0.5", {"gpus": 1, "gpu_milli": 500}),
        ("submit=t,work=d,gpus=50:percent", {"gpus": 1, "gpu_milli": 500}),
        ("submit=0,work=1.5:h,gpus=1", {"work": HOUR + 30 * MINUTE}),
        ("submit=t,work='01:00:00',gpus=1", {"work": HOUR}),
        ("submit=t,work=d,gpus=1,tenant='the lab',memory='64':gib", {"tenant": "the lab", "memory_bytes": 2**36}),
        ("submit=t,work=d,gpus=1,preemptible=false,priority=-3", {"preemptible": False, "priority": -3}),
        ("submit=t,work=d,gpus=1,outcome='failed'", {"outcome": Outcome.FAILS}),
    ],
)  # fmt: skip
def test_columns_have_units_and_values_may_be_constants(
    tmp_path: Path, columns: str, expected: dict[str, object]
) -> None:
    (job,) = jobs(written(tmp_path, "t,d,g,n\n0,60,1,2000\n"), columns)
    assert {name: getattr(job, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("header", "source", "gpus"),
    [("gpu:milli", "gpu:milli", 3), ("8", "8", 3), ("a:b", "a:b:gpus", 3), ("a=b", "a=b", 3), ("'x'", "'x'", 3)],
)
def test_the_name_of_a_column_comes_before_all_else(tmp_path: Path, header: str, source: str, gpus: int) -> None:
    (job,) = jobs(written(tmp_path, f"t,d,{header}\n0,60,3\n"), f"submit=t,work=d,gpus={source}")
    assert job.gpus == gpus


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        ("submit=t,work=d,gpus=-1", "map: gpus '-1' must be at least 0"),
        ("submit=t,work=0,gpus=1", "map: work '0' must be above 0"),
        ("submit=t,work=d,gpus=1.5", "map: gpus '1.5' must be whole GPUs"),
        ("submit=t,work=d,gpus='x'", "map: gpus 'x' is not a number"),
        ("submit=t,work=d,gpus=1e99", "map: gpus '1e99' is too large"),
        ("submit=t,work=d,gpus=g:dozen", "unknown unit of gpus 'dozen' (valid: gpus, milli, percent)"),
        ("submit=t,work=d:ms:s,gpus=g", "field 'work' is given two units, 'ms' and 's'"),
        ("submit=t,work:ms=d:ms,gpus=g", "field 'work' is given two units, 'ms' and 'ms'"),
        ("submit=t,work=d,gpus=g,nodes=g:milli", "field 'nodes' takes no unit ('milli')"),
        ("submit=t,work=d,gpus=g,tenant=lab", "one for all rows is quoted: tenant='lab'"),
        ("submit=t,work=d,gpus=g,tenant=7", "unknown column '7'"),
        ("submit=t,work=d,gpus=g,outcome=d:done=fine", "'fine' is no outcome: write done=completed, failed or"),
        ("submit=t,work=d,gpus=g,outcome=d:done", "'done' is not understood: write word=completed,"),
        ("submit=t,work=d,gpus=g,outcome=d:a=failed,A=completed", "the word 'A' is given twice"),
        ("submit=t:blank=edge,work=d,gpus=g", "unknown unit of submit 'blank=edge'"),
        ("submit=t,work=d\ngpus=g", "is not understood"),
    ],
)  # fmt: skip
def test_what_a_map_may_not_say_is_one_line(tmp_path: Path, columns: str, line: str) -> None:
    assert line in refusal(written(tmp_path, "t,d,g\n0,60,1\n"), columns=columns)


# --- the edge of the record ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("blank", ["", "nan", "None", " "])
def test_a_blank_start_or_end_may_be_the_edge_of_the_record(tmp_path: Path, blank: str) -> None:
    text = f"t,s,e\n0,{blank},100\n10,20,70\n30,500,{blank}\n200,{blank},{blank}\n600,700,900\n"
    trace = load(written(tmp_path, text), columns=f"name=t,{EDGES}")
    assert [(job.name, job.work) for job in trace.jobs] == [
        ("0", 100 * SECOND), ("10", 50 * SECOND), ("30", 400 * SECOND), ("600", 200 * SECOND),
    ]  # fmt: skip
    assert trace.starts == {"10": 20 * SECOND, "30": 500 * SECOND, "600": 700 * SECOND}, "a start that is taken is none"
    assert [(each.line, each.column, each.fault) for each in trace.dropped] == [(5, "s", False)]
    assert "1 job already running when the record began: taken to start then" in trace.notes
    assert "1 job still running when the record was cut: taken to end then" in trace.notes


def test_a_job_that_began_before_the_record_starts_no_earlier_than_it_was_submitted(tmp_path: Path) -> None:
    path = written(tmp_path, "t,s,e\n0,5,9\n40,,100\n")
    assert [job.work for job in jobs(path, EDGES)] == [4 * SECOND, 60 * SECOND]


def test_the_edge_is_found_among_stamps_too_and_what_still_runs_is_a_known_outcome(tmp_path: Path) -> None:
    day = "2024-01-01 0"
    text = f"t,s,e,o\n{day}0:00:00,{day}0:10:00,,RUNNING\n{day}0:00:00,{day}0:05:00,{day}1:00:00,done\n"
    found = jobs(written(tmp_path, text), f"{EDGES},outcome=o")
    assert [(job.work, job.outcome) for job in found] == [
        (50 * MINUTE, Outcome.FINISHES),
        (55 * MINUTE, Outcome.FINISHES),
    ]
    without = "submit=t,start=s,end=e,gpus=1,outcome=o"
    assert "e '' is empty" in refusal(written(tmp_path, text), columns=without), "unless the map says so it is bad"


def test_the_edge_needs_one_clock(tmp_path: Path) -> None:
    text = "t,s,e\n0,2024-01-01 00:10:00,\n5,2024-01-01 00:05:00,2024-01-01 01:00:00\n"
    line = refusal(written(tmp_path, text), columns=EDGES)
    assert "map: blank=edge needs one clock, but submit is in numbers and start in stamps" in line


# --- anything at all ----------------------------------------------------------------------------------------------

PIECES = (
    *("submit", "work", "gpus", "outcome", "start", "end", "name", "memory", "t", "d", "g", "s", "ms", "gib", "milli"),
    *(
        "blank=edge",
        "done=completed",
        "=",
        ":",
        ",",
        "'",
        '"',
        " ",
        "1",
        "-1",
        "1e999",
        "9" * 40,
        "\n",
        "\x00",
        "é",
        "",
    ),
)
CELLS = ("", "0", "1", "-1", "9" * 30, "1e400", "nan", "1:00", "2024-01-01 00:00:00", "done", "perhaps", "é\x00")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    parts=st.lists(st.sampled_from(PIECES), max_size=8).map("".join) | st.text(max_size=20),
    sound=st.booleans(),
    rows=st.lists(st.lists(st.sampled_from(CELLS), min_size=4, max_size=4), max_size=4),
)
def test_any_map_over_any_table_gives_jobs_or_one_line(
    tmp_path: Path, parts: str, sound: bool, rows: list[list[str]]
) -> None:
    path = written(tmp_path, "t,d,g,s\n0,60,1,done\n" + "".join(",".join(row) + "\n" for row in rows))
    columns = f"{SMALL},{parts}" if sound else parts
    try:
        trace = load(path, columns=columns or ",", skip_bad_rows=True)
    except InputError as refused:
        line = str(refused)
        assert line.strip()
    else:
        line = ""
        assert len(trace.jobs) + len(trace.dropped) == trace.rows
    assert "\n" not in line


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    words=st.lists(st.text("abcXYZ-_ 019", min_size=1, max_size=6).map(str.strip).filter(bool), min_size=1, max_size=4),
    meanings=st.lists(st.sampled_from(("completed", "failed", "cancelled")), min_size=4, max_size=4),
)
def test_every_word_that_a_map_explains_means_that(tmp_path: Path, words: list[str], meanings: list[str]) -> None:
    said = {word.lower().replace("-", "_").replace(" ", "_"): word for word in words}
    if len(said) < len(words) or any("__" in word for word in said):
        return
    pairs = list(zip(words, meanings, strict=False))
    columns = "outcome=status:" + ",".join(f"{word}={meaning}" for word, meaning in pairs)
    found = outcomes(tmp_path, words, f'"{columns}"')
    assert found == [Outcome(STATES[meaning]) for _, meaning in pairs]

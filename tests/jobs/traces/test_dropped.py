"""A file of which one rule drops more than a tenth is refused unless told to go on; what is left out does not count."""

import json
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from headway.cli import main
from headway.errors import TraceError
from headway.fleet import domain as fleet
from headway.fleet.scenarios.tables.settings import ServingExperiment
from headway.formats import toml
from headway.jobs.ask import backtest
from headway.jobs.experiment.scene import prepare
from headway.jobs.tables.settings import Experiment
from headway.jobs.traces import load, load_requests
from headway.jobs.traces.inspect import inspect, inspect_requests
from headway.jobs.traces.trace import Dropped, too_many_dropped
from tests.jobs.traces.files import refusal, written

MAP = "submit=t,work=d,gpus=g,outcome=s"
TOLD = "--skip-bad-rows (in an experiment file trace.skip_bad_rows = true)"


def table(good: int, bad: int, word: str = "perhaps") -> str:
    """Rows whose outcomes are known, and after them some whose outcomes are not."""
    rows = [f"{at},60,1,{'done' if at < good else word}\n" for at in range(good + bad)]
    return "t,d,g,s\n" + "".join(rows)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(good=st.integers(1, 60), bad=st.integers(0, 12))
def test_a_file_is_refused_exactly_where_one_rule_drops_more_than_a_tenth(tmp_path: Path, good: int, bad: int) -> None:
    path = written(tmp_path, table(good, bad))
    kept = load(path, columns=MAP, skip_bad_rows=True)
    assert (len(kept.jobs), len(kept.dropped)) == (good, bad)
    if 10 * bad > good + bad:
        line = refusal(path, columns=MAP)
        assert (
            f"one rule drops {bad} of {good + bad} rows, more than a tenth, e.g. line {good + 2}: s 'perhaps'" in line
        )
        assert line.endswith(TOLD)
    else:
        assert load(path, columns=MAP) == kept


def test_rules_count_one_by_one_and_numbers_in_them_do_not_make_them_others() -> None:
    each = [Dropped(line, "row", "", f"gpus {line} cannot be divided") for line in range(2)]
    other = [Dropped(line, "work", "", "is empty") for line in range(2)]
    assert too_many_dropped([*each, *other[:1]], 19) == (
        "one rule drops 2 of 19 rows, more than a tenth, e.g. line 0: row '' gpus 0 cannot be divided"
    )
    assert too_many_dropped([*each, *other], 20) == ""


LEFT_OUT = {
    "helios-log": """job_id,user,vc,gpu_num,cpu_num,state,submit_time,start_time,end_time
a,u,v,1,4,COMPLETED,2020-05-04 10:00:00,2020-05-04 10:00:00,2020-05-04 10:01:00
never started,u,v,1,4,CANCELLED,2020-05-04 10:00:00,,2020-05-04 10:01:00
still running,u,v,1,4,COMPLETED,2020-05-04 10:00:00,2020-05-04 10:00:00,
""",
    "helios-csv": "job_id,arrival_s,service_sec,gpu_count\na,0,60,1\nwithout a GPU,0,60,0\n",
    "philly-csv": "timestamp,duration,num_gpus,cluster\n2017-10-09 07:01:55,2,1,a\n2017-10-09 07:01:55,2,0,a\n",
    # Cancelled before it started; part of another job; of unknown length.
    "swf": """1 0 9 60 8 -1 -1 8 900 -1 1 1 1 -1 1 1 -1 -1
2 5 9 0 8 -1 -1 8 900 -1 5 1 1 -1 1 1 -1 -1
3 5 9 60 8 -1 -1 8 900 -1 2 1 1 -1 1 1 -1 -1
4 5 9 -1 8 -1 -1 8 900 -1 1 1 1 -1 1 1 -1 -1
""",
    "slurm": """JobID|Submit|Start|End|Elapsed|State|ReqTRES
1|2026-03-01T08:00:00|2026-03-01T08:00:00|2026-03-01T09:00:00|01:00:00|COMPLETED|cpu=1,gres/gpu=1
2|2026-03-01T08:00:00|Unknown|Unknown|00:00:00|PENDING|cpu=1,gres/gpu=1
""",
}


@pytest.mark.parametrize("format", LEFT_OUT)
def test_what_a_format_leaves_out_by_its_nature_is_no_reason_to_refuse_it(tmp_path: Path, format: str) -> None:
    trace = load(written(tmp_path, LEFT_OUT[format], "t.txt"), format)
    assert len(trace.jobs) == 1
    assert trace.dropped
    assert not any(each.fault for each in trace.dropped)


def test_the_steps_of_jobs_do_not_hide_how_many_jobs_are_bad(tmp_path: Path) -> None:
    header = "JobID|Submit|Start|End|Elapsed|State|ReqTRES\n"
    row = "{}|2026-03-01T08:00:00|2026-03-01T08:00:00|2026-03-01T09:00:00|01:00:00|{}|cpu=1,gres/gpu=1\n"
    jobs = "".join(row.format(at, "COMPLETED") for at in range(1, 9)) + row.format(9, "FINE")
    steps = "".join(row.format(f"{at}.{step}", "COMPLETED") for at in range(1, 9) for step in range(3))
    assert "one rule drops 1 of 9 rows" in refusal(written(tmp_path, header + jobs + steps), "slurm")


def test_a_trace_of_requests_keeps_the_same_rule(tmp_path: Path) -> None:
    rows = "".join(f"2023-11-16 18:15:{at:02d},{100 if at < 8 else 'x'},5\n" for at in range(9))
    path = written(tmp_path, f"TIMESTAMP,ContextTokens,GeneratedTokens\n{rows}")
    with pytest.raises(TraceError, match=r"one rule drops 1 of 9 rows.*workload\.skip_bad_rows = true"):
        load_requests(path)
    found = load_requests(path, skip_bad_rows=True)
    assert len(found) == 8
    assert any("one rule drops 1 of 9 rows" in note for note in inspect_requests(found)["notes"])
    given = {"serving": {"scenario": "compass"}, "workload": {"arrivals": str(path)}}
    with pytest.raises(TraceError, match="--skip-bad-rows"):
        fleet.DOMAIN.prepare(toml.typed(given, ServingExperiment, "test"))
    toml.put(given, "workload.skip_bad_rows", True)
    assert len(fleet.DOMAIN.prepare(toml.typed(given, ServingExperiment, "test")).requests) == 8
    command = ["fleet", "simulate", "compass", "--arrivals", str(path), "--json"]
    for flags, status in (([], 2), (["--skip-bad-rows"], 0)):
        with pytest.raises(SystemExit) as ended:
            main([*command, *flags])
        assert ended.value.code == status


def test_an_experiment_file_has_a_key_for_it(tmp_path: Path) -> None:
    path = written(tmp_path, table(5, 5))
    document = {"trace": {"path": str(path), "map": MAP}, "cluster": {"nodes": 1, "gpus_per_node": 8}}
    with pytest.raises(TraceError, match="one rule drops 5 of 10 rows"):
        prepare(toml.typed(document, Experiment, "test"))
    toml.put(document, "trace.skip_bad_rows", True)
    assert len(prepare(toml.typed(document, Experiment, "test")).jobs) == 5


def test_a_backtest_reads_as_a_run_does(tmp_path: Path) -> None:
    rows = "".join(f"j{at},{at},{at + 1},{at + 61 if at < 8 else at},1\n" for at in range(9))
    path = written(tmp_path, f"n,t,s,e,g\n{rows}")
    given = toml.typed(
        {"trace": {"path": str(path), "map": "name=n,submit=t,start=s,end=e,gpus=g"}}, Experiment, "test"
    )
    with pytest.raises(TraceError, match="one rule drops 1 of 9 rows"):
        backtest.recorded(given)
    given.trace.skip_bad_rows = True
    assert len(backtest.recorded(given)) == 8


def test_commands_refuse_in_one_line_inspect_shows_and_the_flag_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, table(2, 98))

    def call(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        return int(ended.value.code or 0), *capsys.readouterr()

    size = ("--nodes", 1, "--gpus-per-node", 8)
    commands = (
        ("jobs", "simulate", path, *size),
        ("jobs", "compare", path, *size, "--policies", "fifo,sjf"),
        ("trace", "convert", path, tmp_path / "out.csv"),
        ("trace", "slice", path, tmp_path / "out.csv", "--jobs", ":9"),
        ("trace", "scale", path, tmp_path / "out.csv", "--load", 2),
    )
    for command in commands:
        status, out, err = call(*command, "--map", MAP)
        assert (status, out) == (2, "")
        assert err == f"headway: {refusal(path, columns=MAP)}\n"
        assert not (tmp_path / "out.csv").exists()
        status, _, err = call(*command, "--map", MAP, "--skip-bad-rows")
        assert status == 0
        assert "98 of 100 rows dropped" in err
        (tmp_path / "out.csv").unlink(missing_ok=True)
    status, out, _ = call("trace", "inspect", path, "--map", MAP, "--json")
    found = json.loads(out)
    assert (status, found["dropped_by_rule"][0]["rows"], found["dropped_by_rule"][0]["fault"]) == (0, 98, True)
    assert found == inspect(load(path, columns=MAP, skip_bad_rows=True))
    (note,) = found["notes"]
    assert note.startswith("one rule drops 98 of 100 rows, more than a tenth, e.g. line 4: s 'perhaps'")
    assert "one rule drops 98 of 100 rows" in call("trace", "inspect", path, "--map", MAP)[1]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_a_file_of_no_known_format_is_answered_with_its_columns(tmp_path: Path, separator: str) -> None:
    line = refusal(written(tmp_path, separator.join(("when", "how long", '"gpu count"')) + "\n1,2,3\n"))
    assert "its format cannot be told" in line
    assert line.endswith("say with --map which column is what (columns found: when, how long, gpu count)")


def test_a_parquet_file_of_other_columns_is_answered_with_them(tmp_path: Path) -> None:
    pl.DataFrame({"when": [1], "long": [2]}).write_parquet(tmp_path / "t.parquet")
    line = refusal(tmp_path / "t.parquet")
    assert (
        "column 'submit_s' is missing (found: when, long); of any other table --map says which column is what" in line
    )

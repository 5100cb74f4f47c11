"""One job at one moment: its status, why it waits, what would make room, and when it is expected to start."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from typer.testing import CliRunner

from headway.cli import main
from headway.cli.program import app
from headway.core.tape import Tape
from headway.errors import TapeError
from headway.formats import toml
from headway.jobs.ask.expected_start import LEAST_DRAWS, LEAST_HISTORY, WorkDistribution, expected_start
from headway.jobs.ask.explanation import Explanation, explain, moment_to_ask
from headway.jobs.metrics.ledger import Ledger
from headway.jobs.model.cluster import Partition, Qos, uniform
from headway.jobs.model.job import Job, workload
from headway.jobs.model.rows import Kind
from headway.jobs.policies.registry import build
from headway.jobs.rules.preemption.preemption import Mode, Preemption
from headway.jobs.show.story.story import story
from headway.jobs.show.story.stretches import Waiting
from headway.jobs.sim.copies import Copies
from headway.jobs.sim.resume import Moment, resume
from headway.jobs.tables.settings import Experiment
from headway.jobs.traces.workloads.philly_like import philly_like
from headway.runs.folder.folder import open_run, store_result
from headway.runs.play import run
from headway.streams import small_stream
from headway.units import HOUR, SECOND
from tests.drive import World, digest, drive, seconds_of
from tests.strategies import specs, worlds

CROWDED = World(uniform(4, 4), philly_like(150, gpus=16, load=2.0, seed=3))


def told(world: World, spec: str, tape: Tape, job: int, time: int, draws: int = 5) -> Explanation:
    faults = world.faults() if world.faults is not None else None
    costs, speed = world.costs, world.speed()
    return explain(
        world.cluster, world.jobs, tape, build(spec), job, time, speed=speed, costs=costs, faults=faults, draws=draws
    )


def moment_of(world: World, spec: str, tape: Tape, time: int) -> Moment:
    return resume(world.cluster, world.jobs, tape, time, build(spec), speed=world.speed(), costs=world.costs)


@settings(max_examples=40)
@given(worlds(max_jobs=8), specs(), st.data())
def test_the_status_is_that_of_the_run_and_the_causes_are_those_of_the_story(
    world: World, spec: str, data: st.DataObject
) -> None:
    tape = drive(spec, world).tape
    job = data.draw(st.sampled_from(world.jobs))
    time = data.draw(st.integers(0, int(tape.column("time")[-1])))
    found = told(world, spec, tape, job.id, time)
    tale = story(world.cluster, world.jobs, tape, build(spec), job.id, speed=world.speed(), costs=world.costs).stretches
    here = next((s for s in tale if s.start <= time and (s.end is None or time < s.end)), None)
    if here is None:
        assert found.status in ("to come", "finished", "failed", "cancelled")
        assert (found.status == "to come") == (time < job.submit)
    elif isinstance(here, Waiting):
        assert found.status == "waiting"
        assert [c.identity for c in found.causes] == [c.identity for c in here.causes]
        assert found.fits_now or set(found.none) | {way.kind for way in found.ways} == {"preemption", "moves"}
        assert found.recorded == next((s.start for s in tale if not isinstance(s, Waiting) and s.start > time), None)
    else:
        assert found.status == "running"
    assert json.loads(json.dumps(found.record()))["status"] == found.status
    assert found.lines()


def test_a_full_node_is_explained_with_what_to_preempt_and_when_it_ends() -> None:
    history = [(i, 1, 4) for i in range(40)]  # forty jobs of one second, then two of a hundred
    world = World(uniform(1, 4), seconds_of(*history, (50, 100, 4), (51, 100, 4)))
    tape = drive("fifo", world).tape
    found = told(world, "fifo", tape, 41, 60 * SECOND)
    assert [str(cause) for cause in found.causes] == ["capacity: 4 GPUs wanted, 0 free where it may run"]
    (way,) = found.ways
    assert (way.kind, way.jobs, way.where) == ("preemption", ("40",), ((("n0", 4),),))
    assert not way.starts  # the preempted job comes first and takes the room back
    assert found.none == {"moves": "none: fewer GPUs are free where it may run (0) than it wants (4)"}
    assert found.recorded == 150 * SECOND
    assert found.lines()[-1] == "in the run it started at 00:02:30, 1m 30s later"
    assert found.expected is not None
    assert found.expected.history == 40
    assert found.expected.p10 is not None
    assert found.expected.p10 > 60 * SECOND


def test_causes_and_remedies_are_told_before_anything_is_continued() -> None:
    world = World(uniform(1, 4), seconds_of((0, 30, 4), (1, 5, 4)))
    tape = drive("fifo", world).tape
    heard: list[object] = []
    found = explain(
        *(world.cluster, world.jobs, tape, build("fifo"), 1, 5 * SECOND),
        draws=5,
        first=lambda known: heard.append(known.lines()[:-1]),
        drawing=lambda done, _: heard.append(done),
    )
    assert heard[1:] == [1, 2, 3, 4, 5]
    assert heard[0] == found.first_lines() == found.lines()[: len(found.first_lines())]
    assert any("preempt job 0" in line for line in found.first_lines())


def test_from_a_handful_of_arrivals_no_rate_is_made_up() -> None:
    burst = [(0, 10, 4), (0, 10, 4), (0, 10, 4), (0, 10, 4)]
    world = World(uniform(1, 4), seconds_of(*burst))
    found = told(world, "sjf", drive("sjf", world).tape, 3, SECOND)
    assert found.expected is not None
    assert (found.expected.p10, found.expected.p90, found.expected.arrivals) == (30 * SECOND, 30 * SECOND, 0)
    assert "nobody else arrives: fewer than 20 jobs had come" in " ".join(found.lines())
    early = [(i, 1, 1) for i in range(LEAST_HISTORY)]
    world = World(uniform(1, 4), seconds_of(*early, *((30, 10, 4) for _ in range(4))))
    found = told(world, "sjf", drive("sjf", world).tape, LEAST_HISTORY + 3, 31 * SECOND)
    assert found.expected is not None
    assert found.expected.arrivals == LEAST_HISTORY + 4


def test_no_continuation_is_begun_after_enough_effort_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(uniform(1, 4), seconds_of((0, 30, 4), (1, 5, 4)))
    tape = drive("fifo", world).tape
    moment = moment_of(world, "fifo", tape, 5 * SECOND)
    ledger = Ledger(tape.until(5 * SECOND), world.jobs, world.cluster)
    monkeypatch.setattr("headway.jobs.ask.expected_start.EFFORT_IN_ALL", 1)
    assert expected_start(moment, 1, ledger).draws == LEAST_DRAWS
    assert expected_start(moment, 1, ledger, draws=15).draws == 15


def test_a_move_that_helps_is_told_with_where_it_goes() -> None:
    jobs = seconds_of((0, 10, 2), (0, 100, 2), (0, 100, 2), (0, 10, 2), (5, 10, 4))
    world = World(uniform(2, 4), jobs)
    found = told(world, "fifo", drive("fifo", world).tape, 4, 20 * SECOND)
    way = next(way for way in found.ways if way.kind == "moves")
    assert way.starts
    assert way.line().startswith("move job 1 to 2 on n1: ")
    assert [str(cause.kind) for cause in found.causes] == ["fragmentation"]


def test_a_job_that_would_fit_needs_nothing() -> None:
    world = World(uniform(1, 4), seconds_of((0, 100, 3), (1, 10, 2), (2, 10, 1)))
    found = told(world, "fifo", drive("fifo", world).tape, 2, 3 * SECOND)
    assert found.fits_now
    assert not found.ways
    assert not found.none
    assert "  nothing is needed: it would fit" in found.lines()


def test_a_job_that_is_not_there_is_refused() -> None:
    world = World(uniform(1, 4), seconds_of((0, 100, 3)))
    with pytest.raises(TapeError, match="job 7 is not in this run"):
        told(world, "fifo", drive("fifo", world).tape, 7, 0)


def test_the_moment_to_ask_is_the_middle_of_the_first_wait() -> None:
    world = World(uniform(1, 4), seconds_of((0, 100, 4), (20, 10, 4)))
    ledger = Ledger(drive("fifo", world).tape, world.jobs, world.cluster)
    assert moment_to_ask(ledger, 1) == 60 * SECOND
    assert moment_to_ask(ledger, 0) == 0


# --- the interval ---------------------------------------------------------------------------------------------


def test_the_interval_holds_what_happened_most_of_the_time() -> None:
    """Of jobs that wait at several times of a run, most start within the 80 % interval."""
    world = World(uniform(4, 4), philly_like(300, gpus=16, load=1.2, seed=1))
    tape = drive("fifo", world, bounded=False).tape
    hits, asked = 0, 0
    for part in (0.3, 0.5, 0.6, 0.7, 0.8):
        time = int(tape.column("time")[int(part * len(tape))])
        moment = moment_of(world, "fifo", tape, time)
        before = Ledger(tape.until(time), world.jobs, world.cluster)
        waiting = [job for _, job in moment.state.queue.in_order()]
        for job in waiting[:: max(1, len(waiting) // 3)][:3]:
            starts = tape.rows[(tape.column("kind") == Kind.START) & (tape.column("subject") == job), 0]
            actual = int(starts[starts > time][0])
            found = expected_start(moment, job, before, draws=20)
            asked += 1
            hits += (found.p10 or 0) <= actual and (found.p90 is None or actual <= found.p90)
    assert asked >= 12
    assert hits / asked >= 0.6


def test_the_same_seed_gives_the_same_interval_and_leaves_the_moment_as_it_was() -> None:
    tape = drive("srtf+easy", CROWDED, bounded=False).tape
    time = int(tape.column("time")[len(tape) // 2])
    moment = moment_of(CROWDED, "srtf+easy", tape, time)
    before = Ledger(tape.until(time), CROWDED.jobs, CROWDED.cluster)
    ((_, job), *_) = moment.state.queue.in_order()
    seen = digest(moment.state)
    first, again, other = (expected_start(moment, job, before, draws=10, seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert first != other
    assert digest(moment.state) == seen
    assert first.p10 is not None
    assert first.p50 is not None
    assert time < first.p10 <= first.p50


def test_the_future_of_the_trace_is_not_looked_at() -> None:
    """Jobs that run and those to come may turn out otherwise: the interval is the same."""

    def found(last: int) -> Any:
        early = [Job(0, i * SECOND, SECOND * (1 + i % 7), 4, estimate=10 * SECOND) for i in range(60)]
        later = [Job(0, 400 * SECOND, last * SECOND, 4, estimate=300 * SECOND)]
        waits = [Job(0, 401 * SECOND, SECOND, 4), Job(0, 402 * SECOND, last * SECOND, 4, estimate=50 * SECOND)]
        world = World(uniform(1, 4), workload([*early, *later, *waits]))
        tape = drive("fifo", world).tape
        time = 401 * SECOND
        moment = moment_of(world, "fifo", tape, time)
        return expected_start(moment, 61, Ledger(tape.until(time), world.jobs, world.cluster), draws=15)

    assert found(100) == found(250)


def test_jobs_last_at_least_as_long_as_they_have_and_like_others_of_their_size() -> None:
    world = World(uniform(1, 8), seconds_of(*((i * 20, 1 + i % 10, 1 + i % 2 * 7) for i in range(100))))
    ledger = Ledger(drive("fifo", world).tape, world.jobs, world.cluster)
    lasting = WorkDistribution.until(ledger, (), 0)
    random = small_stream(0, "test")
    narrow = Job(0, 0, 999 * SECOND, 1)
    drawn = {lasting.drawn(narrow, 0, random) for _ in range(200)}
    assert drawn == {job.work for job in world.jobs if job.gpus == 1}
    assert all(lasting.drawn(narrow, 6 * SECOND, random) > 6 * SECOND for _ in range(50))
    assert all(lasting.drawn(narrow, HOUR, random) > HOUR for _ in range(50))
    few = WorkDistribution.until(Ledger(drive("fifo", world).tape.until(5 * SECOND), world.jobs, world.cluster), (), 0)
    assert few.history < LEAST_HISTORY
    assert few.drawn(Job(0, 0, 5, estimate=7 * SECOND), 0, random) == 7 * SECOND
    assert not few.from_trace
    assert few.again(random).drawn(Job(0, 0, 5 * SECOND), 0, random) == 5 * SECOND
    assert few.from_trace, "nothing else is known, and it is said"
    assert not lasting.from_trace


@pytest.mark.parametrize(
    ("before", "estimate", "told"),
    [
        (3, 0, "run times taken from the trace where none was announced: fewer than 20 jobs had ended"),
        (3, 50, "run times as they were announced: fewer than 20 jobs had ended"),
        (30, 0, "run times as of 30 jobs that had ended"),
    ],
)
def test_where_run_times_come_from_is_said(before: int, estimate: int, told: str) -> None:
    known = estimate * SECOND
    early = [Job(0, i * SECOND, SECOND, 4, estimate=known) for i in range(before)]
    late = [Job(0, (100 + i) * SECOND, 60 * SECOND, 4, estimate=known) for i in range(3)]
    world = World(uniform(1, 4), workload([*early, *late]))
    tape = drive("fifo", world).tape
    found = explain(world.cluster, world.jobs, tape, build("fifo"), before + 1, 110 * SECOND, draws=5)
    arrivals = "arrivals as of" if before >= LEAST_HISTORY else "nobody else arrives"
    assert f"(median of 5 continuations: {told}, {arrivals}" in "\n".join(found.lines())
    record = found.record()["expected_start"]
    assert record["run_times_from_trace"] == (before == 3 and not estimate)


def test_a_long_wait_is_looked_at_only_so_far_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [Job(0, i * 30 * SECOND, 60 * SECOND, 4, estimate=60 * SECOND) for i in range(30)]
    world = World(uniform(1, 4), workload(jobs))
    tape = drive("fifo", world).tape
    whole = explain(world.cluster, world.jobs, tape, build("fifo"), 25, 870 * SECOND, draws=5)
    record = whole.record()["expected_start"]
    assert (record["started"], record["looked_until_s"]) == (5, None)
    monkeypatch.setattr("headway.jobs.ask.expected_start.EFFORT_OF_ONE", 500)
    short = explain(world.cluster, world.jobs, tape, build("fifo"), 25, 870 * SECOND, draws=5)
    record = short.record()["expected_start"]
    assert record["started"] == 0
    assert record["p50_s"] is None
    assert 870 <= record["looked_until_s"] < whole.record()["expected_start"]["p10_s"]
    assert "it waits in all of 5 continuations, which were played no further" in "\n".join(short.lines())


@settings(max_examples=25)
@given(worlds(max_jobs=8), specs(), st.data())
def test_a_copy_goes_on_as_the_moment_would(world: World, spec: str, data: st.DataObject) -> None:
    tape = drive(spec, world).tape
    time = data.draw(st.integers(0, int(tape.column("time")[-1])))
    faults = world.faults() if world.faults is not None else None
    moment = resume(
        world.cluster, world.jobs, tape, time, build(spec), speed=world.speed(), costs=world.costs, faults=faults
    )
    copies = Copies(moment)
    first, second = copies.make(), copies.make()
    assert digest(first.state) == digest(moment.state)
    rest = first.go_on()
    assert rest.digest == second.go_on().digest == moment.go_on().digest


def test_what_a_copy_plays_is_not_seen_by_the_policy_that_it_was_copied_from() -> None:
    nodes = tuple(range(4))
    cluster = replace(uniform(4, 4), partitions=(Partition("low", nodes), Partition("high", nodes, tier=2)))
    jobs = [replace(job, partition=("low", "high")[job.id % 2], user=f"u{job.id % 3}") for job in CROWDED.jobs]
    world = World(cluster, workload(jobs))
    spec = "multifactor(fairshare_weight=1000, fair_tree=true)"
    tape = drive(spec, world).tape
    moment = moment_of(world, spec, tape, world.jobs[75].submit)
    before = set(moment.policy.order._known)  # type: ignore[attr-defined]
    copies = Copies(moment)
    first, second = copies.make().go_on(), copies.make().go_on()
    assert set(moment.policy.order._known) == before  # type: ignore[attr-defined]
    assert first.digest == second.digest == moment.go_on().digest


# --- the command ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A crowded run."""
    out = tmp_path_factory.mktemp("explain") / "run"
    document = {
        "trace": {"synthetic": {"jobs": 120, "load": 3.0}},
        "cluster": {"nodes": 2, "gpus_per_node": 8},
        "run": {"out": str(out)},
        "policy": {"name": "fifo"},
    }
    tape = run(toml.typed(document, Experiment, "test")).tape
    store_result(out, {"stopped": False, "digest": tape.digest})
    return str(out)


def test_the_command_explains_by_default_the_middle_of_the_first_wait(folder: str) -> None:
    done = CliRunner().invoke(app, ["explain", folder, "100", "--draws", "5"])
    assert done.exit_code == 0, done.output
    for part in ("why not now", "what would make room now", "expected start", "in the run it started at"):
        assert part in done.stdout
    record = json.loads(CliRunner().invoke(app, ["explain", folder, "100", "--draws", "5", "--json"]).stdout)
    assert record["status"] == "waiting"
    assert record["recorded_start_s"] - record["at_s"] == pytest.approx(record["waited_s"], abs=1e-6)
    assert record["expected_start"]["draws"] == 5


@pytest.mark.parametrize(("when", "status"), [("0s", "to come"), ("end", "finished|failed|cancelled")])
def test_a_job_that_does_not_wait_is_said_to(folder: str, when: str, status: str) -> None:
    done = CliRunner().invoke(app, ["explain", folder, "100", "--at", when, "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["status"] in status.split("|")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["17", "--at", "999d"], "--at 999d: the run ends at"),
        (["17", "--at", "soon"], "--at 'soon' is not understood"),
        (["17", "--at", "-5h"], "--at '-5h' must not be negative"),
        (["nobody"], "job 'nobody' is not in this run"),
    ],
)
def test_wrong_arguments_are_one_line(
    folder: str, arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["explain", folder, *arguments])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert line in error
    assert error.count("\n") == 1


def test_a_run_that_was_cut_short_is_explained_as_far_as_it_goes(folder: str) -> None:
    stored = open_run(folder)
    scene = stored.scene
    half = stored.tape.until(int(stored.tape.column("time")[len(stored.tape) // 2]))
    end = int(half.column("time")[-1])
    ledger = Ledger(half, scene.jobs, scene.cluster)
    assert moment_to_ask(ledger, 119) <= end
    waiting = next(job.id for job in scene.jobs if ledger.arrived[job.id] and ledger.first_start[job.id] < 0)
    found = explain(scene.cluster, scene.jobs, half, scene.policy(), waiting, end, draws=5)
    assert (found.status, found.recorded) == ("waiting", None)
    assert found.lines()[-1].startswith("in the run it still waits where the tape ends, at ")


@pytest.mark.parametrize(
    ("mode", "fate"),
    [
        (Mode.REQUEUE, "0.25 GPU-hours of work done are run again (REQUEUE keeps no progress)"),
        (Mode.CANCEL, "0.25 GPU-hours of work done are lost (CANCEL ends them)"),
    ],
)
def test_a_preemption_by_the_rules_of_a_site_is_not_called_free(mode: Mode, fate: str) -> None:
    jobs = workload([Job(0, 0, HOUR, 1, name="victim", qos="low"), Job(0, 60 * SECOND, HOUR, 1, qos="low")])
    cluster = replace(uniform(1, 1), qos=(Qos("low"),), preemption=Preemption(mode=mode))
    world = World(cluster, jobs)
    tape = drive("fifo", world).tape
    found = told(world, "fifo", tape, 1, HOUR // 4)
    (line,) = (line for line in found.first_lines() if "preempt" in line)
    assert line.startswith(f"  preempt job victim (1 on n0): {fate}; the policy then ")
    (way,) = found.record()["ways"]
    assert (way["lost_gpu_s"], way["modes"]) == (900.0, [mode])
    plain = World(uniform(1, 1), jobs)
    free = told(plain, "fifo", drive("fifo", plain).tape, 1, HOUR // 4)
    assert "0 GPU-hours of standstill" in "\n".join(free.first_lines())

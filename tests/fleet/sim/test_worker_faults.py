"""Workers that fail: seeded, one event after the other for each worker, never the last one that is up."""

from heapq import heapify, heappop, heappush

import pytest
from hypothesis import given, settings, strategies as st

from headway.errors import ExperimentError
from headway.fleet.model.events import WorkerFailed, WorkerRecovered
from headway.fleet.scenarios.tables.settings import ServingExperiment, WorkerFailuresTable
from headway.fleet.sim.worker_faults import ByTick, ByWorker, DrawnFaults, Fault, faults_of
from headway.runs.settings.tables import RunTable
from headway.units import SECOND


def history(faults: DrawnFaults) -> list[Fault]:
    """Everything that happens, as an executor would see it."""
    heap = [(time, event.rank, event.worker, event) for time, event in faults.first()]
    heapify(heap)
    seen: list[Fault] = []
    while heap:
        time, _, _, event = heappop(heap)
        seen.append((time, event))
        if (following := faults.after(time, event)) is not None:
            heappush(heap, (following[0], following[1].rank, event.worker, following[1]))
    return seen


models = st.one_of(
    st.builds(ByWorker, st.integers(1, 200).map(SECOND.__mul__), st.integers(1, 300).map(SECOND.__mul__)),
    st.builds(ByTick, st.integers(1, 90).map(SECOND.__mul__), st.integers(1, 300).map(SECOND.__mul__)),
)


@given(st.integers(2, 9), st.integers(0, 10**6), models, st.integers(0, 2000))
@settings(max_examples=100, deadline=None)
def test_each_worker_fails_and_returns_in_turn_and_one_is_always_up(
    workers: int, seed: int, model: ByWorker | ByTick, until_s: int
) -> None:
    until = until_s * SECOND
    events = history(DrawnFaults(workers, seed, model, until))
    assert events == history(DrawnFaults(workers, seed, model, until))
    down: set[int] = set()
    for time, event in events:
        if isinstance(event, WorkerFailed):
            assert event.worker not in down
            assert time <= until
            down.add(event.worker)
        else:
            assert isinstance(event, WorkerRecovered)
            down.remove(event.worker)
        assert len(down) < workers
    assert not down, "who is down comes back"


def test_every_thirty_seconds_one_worker_dies_and_is_back_in_time() -> None:
    events = history(DrawnFaults(5, 1, ByTick(30 * SECOND, 10 * SECOND), 600 * SECOND))
    failed = [(time, event.worker) for time, event in events if isinstance(event, WorkerFailed)]
    assert [time for time, _ in failed] == [number * 30 * SECOND for number in range(1, 21)]
    assert {worker for _, worker in failed} == set(range(5))
    back = {(time, event.worker) for time, event in events if isinstance(event, WorkerRecovered)}
    assert back == {(time + 10 * SECOND, worker) for time, worker in failed}


def test_means_are_as_asked() -> None:
    events = history(DrawnFaults(4, 7, ByWorker(300 * SECOND, 20 * SECOND), 500_000 * SECOND))
    count = sum(isinstance(event, WorkerFailed) for _, event in events)
    assert count == pytest.approx(4 * 500_000 / 320, rel=0.05)
    down = sum(time * (1 if isinstance(event, WorkerRecovered) else -1) for time, event in events)
    assert down / count == pytest.approx(20 * SECOND, rel=0.05)


def test_a_seed_is_a_history() -> None:
    model = ByTick(30 * SECOND, 10 * SECOND)
    one, two = (history(DrawnFaults(5, seed, model, 3600 * SECOND)) for seed in (1, 2))
    assert one != two


def test_one_worker_is_left_when_all_the_others_are_down() -> None:
    events = history(DrawnFaults(2, 3, ByTick(SECOND, 1000 * SECOND), 5000 * SECOND))
    failed = [time // SECOND for time, event in events if isinstance(event, WorkerFailed)]
    assert failed == [1, 1002, 2003, 3004, 4005], "the tick at which the other is back comes before its return"


def of(workers: int = 5, **failures: str) -> DrawnFaults | None:
    experiment = ServingExperiment(failures=WorkerFailuresTable(**failures), run=RunTable(seed=4))
    return faults_of(experiment, workers, 600 * SECOND)


def test_the_table_of_an_experiment_says_how_workers_fail() -> None:
    assert of() is None
    ticks = of(every="30s")
    assert ticks is not None
    assert history(ticks) == history(DrawnFaults(5, 4, ByTick(30 * SECOND, 10 * SECOND), 600 * SECOND))
    means = of(mtbf="2m", repair="30s")
    assert means is not None
    assert history(means) == history(DrawnFaults(5, 4, ByWorker(120 * SECOND, 30 * SECOND), 600 * SECOND))


def test_a_single_worker_cannot_fail() -> None:
    with pytest.raises(ExperimentError, match="failures need at least 2 workers"):
        of(workers=1, every="30s")
    with pytest.raises(ExperimentError, match="give one"):
        of(every="30s", mtbf="1h")

"""The queue and the ranking of running jobs, against sorted lists."""

from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headway.jobs.state.queue import Queue, Ranked

keys = st.integers(-3, 3)


class QueueMachine(RuleBasedStateMachine):
    """Adds and removes in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = Queue()
        self.model: dict[int, tuple[str, int]] = {}
        self.next = 0

    @rule(lane=st.sampled_from("ab"), key=keys)
    def add(self, lane: str, key: int) -> None:
        self.queue.add(lane, (key, self.next))
        self.model[self.next] = (lane, key)
        self.next += 1

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        if self.model:
            job = data.draw(st.sampled_from(sorted(self.model)))
            lane, key = self.model.pop(job)
            self.queue.remove(lane, (key, job))

    @rule(count=st.integers(1, 20))
    def remove_heads(self, count: int) -> None:
        for _ in range(min(count, len(self.model))):
            head = self.queue.head()
            assert head is not None
            self.queue.remove(self.model.pop(head[1])[0], head)

    @invariant()
    def is_sorted(self) -> None:
        expected = sorted((key, job) for job, (_, key) in self.model.items())
        assert list(self.queue.in_order()) == expected
        assert len(self.queue) == len(expected)
        assert self.queue.head() == (expected[0] if expected else None)
        assert {str(name): list(lane) for name, lane in self.queue.lanes.items()} == {
            name: lane for name in "ab" if (lane := [e for e in expected if self.model[e[1]][0] == name])
        }
        assert all(lane.head == next(iter(lane)) for lane in self.queue.lanes.values())


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(max_examples=30, stateful_step_count=30)


def test_a_long_queue_is_served_from_its_head_in_order() -> None:
    queue = Queue()
    for job in range(2000):
        queue.add("", (job % 7, job))
    served = []
    while (head := queue.head()) is not None:
        queue.remove("", head)
        served.append(head)
    assert served == sorted((job % 7, job) for job in range(2000))


@given(
    jobs=st.lists(st.tuples(st.integers(-2, 2), st.integers(-9, 9)), max_size=12),
    now=st.integers(0, 9),
    gone=st.sets(st.integers(0, 11)),
)
def test_running_jobs_are_ranked_by_where_their_values_are_now(
    jobs: list[tuple[int, int]], now: int, gone: set[int]
) -> None:
    ranked = Ranked()
    for job, (rate, offset) in enumerate(jobs):
        ranked.add(rate, offset, job)
    for job in gone & set(range(len(jobs))):
        ranked.remove(*jobs[job], job)
    left = sorted((offset + rate * now, job) for job, (rate, offset) in enumerate(jobs) if job not in gone)
    assert ranked.largest(now) == (left[-1][0] if left else None)
    if left:
        assert list(ranked.ascending(now)) == left
        assert list(ranked.descending(now)) == left[::-1]

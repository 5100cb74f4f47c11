"""qssf predicts from history, and cannot see the future."""

from dataclasses import replace

from hypothesis import given, strategies as st

from headway.core.tape import Row
from headway.jobs.model.job import Job
from headway.jobs.model.rows import Kind
from headway.jobs.policies.orders.qssf import Qssf
from headway.jobs.state.state import Account, JobState
from headway.units import MINUTE
from tests.jobs.policies.orders.drive import Played, job, play

users = st.sampled_from(("ann", "bob"))
jobs = st.lists(
    st.builds(
        job,
        st.integers(0, 100),
        st.integers(1, 60),
        st.integers(1, 2),
        user=users,
        model=st.sampled_from(("", "bert", "gpt")),
    ),
    min_size=2,
    max_size=12,
)


def _before(played: Played, time: float) -> list[Row]:
    return [row for row in played.rows if row[0] < time * MINUTE]


@given(jobs=jobs, which=st.integers(0, 11), work=st.integers(1, 200))
def test_another_work_of_a_job_changes_no_decision_before_its_end(jobs: list[Job], which: int, work: int) -> None:
    played = play(jobs, "qssf", 2)
    chosen = played.jobs[which % len(jobs)]
    other = play((replace(j, work=work * MINUTE) if j is chosen else j for j in played.jobs), "qssf", 2)
    until = min(played.ends[chosen.id], other.ends[chosen.id])
    assert _before(played, until) == _before(other, until)
    assert any(row[1] == Kind.START and row[2] == chosen.id for row in _before(played, until))


def state_of(described: Job, done: float = 0) -> JobState:
    """A live job that was delivered so many minutes."""
    js = JobState(described, Account(described.tenant), 1, 0)
    js.done = round(done * MINUTE)
    return js


def test_the_prediction_falls_back_from_kind_to_user_to_size_to_everybody() -> None:
    order = Qssf(recent=0.5)
    ann = job(0, 999, gpus=2, user="ann", model="bert")
    assert order.predicted(state_of(ann)) == 1, "nothing is known yet"
    order.ended(0, state_of(job(0, 1, user="bob"), 10))
    assert order.predicted(state_of(ann)) == 10 * MINUTE, "all jobs"
    order.ended(0, state_of(job(0, 1, gpus=2, user="bob"), 20))
    assert order.predicted(state_of(ann)) == 20 * MINUTE, "jobs of this size"
    order.ended(0, state_of(job(0, 1, gpus=1, user="ann"), 30))
    assert order.predicted(state_of(ann)) == 30 * MINUTE, "the user's jobs"
    order.ended(0, state_of(job(0, 1, gpus=2, user="ann"), 40))
    assert order.predicted(state_of(ann)) == 40 * MINUTE, "the user's jobs of this size"
    order.ended(0, state_of(ann, 50))
    assert order.predicted(state_of(ann)) == 50 * MINUTE, "the user's jobs of this size and kind"
    order.ended(0, state_of(ann, 100))
    assert order.predicted(state_of(ann)) == 75 * MINUTE, "weighted towards the latest"


def test_jobs_with_numbered_names_are_of_one_kind() -> None:
    order = Qssf()
    order.ended(0, state_of(job(0, 1, user="ann", name="train_resnet-17"), 30))
    order.ended(0, state_of(job(0, 1, user="ann", name="eval-1"), 2))
    assert order.predicted(state_of(job(0, 1, user="ann", name="train_resnet-18"))) == 30 * MINUTE
    assert order.predicted(state_of(job(0, 1, user="ann", name="other"))) == 16 * MINUTE


def test_an_announced_time_counts_only_when_asked_and_for_users_without_history() -> None:
    announced = job(0, 999, user="new", estimate=5 * MINUTE)
    plain, trusting = Qssf(), Qssf(estimates=True)
    for order in (plain, trusting):
        order.ended(0, state_of(job(0, 1, user="bob"), 60))
    assert plain.predicted(state_of(announced)) == 60 * MINUTE
    assert trusting.predicted(state_of(announced)) == 5 * MINUTE
    trusting.ended(0, state_of(job(0, 1, user="new"), 7))
    assert trusting.predicted(state_of(announced)) == 7 * MINUTE


def test_qssf_serves_users_with_short_histories_first() -> None:
    history = [job(0, 50, tenant="long"), job(0, 5, tenant="short"), job(0, 100, tenant="other")]
    waiting = [job(60, 1, tenant="long"), job(61, 80, tenant="short")]
    assert play([*history, *waiting], "qssf").first_starts == [0, 1, 2, 4, 3]


def test_qssf_counts_gpus() -> None:
    history = [job(0, 10, tenant="a"), job(0, 10, gpus=4, tenant="a"), job(20, 60, gpus=4, tenant="b")]
    waiting = [job(30, 10, gpus=4, tenant="a"), job(31, 10, tenant="a")]
    assert play([*history, *waiting], "qssf", 4).first_starts == [0, 1, 2, 4, 3]

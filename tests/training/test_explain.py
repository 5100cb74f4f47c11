"""Why a job waits: for every instant of waiting, taking away the causes that are named admits the job."""

from hypothesis import given, settings
from hypothesis import strategies as st

from headway.training.counterfactual import admits
from headway.training.explain import why_waiting
from headway.training.policies.registry import build
from headway.training.replay import Walk
from headway.training.speed import SpeedModel
from headway.units import SECOND
from tests.drive import World, drive
from tests.strategies import specs, worlds


def check_every_wait(spec: str, world: World, round_length: int = 0, preempts: bool | None = None) -> int:
    """Walk a run; at the end of each instant, each waiting job's causes suffice. How many were checked."""
    def policy():
        return build(spec, round_length=round_length)

    run = drive(policy(), world)
    speed = SpeedModel(world.cluster, sharing_penalty_ppm=world.sharing_penalty_ppm)
    walk = Walk(world.cluster, world.jobs, run.tape, policy(), asking=True, speed=speed, costs=world.costs)
    checked = 0
    for step in walk:
        walk.act()
        for _, job in list(walk.state.queue.in_order()):
            causes = why_waiting(step.time, walk.state, walk.policy, walk.state.jobs[job])
            assert causes
            assert admits(step.time, walk.state, walk.policy, job, causes), (step.time, job, causes)
            checked += 1
    return checked


@settings(max_examples=150)
@given(st.data())
def test_taking_away_the_causes_admits_the_job(data: st.DataObject) -> None:
    world = data.draw(worlds())
    spec = data.draw(specs())
    check_every_wait(spec, world, data.draw(st.sampled_from([0, 0, 0, 7 * SECOND])))

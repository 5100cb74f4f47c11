"""A serving tape played again: the same policy writes the same rows, another one does not, and the digest sees it."""

from dataclasses import replace

import numpy as np
import pytest

from headway.core.tape import Tape
from headway.errors import TapeError
from headway.fleet.audit.replay import events_of
from headway.fleet.model.events import RequestArrived
from headway.fleet.model.rows import Kind
from headway.fleet.policies.parts import ServingPolicy
from headway.fleet.policies.registry import build
from headway.fleet.state.digest import digest
from headway.units import MILLISECOND
from tests.fleet.restless import Restless
from tests.fleet.rich import WORLD, rich
from tests.fleet.worlds import World, drive, first_difference, replay


def played(world: World, tape: Tape, policy: ServingPolicy) -> Tape:
    return replay(
        world.catalogue,
        world.fleet,
        world.requests,
        tape,
        policy,
        latency=world.latency(),
        push_interval=world.push_interval,
        preloaded=world.preloaded,
    )


def test_a_tape_with_every_kind_of_row_is_replayed_to_the_last_bit() -> None:
    again = played(WORLD, rich().tape, Restless(26))
    assert first_difference(rich().tape, again) is None
    assert again.digest == rich().tape.digest


def test_stale_rows_are_seen_again_as_they_were() -> None:
    world = replace(WORLD, push_interval=20 * MILLISECOND, outages=())
    tape = drive("compass", world).tape
    assert played(world, tape, build("compass")).digest == tape.digest
    fresh = played(replace(world, push_interval=0), tape, build("compass"))
    assert first_difference(tape, fresh) is not None


def test_a_part_of_a_tape_is_replayed_as_far_as_it_goes() -> None:
    part = rich().tape.until(200 * MILLISECOND)
    assert 0 < len(part) < len(rich().tape)
    assert played(WORLD, part, Restless(26)).digest == part.digest


def test_another_policy_is_found_out_at_its_first_other_decision() -> None:
    said = first_difference(rich().tape, played(WORLD, rich().tape, Restless(25)))
    assert said is not None
    assert said.startswith("step 1 at 0s (0 ns), ")


def test_a_difference_is_told_by_its_columns_and_by_who_ends_first() -> None:
    tape = rich().tape
    rows = tape.rows.copy()
    rows[-1, 6] += 1
    said = first_difference(tape, Tape(rows))
    assert said is not None
    assert "DONE of request" in said
    assert said.endswith(f"value {rows[-1, 6] - 1} against {rows[-1, 6]}")
    shorter = Tape(tape.rows[:-1])
    assert "the second tape ends here" in (first_difference(tape, shorter) or "")
    assert "the first tape ends here" in (first_difference(shorter, tape) or "")


def test_a_tape_of_another_workload_is_refused() -> None:
    with pytest.raises(TapeError, match="request 23 arrive at 345000000 ns; the workload has no such request"):
        played(replace(WORLD, requests=WORLD.requests[:-1]), rich().tape, Restless(26))
    strange = Tape(np.array([[0, Kind.STALE, 0, 0, 0, 0, 17]], dtype=np.int64))
    with pytest.raises(TapeError, match="a row of kind 17 at 0 ns"):
        list(events_of(WORLD.requests, strange))


def test_the_digest_sees_every_change_and_no_look() -> None:
    state = WORLD.state()
    state.apply(0, RequestArrived(WORLD.requests[0]))
    before = digest(state)
    state.rows(0, 0)
    state.workers[0].row()
    assert digest(state) == before
    for change in (
        lambda: state.workers[0].queue.update({(0, 0): 1}),
        lambda: state.workers[1].memory.order.update({0: 1}),
        lambda: state.requests[0].due.__setitem__(0, 9),
        lambda: state.requests[0].coming.update({(0, 0): 9}),
        lambda: state.ready.clear(),
        lambda: state.landed.clear(),
        lambda: state.touched.update({0: None}),
        lambda: state.expiries.append((1, 0, 0, 0)),
    ):
        before = digest(state)
        change()
        assert digest(state) != before

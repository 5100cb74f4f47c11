"""What was learnt goes out of a slot and comes back as it was, where the shim looks for it."""

from pathlib import Path

from hypothesis import given, strategies as st

from headway.gpu.share.block import slot_profiles
from headway.gpu.share.block.block import KERNELS, STEPS, Slot

IDENTITY = st.integers(1, 2**64 - 1)


def _kernel(number: int) -> dict[str, object]:
    rest = dict.fromkeys(slot_profiles.KERNEL_FIELDS, 3)
    return {"id": f"{number:016x}", "name": f"k{number % 97}", **rest, "work_ns": number % 10_000}


def _step(number: int) -> dict[str, object]:
    return {"key": f"{number:016x}", **dict.fromkeys(slot_profiles.STEP_FIELDS, 5), "gap_ns": number % 10_000}


@given(st.sets(IDENTITY, max_size=40), st.sets(IDENTITY, max_size=40))
def test_rows_come_back_as_they_went_in(kernels: set[int], steps: set[int]) -> None:
    slot = Slot()
    kernel_rows, step_rows = [_kernel(each) for each in kernels], [_step(each) for each in steps]
    assert slot_profiles.write(slot, kernel_rows, step_rows) == len(kernels)
    back_kernels, back_steps = slot_profiles.read(slot)
    assert sorted(back_kernels, key=str) == sorted(kernel_rows, key=str)
    assert sorted(back_steps, key=str) == sorted(step_rows, key=str)


def test_a_row_lies_at_its_identity_or_at_the_next_free_place() -> None:
    slot = Slot()
    slot_profiles.write(slot, [_kernel(5), _kernel(5 + KERNELS)], [_step(STEPS - 1), _step(2 * STEPS - 1)])
    assert [slot.kernels[5].id, slot.kernels[6].id] == [5, 5 + KERNELS]
    assert [slot.steps[STEPS - 1].key, slot.steps[0].key] == [STEPS - 1, 2 * STEPS - 1]


def test_those_that_are_launched_most_come_first_and_go_in_where_not_all_do() -> None:
    slot = Slot()
    for number in range(1, KERNELS):
        row = slot.kernels[number]
        row.id, row.samples, row.launches = number, 1, number
        slot.steps[number].key, slot.steps[number].samples = number, number
    kernels, steps = slot_profiles.read(slot)
    assert [int(row["id"], 16) for row in kernels] == list(range(KERNELS - 1, 0, -1))
    assert [int(row["key"], 16) for row in steps] == list(range(KERNELS - 1, 0, -1))
    fresh = Slot()
    assert slot_profiles.write(fresh, kernels, []) == KERNELS // 2
    assert {row.id for row in fresh.kernels if row.id} == set(range(KERNELS // 2, KERNELS))


def test_what_is_known_goes_into_a_slot_as_laid_out_and_beside_what_the_client_saw() -> None:
    known = slot_profiles.SlotProfile.of([_kernel(5), _kernel(6)], [_step(7)])
    fresh, late = Slot(), Slot()
    fresh.ledger.kernels, fresh.rules.gate = 3, 1
    assert known.into(fresh) == 2
    assert slot_profiles.read(fresh) == slot_profiles.read(known.slot)
    assert (fresh.ledger.kernels, fresh.rules.gate) == (3, 1)
    late.kernels[5].id, late.kernels[5].work_ns, late.kernels[5].samples = 5, 77, 1
    assert known.into(late) == 1
    assert (late.kernels[5].work_ns, late.kernels[6].id, late.steps[7].key) == (77, 6, 7)


def test_what_the_client_saw_itself_stays() -> None:
    slot = Slot()
    slot.kernels[5].id, slot.kernels[5].work_ns = 5, 77
    assert slot_profiles.write(slot, [_kernel(5)], []) == 0
    assert slot.kernels[5].work_ns == 77


def test_rows_that_are_not_understood_are_left_out() -> None:
    slot = Slot()
    broken = [
        {},
        {"id": "zz"},
        {"id": "0"},
        {"id": "5", "work_ns": "long"},
        {"id": "7", "name": "ü" * 200, "samples": 1},
    ]
    assert slot_profiles.write(slot, broken, [{}, {"key": None}, {"key": "0"}]) == 1
    assert [row["id"] for row in slot_profiles.read(slot)[0]] == [f"{7:016x}"]


def test_the_kernel_that_delayed_most_is_named(tmp_path: Path) -> None:
    slot = Slot()
    assert slot_profiles.blamed(slot) == ("", 0)
    slot_profiles.write(slot, [_kernel(1), _kernel(2)], [])
    slot.kernels[1].blamed_ns, slot.kernels[2].blamed_ns = 10, 20
    assert slot_profiles.blamed(slot) == ("k2", 20)

"""Numbers, story, audit and thinning of a broker's tape, on one that is made by hand."""

import json

import numpy as np
import pytest
from hypothesis import given, strategies as st

from headway.core.tape import Tape
from headway.errors import TapeError
from headway.gpu.share.recorded.metrics import shared_run, summarise
from headway.gpu.share.recorded.story import story
from headway.gpu.share.tape.audit import audit
from headway.gpu.share.tape.rows import OF_ALL, Ending, ShareKind
from headway.gpu.share.tape.thinning import thinned
from headway.units import SECOND

K = ShareKind


def made(*rows: tuple[float, ShareKind, int, int, int, int, int, str]) -> Tape:
    """A tape; times are in seconds."""
    numbers = [[round(time * SECOND), int(kind), *rest[:5]] for time, kind, *rest in rows]
    notes = {at: row[7] for at, row in enumerate(rows) if row[7]}
    return Tape(np.array(numbers, dtype=np.int64).reshape(-1, 7), notes)


def hand_made() -> Tape:
    """An api with two programs below, one after the other."""
    return made(
        (0, K.AIMED, OF_ALL, 0, 0, 10_000, 1_100_000, ""),
        (0, K.JOINED, 0, 0, 0, 0, 70, json.dumps(["api", "api-1"])),
        (1, K.JOINED, 1, 0, 1, 9, 71, json.dumps(["batch", "b"])),
        (4, K.MEASURED, 0, 3, 12, 0, 1_200_000, ""),
        (4, K.INTERVAL, 0, 0, 0, 1_100_000, 1_300_000, ""),
        (5, K.COUNTED, 1, 10, 4, 2 * SECOND, SECOND, ""),
        (5, K.HARVESTED, 1, 0, 0, 3_000_000, SECOND // 2, ""),
        (5, K.DELAYED, 1, 0, 0, 0, 2_000_000, "gemm"),
        (6, K.HELD, OF_ALL, 0, 0, 0, SECOND // 4, ""),
        (8, K.MEASURED, 0, 5, 20, 0, 1_000_000, ""),
        (8, K.INTERVAL, 0, 0, 0, 950_000, 1_050_000, ""),
        (9, K.DELAYED, 1, 0, 0, 0, 2_500_000, ""),
        (9, K.COUNTED, 1, 20, 8, 3 * SECOND, 2 * SECOND, ""),
        (9, K.HARVESTED, 1, 0, 0, 4_000_000, SECOND, ""),
        (9, K.LEFT, 1, 0, 0, Ending.DIED, 0, ""),
        (9.5, K.JOINED, 2, 0, 1, 9, 72, json.dumps(["batch", "b"])),
        (10, K.COUNTED, 0, 100, 0, 0, 5 * SECOND, ""),
        (10, K.HARVESTED, 0, 0, 0, 0, 0, ""),
    )


def test_the_numbers_are_those_worked_out_by_hand() -> None:
    row = summarise(shared_run(hand_made()))
    api, batch, again = row["programs"]
    assert api["slowdown"] == pytest.approx((4 * 1.2 + 2 * 1.0) / 6)
    assert api["above_aim_share"] == pytest.approx(4 / 6)
    assert (api["slowdown_last"], api["slowdown_low"], api["slowdown_high"]) == (1.0, 0.95, 1.05)
    assert (api["slowdown_holds"], api["slowdown_steps"], api["busy_share"]) == (5, 20, 0.5)
    assert (batch["launches"], batch["waits"], batch["waited_s"], batch["how"]) == (20, 8, 3.0, "died")
    assert (batch["harvested_s"], batch["harvested_share"], batch["delay_s"]) == (1.0, 1 / 8, 0.004)
    assert batch["delays"] == [{"kernel": "gemm", "delayed": ["api"], "delay_s": 0.0025}]
    assert (again["program"], again["how"], again["launches"]) == ("batch-2", "", 0)
    assert (row["slo"], row["floor"], row["seconds"]) == (1.1, 0.01, 10.0)
    assert row["held_share"] == pytest.approx(0.025)
    assert row["slowdown"] == api["slowdown"]


def with_limits() -> Tape:
    """The same with an aim for p99, a limit on SMs, and kernels that are charged for contention."""
    rows, notes = hand_made().rows.tolist(), dict(hand_made().notes)
    rows[0][3] = 1_150_000
    rows[2][3] = 300_000
    for row, note in (
        ([10 * SECOND, int(K.TAILED), 0, 130, 1_080_000, 1_300_000, 1_200_000], ""),
        (
            [
                10 * SECOND,
                int(K.JOINED),
                3,
                0,
                2,
                9,
                73,
            ],
            json.dumps(["stream", "s"]),
        ),
        ([11 * SECOND, int(K.CHARGED), 3, 0, 0, 0, 500_000], "copy_kernel"),
        ([11 * SECOND, int(K.CHARGED), 3, 0, 1, 0, 90_000], "gone_kernel"),
        ([12 * SECOND, int(K.CHARGED), 3, 0, 0, 0, 243_000], ""),
        ([12 * SECOND, int(K.CHARGED), 3, 0, 1, 0, 0], ""),
    ):
        if note:
            notes[len(rows)] = note
        rows.append(row)
    return Tape(np.array(rows, dtype=np.int64), notes)


def test_limits_charges_and_the_aim_for_p99_are_among_the_numbers() -> None:
    before, row = (summarise(shared_run(tape)) for tape in (hand_made(), with_limits()))
    assert (before["slo_p99"], row["slo_p99"]) == (None, 1.15)
    assert [each["sms"] for each in before["programs"]] == [1.0, 1.0, 1.0], "tapes of before know of no limit"
    api, batch, _, stream = row["programs"]
    assert (api["sms"], batch["sms"], stream["sms"]) == (1.0, 0.3, 1.0)
    assert (api["slowdown_p99"], api["slowdown_p99_low"], api["slowdown_p99_high"]) == (1.2, 1.08, 1.3)
    assert batch["slowdown_p99"] is None
    assert stream["charges"] == [{"kernel": "copy_kernel", "charge": 0.243}], "what is charged at the end"
    assert batch["charges"] == []
    assert audit(with_limits()) == []


def test_a_story_tells_of_limits_of_charges_and_of_the_tail() -> None:
    run = shared_run(with_limits())
    assert "batch, priority 9, 30\N{NO-BREAK SPACE}% of the SMs, process 71" in "\n".join(story(run, "batch").lines())
    assert "slow-down at p99 1.200× (1.080× to 1.300×)" in "\n".join(story(run, "api").lines())
    told = "\n".join(story(run, "stream").lines())
    assert "copy_kernel is charged 24.3\N{NO-BREAK SPACE}% of its time for contention" in told
    assert "gone_kernel" not in told
    assert "SMs" not in told


def test_a_tape_without_programs_or_values_has_numbers_that_say_so() -> None:
    empty = summarise(shared_run(Tape(np.empty((0, 7), dtype=np.int64))))
    assert (empty["slowdown"], empty["seconds"], empty["programs"]) == (None, 0.0, [])
    joined = summarise(shared_run(made((1, K.JOINED, 0, 0, 0, 5, 7, "not JSON"))))
    assert [row["program"] for row in joined["programs"]] == ["(no name)"]


def test_a_story_tells_of_slow_down_of_harvest_and_of_delays() -> None:
    run = shared_run(hand_made())
    api, batch = "\n".join(story(run, "api").lines()), "\n".join(story(run, "batch").lines())
    assert "joined at 0s, still there at 10s" in api
    assert "slow-down 1.133× in the mean" in api
    assert "(0.950× to 1.050×, 20 steps in 5 holds)" in api
    assert "died at 9s" in batch
    assert "gemm delayed api by 2.50 ms" in batch
    assert story(run, "batch-2").record()["launches"] == 0
    with pytest.raises(TapeError, match=r"unknown program 'x' \(valid: api, batch, batch-2\)"):
        story(run, "x")


def test_a_sound_tape_has_no_findings_and_each_contradiction_has_one() -> None:
    sound = hand_made()
    assert audit(sound) == []
    for row, column, value, rule in (
        (12, 3, 5, "counters grow"),
        (4, 5, 1_250_000, "interval"),
        (4, 0, round(4.1 * SECOND), "interval"),
        (5, 2, 2, "member"),
        (15, 2, 1, "joins once"),
        (8, 6, 7 * SECOND, "time held"),
    ):
        rows = sound.rows.copy()
        rows[row, column] = value
        assert rule in {finding.rule for finding in audit(Tape(rows, sound.notes))}, rule


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=200))
def test_thinning_keeps_events_names_and_the_last_of_each_and_loses_moments(steps: list[tuple[int, int, int]]) -> None:
    rows = [(0.0, K.JOINED, at, 0, at, 9, at, json.dumps([f"p{at}", ""])) for at in range(4)]
    now, total = 1.0, 0
    for passed, subject, place in steps:
        now, total = now + passed, total + 1
        rows.append((now, K.COUNTED, subject, total, 0, 0, 0, ""))
        rows.append((now, K.DELAYED, subject, 0, place, 0, total, f"k{place}" if total == 1 else ""))
    tape = made(*rows)
    fewer = thinned(tape)
    assert audit(fewer) == []
    assert sorted(fewer.notes.values()) == sorted(tape.notes.values())
    assert len(fewer.of(K.JOINED)) == 4
    assert fewer.rows[-1].tolist() == tape.rows[-1].tolist()
    times = len(np.unique(tape.column("time")))
    kept = fewer.of(K.COUNTED)
    assert len(kept) <= len(tape.of(K.COUNTED))
    if times > 4 and len({subject for _, subject, _ in steps}) == 1:
        assert len(kept) <= times // 2 + 1


def test_where_events_fill_a_tape_the_programs_that_left_first_go() -> None:
    rows = []
    for number in range(100):
        rows.append((number, K.JOINED, number, 0, 0, 9, number, json.dumps([str(number), ""])))
        if number != 5:
            rows.append((number + 0.5, K.LEFT, number, 0, 0, 0, 0, ""))
    fewer = thinned(made(*rows))
    assert len(fewer) <= 150
    assert {5, 99} <= set(fewer.column("subject").tolist())
    assert 0 not in fewer.column("subject").tolist()

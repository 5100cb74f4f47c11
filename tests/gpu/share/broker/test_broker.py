"""One turn of the broker: who came, who left, who died, what is known of them, what is asked of them."""

import errno
import os
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from headway.device import locks as places
from headway.device.locks import Place
from headway.errors import ProfileError
from headway.gpu.control.gate_rules import Rules
from headway.gpu.control.slowdown import MILLION
from headway.gpu.control.sms_outcomes import Outcome
from headway.gpu.share.block.block import CLAIMED, FREE, LEFT, LIVE, SPANS, SharedBlock, Slot
from headway.gpu.share.broker.broker import CLAIM_NS, FOREIGN_NS, LEFT_NS, SAVE_NS, Broker, write_rules
from headway.gpu.share.broker.heartbeat import Heartbeat
from headway.gpu.share.broker.status import snapshot
from tests.gpu.share.shares import Memory, broker_at, join, leave

SECOND = 1_000_000_000


def stepped(broker: Broker, now_ns: int) -> None:
    """One turn, and what was read for it beside the loop."""
    broker.step(now_ns)
    broker.background_store.finish()
    broker.seed()


def test_a_client_that_joins_is_seeded_and_gets_its_rules(tmp_path: Path) -> None:
    store = Memory()
    store.save("low.py", [{"id": "a", "name": "conv", "work_ns": 1234, "samples": 9}], [{"key": "b", "samples": 1}])
    broker, block, said = broker_at(tmp_path, store=store)
    high, low = join(block, 0, name="high", priority=0), join(block, 4, name="low", priority=9)
    stepped(broker, time.monotonic_ns())
    assert (high.seeded, low.seeded) == (1, 1)
    assert (high.rules.gate, low.rules.gate) == (0, 1)
    assert low.kernels[10].work_ns == 1234
    assert low.rules.floor_ppm == broker.dial.floor_ppm
    assert any("1 kernels of low.py are known" in line for line in said)


def test_what_was_learnt_is_kept_when_a_client_leaves(tmp_path: Path) -> None:
    store = Memory()
    broker, block, said = broker_at(tmp_path, store=store)
    slot = join(block, 0, name="a", priority=3)
    broker.step(time.monotonic_ns())
    slot.kernels[7].id, slot.kernels[7].samples, slot.ledger.kernels = 7, 2, 1000
    leave(slot)
    now = time.monotonic_ns()
    broker.step(now)
    broker.background_store.finish()
    assert [row["id"] for row in store.kept["a.py"][0]] == [f"{7:016x}"]
    assert "a (process" in said[-1]
    assert broker.clients == {}
    broker.step(now + LEFT_NS + 1)
    assert (slot.state, slot.owner, slot.kernels[7].id, slot.ledger.kernels) == (FREE, 0, 0, 0)
    assert sum("a (process" in line and "left" in line for line in said) == 1
    assert places.read_json(broker.place.state)["left"][0]["launches"] == 1000


def test_a_slot_stays_its_owners_while_the_process_ends_and_is_free_once_it_has(tmp_path: Path) -> None:
    broker, block, said = broker_at(tmp_path)
    with subprocess.Popen(["sleep", "60"]) as child:
        slot = join(block, 1, name="a", priority=3, pid=child.pid)
        now = time.monotonic_ns()
        broker.step(now)
        leave(slot)
        broker.step(now + 1)
        broker.step(now + 1 + LEFT_NS)
        assert (slot.state, slot.owner) == (LEFT, child.pid)
        assert places.read_json(broker.place.state)["here"] == []
        child.kill()
        child.wait()
        broker.step(now + 2)
    assert (slot.state, slot.owner) == (FREE, 0)
    assert [line.split()[3] for line in said] == ["joined", "left"]


def test_a_program_that_became_another_frees_its_slot_after_a_second(tmp_path: Path) -> None:
    broker, block, _ = broker_at(tmp_path)
    before = join(block, 0, name="a", priority=3)
    leave(before)  # before the broker had seen it at all
    after = join(block, 1, name="a", priority=3)
    now = time.monotonic_ns()
    broker.step(now)
    assert before.state == LEFT
    assert list(broker.clients) == [1]
    broker.step(now + LEFT_NS + 1)
    assert (before.state, after.state) == (FREE, LIVE)


def test_who_joins_gets_rules_and_what_is_known_while_somebody_elses_tables_are_kept(tmp_path: Path) -> None:
    class Slow(Memory):
        goes_on = threading.Event()

        def save(self, program: str, kernels: list[dict[str, Any]], steps: list[dict[str, Any]]) -> None:
            self.goes_on.wait()
            super().save(program, kernels, steps)

    store = Slow()
    store.kept["b.py"] = ([{"id": "a", "name": "conv", "work_ns": 1234, "samples": 9}], [])
    broker, block, _ = broker_at(tmp_path, store=store)
    slot = join(block, 0, name="a", priority=3)
    slot.kernels[7].id, slot.kernels[7].samples, slot.kernels[7].work_ns = 7, 2, 55
    now = time.monotonic_ns()
    broker.step(now)
    leave(slot)
    broker.step(now + 1)
    other, again = join(block, 1, name="b", priority=0), join(block, 2, name="a", priority=9)
    while not (other.seeded and again.seeded):
        broker.step(now + 2)
    assert (other.rules.gate, again.rules.gate) == (0, 1)
    assert other.kernels[10].work_ns == 1234
    assert again.kernels[7].work_ns == 55  # from what is still to be written
    assert "a.py" not in store.kept
    store.goes_on.set()
    broker.background_store.finish()
    assert store.kept["a.py"][0][0]["work_ns"] == 55


def test_a_state_that_cannot_be_written_is_said_once_and_the_loop_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, block, said = broker_at(tmp_path)

    def full(path: Path, value: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    now = time.monotonic_ns()
    with monkeypatch.context() as patch:
        patch.setattr(places, "write_json", full)
        broker.step(now)
        broker.step(now + SECOND)
        slot = join(block, 0, name="a", priority=3)
        broker.step(now + 2 * SECOND)
    assert broker.clients == {0: slot.owner}
    assert [line for line in said if "cannot be written" in line] == [
        f"{broker.place.state} cannot be written: No space left on device; status shows an older state"
    ]
    broker.step(now + 3 * SECOND)
    assert places.read_json(broker.place.state)["here"] == ["a"]


def test_two_wishes_within_one_tick_of_the_clock_are_both_heard(tmp_path: Path) -> None:
    broker, _, _ = broker_at(tmp_path)
    for slo_ppm in (1_020_000, 1_040_000):
        places.ask(broker.place, slo_ppm=slo_ppm)
        os.utime(broker.place.asked, ns=(SECOND, SECOND))
        broker.step(time.monotonic_ns())
        assert broker.dial.slo_ppm == slo_ppm


def test_how_long_a_broker_stays_can_be_asked_of_one_that_goes_by_itself(tmp_path: Path) -> None:
    broker, _, said = broker_at(tmp_path, linger_ns=5 * SECOND)
    places.ask(broker.place, linger_ns=60 * SECOND)
    broker.step(time.monotonic_ns())
    assert said == ["linger is 1m 00s now"]
    assert places.read_json(broker.place.state)["linger_ns"] == 60 * SECOND
    places.ask(broker.place, slo_ppm=1_200_000)  # what was asked before stays, and is said once
    broker.step(time.monotonic_ns())
    assert said[1:] == ["slo is 1.2 now"]
    forever, _, said = broker_at(tmp_path)
    forever.step(time.monotonic_ns())
    assert forever.idle(time.monotonic_ns() + 10**6 * SECOND) is False
    assert places.read_json(forever.place.state)["linger_ns"] is None


def test_a_link_in_place_of_what_is_asked_is_not_followed(tmp_path: Path) -> None:
    broker, _, said = broker_at(tmp_path)
    (tmp_path / "theirs").write_text('{"stop": "kill"}')
    broker.place.asked.symlink_to(tmp_path / "theirs")
    for _ in range(2):
        broker.step(time.monotonic_ns())
    assert broker.stopping == ""
    assert len(said) == 1
    assert "is a symbolic link, and links are not followed here" in said[0]


def test_a_client_that_was_killed_is_reaped_and_its_tables_kept(tmp_path: Path) -> None:
    store = Memory()
    broker, block, said = broker_at(tmp_path, store=store)
    with subprocess.Popen(["sleep", "60"]) as child:
        slot = join(block, 1, name="a", priority=3, pid=child.pid)
        slot.kernels[7].id, slot.kernels[7].samples = 7, 2
        broker.step(time.monotonic_ns())
        assert slot.state == LIVE
        child.kill()
        child.wait()
        broker.step(time.monotonic_ns())
    broker.background_store.finish()
    assert slot.state == FREE
    assert "died after" in said[-1]
    assert store.kept["a.py"]


def test_a_client_that_cannot_be_seen_stays_as_long_as_it_is_heard_of(tmp_path: Path) -> None:
    broker, block, said = broker_at(tmp_path)
    slot = join(block, 0, name="far", priority=0, pid=2**22 + 5, ticks=2**40)
    now = slot.since_ns
    broker.step(now)
    assert "in another container" in said[0]
    slot.pulse.launch_ns = now + FOREIGN_NS
    broker.step(now + 2 * FOREIGN_NS - 1)
    assert slot.state == LIVE
    broker.step(now + 2 * FOREIGN_NS)
    assert slot.state == FREE


def test_a_slot_whose_process_died_while_it_joined_is_cleared(tmp_path: Path) -> None:
    broker, block, _ = broker_at(tmp_path)
    slot: Slot = block.slots[2]
    slot.state = CLAIMED
    broker.step(SECOND)
    broker.step(SECOND + CLAIM_NS)
    assert slot.state == CLAIMED
    broker.step(SECOND + CLAIM_NS + 1)
    assert slot.state == FREE


def test_nonsense_in_a_slot_is_cleared_and_the_loop_goes_on(tmp_path: Path) -> None:
    broker, block, said = broker_at(tmp_path)
    block.slots[0].state = 77
    slot = join(block, 1, name="\udcff".encode("utf-8", "surrogateescape").decode("latin-1"), priority=4_000_000_000)
    slot.ledger.spans, slot.want.end_ns, slot.since_ns = 2**62, 2**62, 2**62
    stepped(broker, time.monotonic_ns())
    assert block.slots[0].state == FREE
    assert "is invalid: cleared" in said[0]
    assert slot.seeded == 1


def test_a_new_client_in_the_slot_of_another_is_another(tmp_path: Path) -> None:
    broker, block, said = broker_at(tmp_path)
    join(block, 0, name="a", priority=1)
    stepped(broker, time.monotonic_ns())
    block.clear(0)
    join(block, 0, name="b", priority=2)
    stepped(broker, time.monotonic_ns())
    assert [line.split()[0] for line in said] == ["a", "b"]
    assert block.slots[0].seeded == 1


def test_settings_travel_to_a_running_broker(tmp_path: Path) -> None:
    broker, block, said = broker_at(tmp_path)
    places.ask(broker.place, slo_ppm=1_020_000, floor_ppm=100_000)
    broker.step(time.monotonic_ns())
    assert (broker.dial.slo_ppm, broker.dial.floor_ppm) == (1_020_000, 100_000)
    assert said == ["slo is 1.02 now", "floor is 0.1 now"]
    places.ask(broker.place, slo_ppm="nonsense", floor_ppm=-1, stop="maybe")
    broker.step(time.monotonic_ns())
    assert (broker.dial.slo_ppm, broker.dial.floor_ppm, broker.stopping) == (1_020_000, 100_000, "")
    places.ask(broker.place, stop="drain")
    broker.step(time.monotonic_ns())
    assert broker.stopping == "drain"
    assert block.header.stopping == 1


def test_tables_are_kept_all_along(tmp_path: Path) -> None:
    store = Memory()
    broker, block, _ = broker_at(tmp_path, store=store)
    slot = join(block, 0, name="a", priority=3)
    slot.kernels[7].id, slot.kernels[7].samples = 7, 2
    now = time.monotonic_ns()
    broker.step(now)
    assert not store.kept
    broker.step(now + SAVE_NS)
    broker.background_store.finish()
    assert store.kept["a.py"]


def test_a_store_that_fails_is_said_and_nothing_more(tmp_path: Path) -> None:
    class Broken(Memory):
        def load(self, program: str) -> None:
            raise ProfileError(f"{program} is broken")

        def save(self, program: str, kernels: object, steps: object) -> None:
            raise OSError("disk full")

    broker, block, said = broker_at(tmp_path, store=Broken())
    slot = join(block, 0, name="a", priority=3)
    slot.kernels[7].id, slot.kernels[7].samples = 7, 2
    stepped(broker, time.monotonic_ns())
    assert slot.seeded == 1
    leave(slot)
    stepped(broker, time.monotonic_ns())
    broker.background_store.finish()
    stepped(broker, time.monotonic_ns())
    assert any("cannot be read: a.py is broken" in line for line in said)
    assert any("could not be kept: disk full" in line for line in said)


def test_a_broker_is_idle_once_nobody_was_there_for_long_enough(tmp_path: Path) -> None:
    broker, block, _ = broker_at(tmp_path, linger_ns=5 * SECOND)
    slot = join(block, 0, name="a", priority=3)
    now = time.monotonic_ns() + 100 * SECOND
    broker.step(now)
    assert not broker.idle(now + 4 * SECOND)
    assert broker.idle(now + 5 * SECOND)
    assert slot.state == LIVE
    forever, _, _ = broker_at(tmp_path)
    assert not forever.idle(now + 10**6 * SECOND)


def test_every_rule_of_the_dial_has_its_cell() -> None:
    slot = Slot()
    values = {name: 7 + number for number, name in enumerate(Rules.__dataclass_fields__)}
    write_rules(slot, Rules(**values))
    assert {name: getattr(slot.rules, name) for name in values} == values


def test_the_heart_beats_while_the_loop_gets_on_and_falls_silent_when_it_hangs(tmp_path: Path) -> None:
    _, block, _ = broker_at(tmp_path)
    block.header.beat_ns = 0
    heartbeat = Heartbeat(block, stuck_ns=60 * SECOND)
    heartbeat.start()
    while block.header.beat_ns == 0:
        time.sleep(0.01)
    heartbeat.stop()
    block.header.beat_ns = 0
    assert Heartbeat(block, stuck_ns=-1).beat() is False
    assert block.header.beat_ns == 0


def test_a_way_to_the_block_that_somebody_removes_is_put_back_and_said(tmp_path: Path) -> None:
    broker, block, said = broker_at(tmp_path)
    join(block, 0, name="a", priority=3)
    broker.step(SECOND)
    block.path.unlink()
    broker.step(2 * SECOND)
    assert said[-1] == f"{block.path} was removed: it is put back; programs that share go on as before"
    theirs = SharedBlock.open(block.path)
    assert theirs.slots[0].name == b"a"  # the same memory
    broker.step(3 * SECOND)
    assert said[-1].endswith("it is put back; programs that share go on as before")
    theirs.close()
    block.close()


def test_what_somebody_puts_in_the_place_of_the_block_is_said_once_and_left_alone(tmp_path: Path) -> None:
    broker, block, said = broker_at(tmp_path)
    block.path.unlink()
    block.path.write_text("theirs")
    for moment in (1, 2, 3):
        broker.step(moment * SECOND)
    (line,) = said
    assert line == (
        f"{block.path} was replaced by something else: programs that share go on as before, "
        "new ones do not find the broker: remove what is there, or headway share stop"
    )
    assert block.path.read_text() == "theirs"
    block.path.unlink()
    broker.step(4 * SECOND)
    assert "it is put back" in said[-1]
    block.close()


def test_who_asked_and_got_no_slot_is_told_to_those_who_look(tmp_path: Path) -> None:
    broker, block, _ = broker_at(tmp_path)
    assert block.listener is not None
    here, outside = os.getpid(), os.getppid()
    join(block, 0, name="a", priority=3)
    block.listener.heard.extend([here, outside, 2**22 + 1])  # the last one is nobody
    for moment, expected in ((1, []), (2, []), (5, [outside]), (6, [outside])):
        broker.step(moment * SECOND)
        assert places.read_json(broker.place.state)["outside"] == expected
    block.close()


def test_what_was_learnt_of_pairs_is_recalled_and_kept(tmp_path: Path) -> None:
    store = Memory()
    store.save_learnt({("a.py", "b.py"): {"boldness_ppm": 800_000}, ("a.py", "c.py"): {"boldness_ppm": 5}})
    broker, block, _ = broker_at(tmp_path, store=store)
    join(block, 0, name="a", priority=0)
    join(block, 1, name="b", priority=5)
    broker.step(time.monotonic_ns())
    assert broker.dial.boldness_ppm(0) == 800_000
    broker.dial.learnt["a.py", "b.py"] = 123
    broker.run(lambda: True, lambda ending: None)
    assert store.pairs == {("a.py", "b.py"): {"boldness_ppm": 123}, ("a.py", "c.py"): {"boldness_ppm": 5}}


def test_what_is_learnt_of_a_program_with_a_limit_is_kept_apart(tmp_path: Path) -> None:
    store = Memory()
    store.save_learnt({("a.py", "b.py"): {"boldness_ppm": 800_000}})
    store.save("b.py", [{"id": "a", "name": "conv", "work_ns": 1234, "samples": 9}], [])
    broker, block, _ = broker_at(tmp_path, store=store)
    join(block, 0, name="a", priority=0)
    slot = join(block, 1, name="b", priority=5)
    slot.sms_ppm = 300_000
    stepped(broker, time.monotonic_ns())
    assert (broker.dial.boldness_ppm(0), slot.kernels[10].id) == (0, 0), "another limit begins anew"
    slot.kernels[7].id, slot.kernels[7].samples, slot.kernels[7].work_ns = 7, 2, 4_000
    leave(slot)
    broker.step(time.monotonic_ns())
    broker.background_store.finish()
    assert [row["work_ns"] for row in store.kept["b.py.sms-30"][0]] == [4_000]
    assert [row["work_ns"] for row in store.kept["b.py"][0]] == [1234]


def test_how_a_pair_went_is_kept_when_one_of_them_leaves_and_shown(place: Place) -> None:
    store = Memory()
    known = Outcome(7_000, 1_400_000, 980_000, MILLION, 1_050_000, 90, 5)
    store.save_learnt({("a.py", "b.py"): {"boldness_ppm": 4_000_000, "sms_ppm": MILLION, **known._asdict()}})
    broker, block, _ = broker_at(place.folder, store=store)
    handle = places.hold(place.lock, alone=True)
    assert handle is not None
    join(block, 0, name="a", priority=0)
    slot = join(block, 1, name="b", priority=5)
    slot.sms_ppm = 300_000
    broker.step(time.monotonic_ns())
    broker.pairs.harvests.outcomes["a.py", "b.py.sms-30"] = known._replace(rate_mhz=63_000)
    broker.step(time.monotonic_ns() + SECOND)
    row = next(row for row in snapshot(place)["clients"] if row["name"] == "b")
    assert (row["sms"], row["harvest_by_sms"]) == (0.3, {"0.3": 0.0882, "1.0": 0.0098})
    leave(slot)
    broker.step(time.monotonic_ns() + 2 * SECOND)
    broker.background_store.finish()
    kept = store.pairs["a.py", "b.py.sms-30"]
    assert (kept["sms_ppm"], kept["rate_mhz"]) == (300_000, 63_000)
    os.close(handle)


class SlowToRead(Memory):
    """A store whose pairs are read when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.open = threading.Event()

    def learnt(self) -> dict[tuple[str, str], dict[str, Any]]:
        self.open.wait(60)
        return super().learnt()


def test_what_a_slow_store_holds_of_pairs_is_not_overwritten(tmp_path: Path) -> None:
    charged = {"contention": {f"{7:016x}": 250_000}}
    store = SlowToRead()
    stored = {
        ("a.py", "b.py"): {"boldness_ppm": 800_000, "aim_ppm": 50_000, **charged},
        ("a.py", "c.py"): {"boldness_ppm": 700_000, "aim_ppm": 50_000},
        ("a.py", "d.py"): {"boldness_ppm": 600_000},
    }
    store.save_learnt(stored)
    broker, block, _ = broker_at(tmp_path, store=store)
    join(block, 0, name="a", priority=0)
    slot = join(block, 1, name="b", priority=5)
    slot.kernels[7].id, slot.kernels[7].samples = 7, 1
    join(block, 2, name="c", priority=5)
    now = time.monotonic_ns()
    broker.step(now)
    assert broker.dial.learnt == {}
    broker.dial.learnt["a.py", "b.py"] = 30_000  # from the floor
    broker.dial.learnt_aims["a.py", "b.py"] = 20_000
    broker.pairs.keep()
    broker.background_store.finish()
    assert store.pairs == stored, "nothing is saved before it is known what is there"
    store.open.set()
    until = time.monotonic() + 20
    while not broker.pairs._stored and time.monotonic() < until:
        now += SECOND
        broker.step(now)
    broker.step(now + 3 * SECOND)
    assert slot.kernels[7].contention_ppm == 250_000, "charged as stored"
    assert broker.dial.learnt["a.py", "d.py"] == 600_000, "a pair that has not met begins with what is stored"
    broker.dial.learnt["a.py", "c.py"] = 900_000
    broker.run(lambda: True, lambda ending: None)
    assert store.pairs["a.py", "b.py"] == stored["a.py", "b.py"]
    assert store.pairs["a.py", "c.py"]["boldness_ppm"] == 900_000
    assert store.pairs["a.py", "d.py"] == stored["a.py", "d.py"]


def test_what_was_learnt_of_pairs_and_cannot_be_read_is_said(tmp_path: Path) -> None:
    class Broken(Memory):
        def learnt(self) -> dict[tuple[str, str], dict[str, Any]]:
            raise OSError("it is gone")

    broker, _, said = broker_at(tmp_path, store=Broken())
    assert said == ["what was learnt of pairs cannot be read: it is gone"]
    assert broker.dial.learnt == {}


def test_whole_steps_in_the_ring_become_a_slow_down_with_its_interval_in_the_status(place: Place) -> None:
    broker, block, _ = broker_at(place.folder)
    handle = places.hold(place.lock, alone=True)
    assert handle is not None
    above, below = join(block, 0, name="a", priority=0), join(block, 1, name="b", priority=5)
    now = begin = time.monotonic_ns()
    broker.step(now)
    free = now
    while now < begin + 8_000_000_000:
        now += 1_000_000 if broker.dial.holds.holding else 8_000_000
        while free + 2_100_000 <= now:  # steps take 2 ms, and 5 % more beside the other one
            took = 2_000_000 if below.rules.hold else 2_100_000
            number = above.ledger.spans + 1
            span = above.spans[(number - 1) % SPANS]
            span.begin_ns, span.end_ns, span.launches, span.number = free, free + took, 7, number
            above.ledger.spans = number
            free += took
        broker.apply_dial(now)
    broker.publish(now)
    block.header.beat_ns = time.monotonic_ns()
    row, other = snapshot(place)["clients"]
    assert row["slowdown"] == pytest.approx(1.05, abs=0.002)
    assert row["slowdown_low"] <= row["slowdown"] <= row["slowdown_high"]
    assert row["slowdown_holds"] >= 5
    assert row["slowdown_steps"] >= 4 * row["slowdown_holds"]
    assert other["slowdown"] is None
    os.close(handle)
